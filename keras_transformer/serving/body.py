"""The body of a request, plain or compressed by gzip, of limited size."""

import zlib
from collections.abc import Sequence

from starlette.exceptions import HTTPException

from keras_transformer.errors import UserError

_GZIP = 16 + zlib.MAX_WBITS  # the format, for zlib


class Body:
    """Collects a body as it arrives, and never holds more than its limit.

    Args:
        codings: the values of the request's headers `Content-Encoding`.
        limit: the maximum number of bytes, as sent and as expanded.

    Raises:
        HTTPException: 415, the body has another coding than gzip.

    Example:
        >>> import gzip
        >>> body = Body(["gzip"], limit=100)
        >>> body.takes(gzip.compress(b"[]")), body.content()
        (True, b'[]')
    """

    def __init__(self, codings: Sequence[str], limit: int):
        names = [name.strip().lower() for value in codings for name in value.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        if names not in ([], ["gzip"], ["x-gzip"]):
            message = f"Content-Encoding must be gzip, or left out: found {names}"
            raise HTTPException(415, message[:200], {"Accept-Encoding": "gzip"})
        self._decoder = zlib.decompressobj(_GZIP) if names else None
        self._limit, self._sent, self._content = limit, 0, bytearray()

    def takes(self, chunk: bytes) -> bool:
        """Adds the next bytes, and returns whether the body is still within the limit.

        Raises:
            UserError: the bytes are not gzip.
        """
        self._sent += len(chunk)
        if self._decoder is None:
            self._content += chunk
        elif chunk:
            room = self._limit - len(self._content) + 1  # a byte too many is enough
            try:
                self._content += self._decoder.decompress(chunk, room)
            except zlib.error:
                raise UserError("the body is not gzip, as Content-Encoding says") from None
        return max(self._sent, len(self._content)) <= self._limit

    def content(self) -> bytes:
        """The whole body, expanded.

        Raises:
            UserError: the compressed body has no end, or goes on after it.
        """
        decoder = self._decoder
        if decoder and (not decoder.eof or decoder.unused_data):
            where = "goes on after its end" if decoder.eof else "is cut off"
            raise UserError(f"the body {where}: send one whole file of gzip")
        return bytes(self._content)
