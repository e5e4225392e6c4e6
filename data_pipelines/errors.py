"""The root of all errors that a user can do something about."""


class UserError(Exception):
    """Something that the user can mend; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback.
    """
