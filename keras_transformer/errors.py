"""The exception for mistakes of users, whose message is written for them."""


class UserError(ValueError):
    """A mistake in the user's input: a flag, a field, a file, a shape.

    The message is one line that says what was expected, what was found and where. Commands print
    only this line, without a traceback, and exit with a non-zero status.
    """
