"""Work on large arrays on all cores: NumPy computes without the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

#: Elements that are worked on at once: what is in between stays in a cache, and takes no new memory.
CHUNK = 1 << 17
#: Chunks below which another thread costs more than it does, and threads above which memory is the limit.
LEAST_CHUNKS, MOST_LANES = 8, 8

Found = TypeVar("Found")


def in_lanes(work: Callable[[list[slice]], Found], size: int) -> list[Found]:
    """What ``work`` gives for consecutive parts of ``size`` elements, each cut into chunks, in their order."""
    chunks = [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]
    lanes = min(len(os.sched_getaffinity(0)), MOST_LANES, len(chunks) // LEAST_CHUNKS)
    if lanes < 2:
        return [work(chunks)]
    bounds = [len(chunks) * lane // lanes for lane in range(lanes + 1)]
    with ThreadPoolExecutor(lanes) as threads:
        return list(threads.map(work, [chunks[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]))
