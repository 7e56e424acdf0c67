"""What files of other programs say of a kernel, as searches that a job starts from.

Whatever they claim is tried first and checked like everything else; their times are compared only with each other. What
they leave open (which size a number is, which GPU it was) is read in the light of the job. A new format is a
:class:`ForeignFormat` in a file of its own, named in :data:`.sources.FOREIGN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.compiler import SCHEDULE_OPTIONS

from ..codec import Scalar
from ..errors import TunerError

if TYPE_CHECKING:
    from ..job import JobSpec
    from .search_log import SearchLog


class SourceError(TunerError):
    """Earlier searches cannot be read from where they should be."""


@dataclass(frozen=True)
class ForeignFormat:
    """``find``: the files of this format that a path is or holds. ``read``: the logs in one of them, for a job; raises
    :class:`SourceError` for a file that is damaged or does not fit the job."""

    name: str
    find: Callable[[Path], list[Path]]
    read: Callable[[Path, JobSpec], list[SearchLog]]


#: Parameters of tiles that authors call by either name.
_SPELLINGS = (("BLOCK_SIZE_", "BLOCK_"), ("GROUP_SIZE_", "GROUP_"))


def adapted(config: Mapping[str, Scalar], job: JobSpec) -> dict[str, Scalar] | None:
    """A configuration over the parameters that the job searches: BLOCK_SIZE_M and BLOCK_M are the same one, those that
    it does not search are left out. A schedule option that the other program does not have is as in the default; None
    if a parameter of the kernel has no value, or NaN or infinity, which are none in JSON, though Python reads them."""
    kind = job.device.partition(":")[0]
    default = job.workload.default_for(kind)
    made: dict[str, Scalar] = {}
    for parameter in job.workload.space_for(kind).parameters:
        name = parameter.name
        found = [spelling for spelling in _spellings(name) if spelling in config]
        if not found and name not in SCHEDULE_OPTIONS:
            return None
        value = config[found[0]] if found else default.get(name, parameter.default)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        made[name] = value
    return made


def _spellings(name: str) -> list[str]:
    others = [
        to + name.removeprefix(of)
        for long, short in _SPELLINGS
        for of, to in ((long, short), (short, long))
        if name.startswith(of)
    ]
    return [name, *others]


def nothing_fits(path: Path, job: JobSpec) -> SourceError:
    """The error for a file none of whose configurations has the parameters of the job's space."""
    names = job.workload.space_for(job.device.partition(":")[0]).names
    return SourceError(
        f"{path}: no configuration has all parameters of the kernel that are searched", hint=", ".join(names)
    )
