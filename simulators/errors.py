"""Errors that the user can correct, apart from bugs of the toolbox."""


class UserError(ValueError):
    """An argument, a setting or a file of the user is not valid.

    The message says what was expected, what was given and what to do. Every other ``ValueError`` is
    a bug of the code that raised it. Commands report a `UserError` in one line; for a bug they show
    the traceback.
    """


class UserTypeError(TypeError):
    """As `UserError`, for an object of a wrong type."""


class SimulationError(ArithmeticError):
    """A simulation cannot go on with these settings.

    The message says where it ended, and what to change.
    """
