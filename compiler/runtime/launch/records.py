"""What instrumented kernels record: the buffer of a launch, whose form is that of :mod:`...record_buffer`, and what it
holds afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import LaunchError
from ...record_buffer import (
    CLOCK_BITS,
    COUNT,
    FIRST_CLOCK,
    FIRST_NS,
    HEAD_WORDS,
    LAST_CLOCK,
    LAST_NS,
    MASK,
    MOST_WARPS,
    PROCESSOR,
    TRACK_WORDS,
    WARPS,
    WORD_BYTES,
)

if TYPE_CHECKING:
    import numpy as np

#: Memory that the buffer of one launch may take.
MOST_BYTES = 1 << 30
_USUAL_BYTES = 64 << 20
_USUAL_RECORDS = 256
_FEWEST_RECORDS = 2


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """How to record. ``bytes_per_program``: of rings, all warps of a program together; 0 for as much as is usual.
    ``warps``: which ones record, on a GPU; None for all."""

    bytes_per_program: int = 0
    warps: tuple[int, ...] | None = None

    def ring(self, programs: int, warps: int) -> int:
        """Records of the ring of each warp: a power of two. Raises LaunchError where the buffer would be too large."""
        if self.bytes_per_program:
            length = self.bytes_per_program // (warps * WORD_BYTES)
        else:
            length = min(_USUAL_RECORDS, _USUAL_BYTES // (programs * warps * WORD_BYTES))
        length = 1 << max(length, _FEWEST_RECORDS).bit_length() - 1
        size = WORD_BYTES * words_of(programs * warps, length)
        if size > MOST_BYTES:
            raise LaunchError(
                f"the records of {programs} programs of {warps} warps take {size} bytes, {MOST_BYTES} are allowed",
                hint="profile a smaller grid, or give a smaller buffer_size",
            )
        return length


@dataclass(frozen=True, slots=True)
class RecordedMark:
    """One record: ``clock`` is that of the track, in ticks since its first."""

    scope: int
    enter: bool
    clock: int


@dataclass(frozen=True, slots=True)
class Track:
    """What one warp of a program, or on a CPU one program, recorded: the newest ``marks``, oldest first, after ``lost``
    ones that the ring had no room for.

    ``first_clock`` and ``last_clock`` are of its beginning and end, in ticks; ``first_ns`` and ``last_ns`` are those on
    a timer that all processors share, 0 where there is none.
    """

    program: int
    warp: int
    processor: int
    first_clock: int
    last_clock: int
    first_ns: int
    last_ns: int
    lost: int
    marks: tuple[RecordedMark, ...]


@dataclass(frozen=True, slots=True)
class LaunchRecords:
    """What a launch recorded. ``scopes`` are paths by number; tracks without any record are left out, but
    ``all_tracks`` counts them. ``ticks_per_ns``: of the clock, where the launcher could tell."""

    scopes: tuple[tuple[str, ...], ...]
    tracks: tuple[Track, ...]
    all_tracks: int
    warps: int
    ticks_per_ns: float | None = None

    @property
    def lost(self) -> int:
        """Records that there was no room for."""
        return sum(track.lost for track in self.tracks)


def words_of(tracks: int, ring: int) -> int:
    """Words of a buffer."""
    return HEAD_WORDS + tracks * (TRACK_WORDS + ring)


def empty_buffer(settings: RecordSettings, programs: int, warps: int) -> np.ndarray:
    """The buffer as a kernel finds it."""
    import numpy as np  # lazy: a launch without records has no use for it

    ring = settings.ring(programs, warps)
    words = np.zeros(words_of(programs * warps, ring), np.int64)
    words[MASK] = ring - 1
    chosen = range(MOST_WARPS) if settings.warps is None else settings.warps
    words.view(np.uint64)[WARPS] = sum(1 << warp for warp in chosen)
    return words


def read_buffer(
    words: np.ndarray, scopes: Sequence[tuple[str, ...]], warps: int, ticks_per_ns: float | None = None
) -> LaunchRecords:
    """What a launch left in its buffer; ``warps``: tracks of each program."""
    ring = int(words[MASK]) + 1
    tracks = words[HEAD_WORDS:].reshape(-1, TRACK_WORDS + ring)
    made = tuple(_track(number, warps, tracks[number]) for number in range(len(tracks)) if tracks[number, COUNT])
    return LaunchRecords(tuple(scopes), made, len(tracks), warps, ticks_per_ns)


def _track(number: int, warps: int, words: np.ndarray) -> Track:
    about = [int(word) for word in words[:TRACK_WORDS]]
    first = about[FIRST_CLOCK]
    return Track(
        number // warps,
        number % warps,
        about[PROCESSOR],
        first,
        about[LAST_CLOCK],
        about[FIRST_NS],
        about[LAST_NS],
        max(0, about[COUNT] - (len(words) - TRACK_WORDS)),
        tuple(_marks(about[COUNT], first, words[TRACK_WORDS:])),
    )


def _marks(count: int, first_clock: int, ring: np.ndarray) -> Iterator[RecordedMark]:
    """The records of a ring, oldest first; ``count`` were made."""
    length, modulus = len(ring), 1 << CLOCK_BITS
    for number in range(max(0, count - length), count):
        word = int(ring[number % length])
        tag = word >> CLOCK_BITS & 0xFFFF
        yield RecordedMark(tag >> 1, not tag & 1, (word - first_clock) % modulus)
