"""What instrumented kernels record: the buffer of a launch, whose form is that of :mod:`...record_buffer`, and what it
holds afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import LaunchError
from ...launch_recipe import LaunchRecipe
from ...record_buffer import (
    BLOCK_RECORDS,
    COUNT,
    FIRST_CLOCK,
    FIRST_NS,
    HEAD_WORDS,
    LAST_CLOCK,
    LAST_NS,
    MASK,
    MEASURED_RECORDS,
    MOST_WARPS,
    RECORD_TICKS,
    SM,
    TRACK_WORDS,
    WARPS,
    WORD_BYTES,
    RecordForm,
)

if TYPE_CHECKING:
    import numpy as np

#: Memory that the buffer of one launch may take.
MOST_BYTES = 1 << 30
#: Of the rings of a launch, and of one.
_USUAL_BYTES = 64 << 20
_USUAL_RING_BYTES = 2048


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """How to record. ``bytes_per_program``: of rings, all warps of a program together; 0 for as much as is usual.
    ``warps``: which ones record, on a GPU; None for all. ``form``: that of kernels that are compiled from now on."""

    bytes_per_program: int = 0
    warps: tuple[int, ...] | None = None
    form: RecordForm = RecordForm()

    def ring(self, programs: int, warps: int, form: RecordForm) -> int:
        """Records of the ring of each warp in a kernel of this form: a power of two, and a block at least. Raises
        LaunchError where the buffer would be too large."""
        if self.bytes_per_program:
            size = self.bytes_per_program // warps
        else:
            size = min(_USUAL_RING_BYTES, _USUAL_BYTES // (programs * warps))
        length = 1 << max(size // form.record_bytes, BLOCK_RECORDS).bit_length() - 1
        size = WORD_BYTES * words_of(programs * warps, length, form)
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
    ones that the ring had no room for. ``sm``: the number of the SM that ran it, 0 on a CPU.

    ``first_clock`` and ``last_clock`` are of its beginning and end, in ticks; ``first_ns`` and ``last_ns`` are those on
    a timer that all SMs share, 0 where there is none. ``doubtful``: more time passed somewhere than the clock
    of a record can tell.
    """

    program: int
    warp: int
    sm: int
    first_clock: int
    last_clock: int
    first_ns: int
    last_ns: int
    lost: int
    marks: tuple[RecordedMark, ...]
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRecords:
    """What a launch recorded. ``scopes`` are paths by number; tracks without any record are left out, but
    ``all_tracks`` counts them. ``ticks_per_ns``: of the clock, where the launcher could tell. ``record_ticks``: what a
    record took at least, 0 where that was not measured."""

    scopes: tuple[tuple[str, ...], ...]
    tracks: tuple[Track, ...]
    all_tracks: int
    warps: int
    ticks_per_ns: float | None = None
    record_ticks: int = 0

    @property
    def lost(self) -> int:
        """Records that there was no room for."""
        return sum(track.lost for track in self.tracks)

    @property
    def doubtful(self) -> int:
        """Tracks whose times may be wrong."""
        return sum(track.doubtful for track in self.tracks)


def words_of(tracks: int, ring: int, form: RecordForm) -> int:
    """Words of a buffer."""
    return HEAD_WORDS + tracks * (TRACK_WORDS + ring * form.record_bytes // WORD_BYTES)


def head_of(settings: RecordSettings, ring: int) -> np.ndarray:
    """The head of a buffer, which is repeated over all of it, tracks beginning at multiples of its length: they say
    then that they have no records, as it is zero but for the first two words."""
    import numpy as np  # lazy: a launch without records has no use for it

    head = np.zeros(HEAD_WORDS, np.int64)
    head[MASK] = ring - 1
    chosen = range(MOST_WARPS) if settings.warps is None else settings.warps
    head.view(np.uint64)[WARPS] = sum(1 << warp for warp in chosen)
    return head


def read_buffer(
    words: np.ndarray, recipe: LaunchRecipe, warps: int, ticks_per_ns: float | None = None
) -> LaunchRecords:
    """What a launch left in its buffer (i64); ``warps``: tracks of each program."""
    form = recipe.records
    ring = (int(words[MASK]) + 1) * form.record_bytes // WORD_BYTES
    tracks = words[HEAD_WORDS:].reshape(-1, TRACK_WORDS + ring)
    clock_bits = form.clock_bits(max(len(recipe.scopes), 1))
    used = [number for number in range(len(tracks)) if tracks[number, COUNT]]
    made = tuple(_track(number, warps, tracks[number], form, clock_bits) for number in used)
    taken = min((int(tracks[number, RECORD_TICKS]) for number in used), default=0) if form.measured else 0
    return LaunchRecords(recipe.scopes, made, len(tracks), warps, ticks_per_ns, round(taken / MEASURED_RECORDS))


def _track(number: int, warps: int, words: np.ndarray, form: RecordForm, clock_bits: int) -> Track:
    import numpy as np

    about = [int(word) for word in words[:TRACK_WORDS]]
    ring = words[TRACK_WORDS:].view(np.uint32 if form.short else np.uint64)
    count, first, last = about[COUNT], about[FIRST_CLOCK], about[LAST_CLOCK]
    lost = max(0, count - len(ring))
    newest = ring[np.arange(lost, count) % len(ring)].astype(np.uint64)
    clocks = _full_clocks(newest, first, last, clock_bits)
    tags = (newest >> np.uint64(clock_bits)).tolist()
    marks = tuple(RecordedMark(tag >> 1, not tag & 1, clock) for tag, clock in zip(tags, clocks, strict=True))
    return Track(
        number // warps,
        number % warps,
        about[SM],
        first,
        last,
        about[FIRST_NS],
        about[LAST_NS],
        lost,
        marks,
        doubtful=not lost and clocks[0] >> clock_bits != 0,
    )


def _full_clocks(records: np.ndarray, first: int, last: int, clock_bits: int) -> list[int]:
    """The clocks of ``records`` (u64), oldest first, in ticks since ``first``: each is less than 2**clock_bits before
    the next one, and the newest before ``last``.

    If more passed anywhere, all before comes out later than it was; the oldest then is more than that behind ``first``.
    """
    import numpy as np

    below = np.uint64((1 << clock_bits) - 1)
    gaps = (np.append(records[1:], np.uint64(last & int(below))) - records) & below
    until_last = np.cumsum(gaps[::-1])[::-1]
    return (last - first - until_last.astype(np.int64)).tolist()  # type: ignore[no-any-return]
