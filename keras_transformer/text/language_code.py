"""How a language is written: its code, such as `de`, and its symbol, such as `>>fra<<`."""

import re

from keras_transformer.errors import UserError

# The symbol that a source sentence of a Marian model begins with. It is for bytes in Python and for
# RE2, TensorFlow's expressions: in both, `\s` is white space of ASCII alone.
LANGUAGE_SYMBOL = r">>[^<>\s]+<<"


def check_language_code(code: str | None, name: str = "target_lang") -> None:
    """Raises `UserError` for `German` or `DE`, which no tool would know; None is any language.

    Args:
        code: the code.
        name: the argument that it was given in, which the message names.

    Example:
        >>> check_language_code("pt-br")
    """
    if code is not None and not re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", code, re.ASCII):
        raise UserError(f"{name} must be a language code such as de: found {code!r}")
