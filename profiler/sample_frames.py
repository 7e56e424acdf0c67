"""Samples of program counters as frames of a tree: below the place of its launch the kernel's own frame, and in it one
for each source line, where lines are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .errors import CuptiError
from .session import ProfileTarget
from .sources.driver import device_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .sources.debug_lines import SourceLine
    from .sources.records import Samples
    from .sources.sampling import SamplingSource

_ALL = "num_samples"
_STALLED = "num_stalled_samples"


def sampling_source(period: int) -> SamplingSource:
    """A source that samples every 2 to the power of ``period`` cycles. Raises CuptiError where that cannot be."""
    if not device_count():
        raise CuptiError(
            "mode='pcsampling' needs an NVIDIA GPU and its driver; none was found",
            hint="leave mode out: launches on the CPU are timed",
        )
    from .sources.sampling import SamplingSource  # lazy: only where there is a GPU

    return SamplingSource(period)


def add_samples(
    samples: Samples,
    numbers: NDArray[np.uint32],
    targets_of: Callable[[int], Sequence[ProfileTarget]],
    name_at: Callable[[int], str],
) -> None:
    """Add samples to the frames of their kernels, or of the lines in these.

    ``numbers``: of each row the number of the place of its launch, for which ``targets_of`` has the targets;
    ``name_at``: the kernel's name at an address. Of a frame ``num_samples`` are all samples there,
    ``num_stalled_samples`` those at which the scheduler had no warp to go on with, and the others count by reason.
    """
    frames: dict[tuple[int, int, SourceLine | None], Counter[str]] = {}
    for number, module, offset, name, reason, count in _sums(samples.rows, numbers):
        table = samples.tables.get(module)
        place = number, name, table.at(offset) if table else None
        metrics = frames.setdefault(place, Counter({_ALL: 0, _STALLED: 0}))
        kind, not_issued = samples.reasons[reason]
        if not_issued:  # these are among those of the reason itself, too
            metrics[_STALLED] += count
        else:
            metrics[_ALL] += count
            metrics[kind] += count
    for (number, name, line), metrics in frames.items():
        kernel = name_at(name)
        for target in targets_of(number):
            below = (*(() if target.is_launch else (kernel,)), *((_frame(line, kernel),) if line else ()))
            profile = target.phase.profile
            profile.add_to(profile.descend(target.node, below), metrics)


def _sums(rows: NDArray[np.void], numbers: NDArray[np.uint32]) -> list[tuple[int, int, int, int, int, int]]:
    """Number of the place, module, offset, name, reason, and all samples of rows that have these."""
    import numpy as np

    keys = [numbers, *(rows[field] for field in ("module", "offset", "name", "reason"))]
    order = np.lexsort(keys)
    keys = [key[order] for key in keys]
    changes = np.ones(len(rows), bool)
    changes[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    first = np.flatnonzero(changes)
    sums = np.add.reduceat(rows["samples"][order], first)
    return list(zip(*(key[first].tolist() for key in keys), sums.tolist(), strict=True))


def _frame(line: SourceLine, kernel: str) -> str:
    return f"{line.file}:{line.line}@{kernel}"
