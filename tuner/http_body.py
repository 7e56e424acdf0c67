"""Bodies of answers, decoded piece by piece within a limit: a kilobyte of gzip in gzip unpacks to gigabytes."""

from __future__ import annotations

import zlib

from deuteron.compiler.errors import DeuteronError

_GZIP = 31


class BodyRefused(DeuteronError):
    """The body of an answer is larger than the limit, or encoded in a way that was not asked for."""


class BodyDecoder:
    """Decodes a body as it arrives: plain, or once in gzip. ``most``: bytes after decoding."""

    def __init__(self, encoding: str, most: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip"):
            raise BodyRefused(f"the body is encoded in {encoding[:60]!r}", hint="only gzip, once, is decoded")
        self._packed = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        self._most = most
        self._left = most

    def plain(self, piece: bytes) -> bytes:
        """The next bytes, maybe none. Raises :class:`BodyRefused`."""
        if self._packed is not None:
            try:
                # One more than may come tells that there are too many.
                piece = self._packed.decompress(piece, self._left + 1)
            except zlib.error as error:
                raise BodyRefused(f"the body is no gzip: {error}") from None
            if self._packed.unused_data:
                raise BodyRefused("the body goes on behind its end")
        self._left -= len(piece)
        if self._left < 0:
            raise BodyRefused(f"the body has more than {self._most} bytes")
        return piece
