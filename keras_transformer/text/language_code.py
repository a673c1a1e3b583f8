"""The code of a language, such as `de`, by which the tools for scoring know it."""

import re

from keras_transformer.errors import UserError


def check_language_code(code: str | None) -> None:
    """Raises `UserError` for `German` or `DE`, which no tool would know; None is any language.

    Example:
        >>> check_language_code("pt-br")
    """
    if code is not None and not re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", code, re.ASCII):
        raise UserError(f"target_lang: expected the code of a language such as de, found {code!r}")
