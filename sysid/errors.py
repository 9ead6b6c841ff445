"""Errors that the user made, as opposed to faults of the toolbox."""


class UserError(ValueError):
    """The user gave a value that cannot be used.

    The message states what was expected, what was given, and what to do. Every other ``ValueError``
    is a fault of the code that raised it. Commands print a `UserError` as one line, and a fault
    with its traceback.
    """


class UserTypeError(TypeError):
    """The user gave an object of the wrong type; otherwise as `UserError`."""
