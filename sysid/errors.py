"""Mistakes of the user, apart from faults of the toolbox."""


class UserError(ValueError):
    """The user gave something that cannot be meant: the message says what was expected, what came,
    what to do.

    Every other ``ValueError`` is a fault of the code that raised it. Commands tell a `UserError` in
    one line, and show the traceback of a fault.
    """


class UserTypeError(TypeError):
    """As `UserError`, where an object of another type was expected."""
