"""A tuning job as data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec import UNSET, UnsetType, field
from msgspec.structs import force_setattr, replace

from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype

from .codec import Document, Finite, canonical_json, expect_object, without_nulls
from .errors import JobError, SchemaError
from .strategies import DEFAULT_STRATEGY
from .workloads import Problem, WorkloadSpec, workload_from_json

MAX_SHAPES = 256
#: Of jobs that say nothing of a budget.
DEFAULT_TRIALS = 100
MAX_SEED = 2**32 - 1


class Budget(Document, frozen=True, forbid_unknown_fields=True):
    """When to stop. ``trials``: configurations screened per shape and dtype, the default included; None is the whole
    space. ``seconds``: for the whole job, shared evenly by what is left to tune; None is no limit. They end
    screening and timing; the trial under way, and processes, checks and least rounds of race and final, come on top.
    ``settle``: a shape also ends when the strategy says that nothing more is to be won."""

    noun: ClassVar[str] = "budget"

    trials: int | None = DEFAULT_TRIALS
    seconds: Finite | None = None
    settle: bool | UnsetType = UNSET  # left out of the JSON unless set: digests of jobs without it stay as they were

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise JobError(f"a budget of {self.trials} trials", hint="at least 1")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise JobError(
                f"a budget of {self.seconds} seconds", hint="more than 0; without --seconds there is no limit"
            )

    def share(self, part: float) -> Budget:
        """The budget of a part of the searches, such as 0.5 for half of them."""
        return self if self.seconds is None else replace(self, seconds=self.seconds * part)

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """A limit that is left out is no limit."""
        return {"trials": None, **expect_object(value, where)}


class JobSpec(Document, frozen=True, forbid_unknown_fields=True):
    """Tune ``workload`` for every shape and dtype on ``device`` ("cpu", "cuda:0"). A shape or dtype that is given twice
    is there once; dtypes may have Triton's, NumPy's or torch's names.

    ``strategy``: a name of :data:`deuteron.tuner.strategies.STRATEGIES`. The same ``seed`` gives the same proposals.
    Raises :class:`JobError`, :class:`~.errors.WorkloadError` when shapes or dtypes do not fit the workload.
    """

    noun: ClassVar[str] = "job"

    workload: WorkloadSpec
    shapes: tuple[Mapping[str, int], ...]
    dtypes: tuple[str, ...]
    device: str = "cpu"
    budget: Budget = field(default_factory=Budget)
    strategy: str = DEFAULT_STRATEGY
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.shapes or not self.dtypes:
            raise JobError(
                "a job names at least one shape and one dtype",
                hint=f"dims of {self.workload.name}: {', '.join(self.workload.dims)}",
            )
        force_setattr(self, "shapes", _each_once(self.shapes))
        force_setattr(self, "dtypes", tuple(dict.fromkeys(map(_own_name, self.dtypes))))
        if len(self.shapes) * len(self.dtypes) > MAX_SHAPES:
            raise JobError(f"a job has at most {MAX_SHAPES} pairs of shape and dtype", hint="several jobs")
        if not 0 <= self.seed <= MAX_SEED:
            raise JobError(f"the seed {self.seed}", hint=f"0 to {MAX_SEED}")
        for _ in self.problems():
            pass

    def problems(self) -> Iterator[Problem]:
        """Every shape in every dtype, in order."""
        for shape in self.shapes:
            for dtype in self.dtypes:
                yield Problem(self.workload, shape, dtype)

    def split(self, jobs: int) -> list[JobSpec]:
        """The same searches as ``jobs`` jobs, or one for each shape where there are fewer: shapes are dealt out from
        the most operations to the fewest, there and back again, so that jobs take about as long as each other; seconds
        are as the shapes are. What workers side by side can take.

        Raises:
            JobError: ``jobs`` is less than one.
        """
        if jobs < 1:
            raise JobError(f"{jobs} jobs", hint="at least 1")
        if jobs == 1:
            return [self]
        hands: list[list[Mapping[str, int]]] = [[] for _ in range(min(jobs, len(self.shapes)))]
        turns = itertools.cycle([*hands, *reversed(hands)])
        for shape in sorted(self.shapes, key=lambda shape: -Problem(self.workload, shape, self.dtypes[0]).flops):
            next(turns).append(shape)
        return [
            replace(self, shapes=tuple(hand), budget=self.budget.share(len(hand) / len(self.shapes))) for hand in hands
        ]

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """``shapes`` and ``dtypes`` left out are the workload's suite and its first dtype."""
        fields = without_nulls(value, where)
        if "workload" not in fields:
            raise SchemaError(f"{where}: the field 'workload' is missing")
        workload = workload_from_json(fields["workload"], f"{where}.workload")
        if "budget" in fields:
            fields["budget"] = Budget.from_json(fields["budget"], f"{where}.budget")
        return {"shapes": workload.shapes, "dtypes": workload.dtypes[:1], **fields, "workload": workload}


def _each_once(shapes: Iterable[Mapping[str, int]]) -> tuple[Mapping[str, int], ...]:
    """A shape has one search and one record; lists that programs write repeat some."""
    found: dict[str, Mapping[str, int]] = {}
    for shape in shapes:
        found.setdefault(shape_key(shape), shape)
    return tuple(found.values())


def _own_name(dtype: str) -> str:
    try:
        return canonical_dtype(dtype)
    except LaunchError:  # the workload says which ones it has
        return dtype


def shape_key(shape: Mapping[str, int]) -> str:
    """The canonical text of a shape: ``K=512,M=512,N=512``, dims sorted by name."""
    return ",".join(f"{dim}={shape[dim]}" for dim in sorted(shape))


def parse_shape(text: str) -> dict[str, int]:
    """Read ``M=512,N=512``; raises :class:`SchemaError`."""
    shape: dict[str, int] = {}
    for part in text.split(","):
        dim, equals, size = part.strip().partition("=")
        number = size.strip().replace("_", "")
        # 2^64 has 20 digits, and Python refuses to read thousands of them.
        if not equals or not dim.strip() or not (number.isascii() and number.isdecimal()) or len(number) > 20:
            raise SchemaError(f"{part.strip()!r} in the shape {text!r} is not a size", hint="M=512")
        if dim.strip() in shape:
            raise SchemaError(f"the shape {text!r} has {dim.strip()} twice", hint="M=512,N=512")
        shape[dim.strip()] = int(number)
    return shape


def task_key(shape: Mapping[str, int], dtype: str) -> str:
    """Identifies one shape and dtype within a job."""
    return canonical_json([shape_key(shape), dtype])
