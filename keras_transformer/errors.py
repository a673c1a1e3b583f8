"""The exception whose message is written for the user of a command."""


class UserError(ValueError):
    """A mistake in what the user gave: a flag, a field, a file, a shape.

    The message is one line that says what was expected, what was found and where. The command
    lines print it alone, without a traceback, and exit with a non-zero status.
    """
