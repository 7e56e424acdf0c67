"""From earlier searches of a kernel to predictors, one for each device, dtype and toolchain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from deuteron.compiler.errors import TargetError
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.target import Target

from ..codec import canonical_json
from ..cover import TimeTable, table_of_logs
from ..experience import SearchLog
from ..job import shape_key
from ..records import DeviceFingerprint
from ..records.predictor import Predictor
from ..space import Configuration, Space
from ..workloads import Problem, WorkloadSpec
from .training import LEAST_SHAPES, LearnError, RankedKernel, grow, rank, rows_of_table
from .validation import cross_validate, leave_one_out


@dataclass(frozen=True)
class SearchGroup:
    """The searches of one kernel's text on one device, in one dtype, with one toolchain."""

    device: DeviceFingerprint
    dtype: str
    toolchain: Mapping[str, str]
    logs: tuple[SearchLog, ...]

    @property
    def shapes(self) -> int:
        """How many shapes were searched."""
        return len({canonical_json(dict(log.shape)) for log in self.logs})

    def __str__(self) -> str:
        return f"{self.dtype} on {self.device.key}"


def groups_of_logs(logs: Iterable[SearchLog], kernel_hash: str) -> list[SearchGroup]:
    """The searches of this text of the kernel, arranged by what their times may be compared within; largest first.

    Raises:
        SchemaError: a search is of a device that is none.
    """
    found: dict[tuple[str, str, str], list[SearchLog]] = {}
    for log in logs:
        if log.kernel_hash == kernel_hash and log.known:
            key = (log.device, log.dtype, canonical_json(dict(log.toolchain)))
            found.setdefault(key, []).append(log)
    groups = [
        SearchGroup(DeviceFingerprint.from_key(device), dtype, held[0].toolchain, tuple(held))
        for (device, dtype, _), held in found.items()
    ]
    return sorted(groups, key=lambda group: (-group.shapes, group.device.key, group.dtype))


def learn(group: SearchGroup, workload: WorkloadSpec, tell: Callable[[str], None] = lambda line: None) -> Predictor:
    """The predictor of a group. What it is worth is in its ``accuracy``: lookups use it only if that ``pays``.

    Raises:
        LearnError: too few shapes were measured, or no two of them have a configuration in common.
        CoverError: the searches are over different dims.
        MissingExtra: LightGBM is not installed.
    """
    table = table_of_logs(group.logs)
    if len(table.shapes) < LEAST_SHAPES:
        raise LearnError(
            f"{group}: {len(table.shapes)} shapes were measured; at least {LEAST_SHAPES} are needed",
            hint="tune more shapes, and name all of their folders with --from",
        )
    kernel = kernel_of_workload(workload, table.shapes[0], group.dtype, group.device)
    table = _of_space(table, kernel.space)

    preferred = workload.default_for(group.device.kind)

    def default(place: int) -> Configuration | None:
        return kernel.space.bind(table.shapes[place]).nearest(preferred)

    accuracy = cross_validate(list(leave_one_out(table, kernel, default, tell)))
    rows = rows_of_table(table, kernel)
    ranking = rank(table, kernel, rows, grow(rows), range(len(table.shapes)))
    return Predictor(
        kernel_name=group.logs[0].kernel_name,
        kernel_hash=group.logs[0].kernel_hash,
        device=group.device,
        dtype=group.dtype,
        toolchain=group.toolchain,
        shapes=table.shapes,
        trials=len(rows.target),
        ranking=ranking,
        accuracy=accuracy,
        dims_from_arguments=dict(workload.dims_from_arguments),
        dtype_argument=workload.dtype_argument,
    )


def kernel_hash_of(workload: WorkloadSpec) -> str:
    """The hash that searches of a workload's kernel are known by."""
    from deuteron.compiler.source.kernel import KernelSource  # lazy: the language takes 90 ms

    kernel = workload.kernel
    return KernelSource.from_text(kernel.source, kernel.name, kernel.filename).hash


def kernel_of_workload(
    workload: WorkloadSpec, shape: Mapping[str, int], dtype: str, device: DeviceFingerprint
) -> RankedKernel:
    """What a workload says of its kernel in a dtype on a device; ``shape`` is any that it may have.

    Raises:
        WorkloadError: the workload has no such dtype, or no space for this kind of device.
    """
    problem = Problem(workload, shape, dtype)
    space = problem.full_space(_properties(device))
    constants = {name: value for name, value in space.constants.items() if name not in workload.dims}
    return RankedKernel(workload.dims, replace(space, constants=constants), workload.grid)


def _properties(device: DeviceFingerprint) -> DeviceProperties:
    """What a space is bound to; shared memory is that of the architecture."""
    shared = None
    if device.compute_capability is not None:
        with suppress(TargetError):
            shared = Target.parse("cuda:{}{}".format(*device.compute_capability)).shared_bytes
    kind: Literal["cpu", "cuda"] = "cpu" if device.kind == "cpu" else "cuda"
    return DeviceProperties(device.name, kind, sm_count=device.sm_count, shared_bytes_per_block=shared)


def _of_space(table: TimeTable, space: Space) -> TimeTable:
    """The table without configurations that the workload's space does not have: those of an older one, or of others.

    Raises:
        LearnError: nothing is left of a shape.
    """
    choices = replace(space, constraints=())
    known = {place for place, config in enumerate(table.configs) if not choices.violations(config)}
    rows = tuple({config: time for config, time in row.items() if config in known} for row in table.times)
    if not all(rows):
        shape = next(shape for shape, row in zip(table.shapes, rows, strict=True) if not row)
        raise LearnError(
            f"no configuration that was measured at {shape_key(shape)} is of the workload's space",
            hint="give the workload that was tuned",
        )
    return dataclasses.replace(table, times=rows)
