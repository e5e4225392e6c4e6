"""Errors that a user can fix."""


class UserError(Exception):
    """An error that the user can fix; the message says how.

    The command line prints the message alone, without a traceback.
    """


class ArgumentError(UserError, ValueError):
    """Error of an invalid argument; the message names a valid one."""


class ConfigError(UserError):
    """A config cannot be used; the message names each key, its value, and the remedy."""
