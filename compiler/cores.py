"""The processor cores that this process may use: by its affinity, and by the share of time that its container has."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

#: Where Linux says how many microseconds of processor time a container has in a period of so many (cgroup v2, cpu.max).
_SHARE = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores that this process may run on at the same time. Of a container's share of time, whole cores: threads beyond
    them make it wait for its next period."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, share_of_cores(_SHARE) or cores)


@cache
def share_of_cores(path: Path) -> int | None:
    """What ``path``, a cgroup's cpu.max, allows, in cores, rounded up; None where it is not there or says nothing."""
    try:
        quota, period = path.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no Linux, no container, or "max"
        return None


class Cores(NamedTuple):
    """Where the calling thread may run, and those but for the one where it does."""

    all: set[int]
    beside: set[int]


def cores_beside() -> Cores | None:
    """The cores for a thread that shall run beside the calling one. None where the system does not say, or there is no
    other."""
    where = _core_asked()
    if where is None or not hasattr(os, "sched_getaffinity"):
        return None
    cores = os.sched_getaffinity(0)
    beside = cores - {where()}
    return Cores(cores, beside) if beside else None


@cache
def _core_asked() -> Callable[[], int] | None:
    """The C library's function that says on which core a thread runs."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    return getattr(library, "sched_getcpu", None)
