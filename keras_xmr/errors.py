"""The error of a call from Python that cannot work."""

from data_pipelines.errors import UserError


class ArgumentError(UserError, ValueError):
    """What a function was given does not fit; the message says what does."""
