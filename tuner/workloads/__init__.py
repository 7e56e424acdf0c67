"""What is tuned: a kernel, its arguments, a reference, FLOP and byte formulas, a space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from ..codec import Document
from ..errors import WorkloadError
from . import builtin
from .problem import LaunchPlan, Problem
from .spec import KernelText, Tensor, WorkloadSpec
from .tolerance import TOLERANCES, Tolerance

__all__ = [
    "BUILTINS",
    "TOLERANCES",
    "KernelText",
    "Problem",
    "Tensor",
    "Tolerance",
    "LaunchPlan",
    "WorkloadSpec",
    "builtin_workload",
    "workload_from_json",
]


class WorkloadName(Document, frozen=True, forbid_unknown_fields=True):
    """Stands for a built-in workload where a job is described: ``{"builtin": "softmax"}``."""

    builtin: str


BUILTINS: dict[str, Callable[[], WorkloadSpec]] = {
    "vector_add": builtin.vector_add,
    "softmax": builtin.softmax,
    "layer_norm": builtin.layer_norm,
    "matmul": builtin.matmul,
}


@cache
def builtin_workload(name: str) -> WorkloadSpec:
    """The built-in workload of that name; raises :class:`WorkloadError` naming those there are."""
    if name not in BUILTINS:
        raise WorkloadError(f"unknown workload {name!r}", hint=f"one of {', '.join(BUILTINS)}")
    return BUILTINS[name]()


def workload_from_json(value: object, where: str = WorkloadSpec.noun) -> WorkloadSpec:
    """A workload out of parsed JSON, described or named. Raises :class:`~..errors.SchemaError`,
    :class:`WorkloadError`."""
    if isinstance(value, Mapping) and value.get("builtin") is not None:
        return builtin_workload(WorkloadName.from_json(value, where).builtin)
    return WorkloadSpec.from_json(value, where)
