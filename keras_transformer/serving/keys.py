"""The API keys of a server."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers

from keras_transformer.errors import UserError


class Keys:
    """API keys, compared in constant time. Without any key, it is false."""

    def __init__(self, keys: Iterable[str]):
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def knows(self, key: bytes) -> bool:
        """Whether this is one of the keys."""
        digest = _digest(key)
        # A list, not a generator: every key is compared, even after a match.
        return any([hmac.compare_digest(digest, known) for known in self._digests])


def bearer_key(headers: Headers) -> bytes | None:
    """The key of the header `Authorization: Bearer KEY`; None without such a header."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip().encode("latin-1") if kind.lower() == "bearer" else None


def read_keys(path: str) -> list[str]:
    """Reads the keys in a file, one a line; ignores empty lines and those that begin with #.

    Raises:
        UserError: the file cannot be read, has no key, or has one that no header can hold.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # editors of Windows begin it with a mark
        lines = [line.strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"--api_key_file {path}: {why}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UserError(f"--api_key_file {path} has no key: write one a line")
    for number, line in enumerate(lines, 1):
        if line in keys and not (line.isascii() and line.isprintable() and " " not in line):
            raise UserError(
                f"--api_key_file {path}, line {number}: a key must be ASCII without spaces"
            )
    return keys


def _digest(key):
    """A digest of fixed length, so that the time of a comparison reveals nothing about the key."""
    return hashlib.sha256(key).digest()
