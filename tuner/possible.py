"""What can be known of a problem before anything is compiled: that some configuration is possible, and has room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import JobError
from .evaluate.child import physical_memory_bytes
from .evaluate.processes import MEASURING_PROCESSES
from .job import shape_key
from .workloads import Problem

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties


def check_possible(problem: Problem, properties: DeviceProperties) -> None:
    """Raise what the search of a problem would begin with, where no configuration is possible."""
    problem.variant(problem.default(problem.full_space(properties), properties.kind))


@dataclass(frozen=True)
class _Need:
    """Memory that measuring a problem takes in one process, and what there is; None where unknown."""

    where: str
    bytes: int
    there: int | None


def _needs(problem: Problem, properties: DeviceProperties) -> tuple[_Need, _Need]:
    return (
        _Need("on the device", problem.tensor_bytes, properties.memory_bytes),
        _host_need(problem),
    )


def _host_need(problem: Problem) -> _Need:
    return _Need("on the host to be checked", problem.host_bytes, physical_memory_bytes())


def has_room(problem: Problem, properties: DeviceProperties) -> bool:
    """Whether processes may prepare before they are needed; half of the memory stays free."""
    return all(2 * MEASURING_PROCESSES * need.bytes <= (need.there or 0) for need in _needs(problem, properties))


def check_room(problem: Problem, properties: DeviceProperties) -> None:
    """Raise :class:`JobError` for a shape whose tensors cannot fit, before anything is allocated."""
    for need in _needs(problem, properties):
        _check(problem, need)


def check_host_room(problem: Problem) -> None:
    """As :func:`check_room`, where nothing runs but the interpreter."""
    _check(problem, _host_need(problem))


def _check(problem: Problem, need: _Need) -> None:
    if need.there is not None and need.bytes > need.there:
        raise JobError(
            f"{shape_key(problem.dims)} {problem.dtype} needs {need.bytes / 2**30:.1f} GiB {need.where}, "
            f"there are {need.there / 2**30:.1f} GiB",
            hint="tune a smaller shape",
        )
