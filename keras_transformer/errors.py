"""The one exception that a person, and not a programmer, is meant to read."""


class UserError(ValueError):
    """A mistake in what the user gave: a flag, a field, a file, a shape.

    The message is one line that says what was expected, what was found and where. The command
    lines print it alone, without a traceback, and exit with a non-zero status.
    """
