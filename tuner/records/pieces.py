"""Pieces of a bundle: runs of its lines by which two versions are compared, so that only what changed is fetched.

Where a piece ends its own last line decides, and not its place, so that a line that is added or taken away changes one
piece and moves the others. A piece has :data:`MEAN` lines on average, and none is much longer than :data:`MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..codec import Document

#: Lines of a piece, on average. A change costs twice as many, because it is more often in a long piece than in a short
#: one, and each piece costs 38 bytes of the list.
MEAN = 32
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """``size`` bytes with the first half of their sha256, in hex."""

    size: int
    digest: str


class PieceList(Document, frozen=True):
    """The pieces of the file with this sha256, in order: their sizes in bytes and their digests."""

    noun: ClassVar[str] = "list of pieces"

    sha256: str
    sizes: tuple[int, ...]
    digests: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.digests) or any(size <= 0 for size in self.sizes):
            raise ValueError("each piece has a digest and a size above 0")

    @staticmethod
    def of(sha256: str, lines: Iterable[bytes]) -> PieceList:
        """The pieces of a file, given by its lines."""
        made = list(pieces(lines))
        return PieceList(sha256, tuple(piece.size for piece in made), tuple(piece.digest for piece in made))


def pieces(lines: Iterable[bytes]) -> Iterator[Piece]:
    """The pieces of a file. The first line is one by itself: it says when the bundle was made, and always changes."""
    held, size, first = hashlib.sha256(), 0, True
    for line in lines:
        held.update(line)
        size += len(line)
        if first or zlib.crc32(line) % MEAN == 0 or size >= MOST_BYTES:
            yield Piece(size, held.hexdigest()[:32])
            held, size, first = hashlib.sha256(), 0, False
    if size:
        yield Piece(size, held.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring bytes of a new file: of the old one from ``source`` on, or to be fetched where that is None."""

    start: int
    size: int
    source: int | None


def plan(new: PieceList, old: Sequence[Piece]) -> list[Stretch]:
    """How to make a new file of what the old one has: neighbours that come from neighbouring places are one run."""
    places: dict[str, int] = {}
    at = 0
    for piece in old:
        places.setdefault(f"{piece.digest} {piece.size}", at)
        at += piece.size
    runs: list[Stretch] = []
    start = 0
    for size, digest in zip(new.sizes, new.digests, strict=True):
        source = places.get(f"{digest} {size}")
        last = runs[-1] if runs else None
        if last is not None and _follows(last, source):
            runs[-1] = Stretch(last.start, last.size + size, last.source)
        else:
            runs.append(Stretch(start, size, source))
        start += size
    return runs


def _follows(run: Stretch, source: int | None) -> bool:
    if run.source is None or source is None:
        return run.source is source
    return run.source + run.size == source
