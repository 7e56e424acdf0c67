"""Measuring what a cover would otherwise not know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..evaluators import EvaluatorFactory, local_evaluators
from ..experience.phases import scaled
from ..job import shape_key
from ..measure.statistics import Interval, paired_ratio
from ..workloads import Problem, WorkloadSpec
from .table import CoverError, TimeTable

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

#: Rounds of a race at most, and its seconds for each configuration.
ROUNDS, SECONDS = 200, 1.0


def measure_missing(
    table: TimeTable,
    pairs: Iterable[tuple[int, int]],
    *,
    workload: WorkloadSpec,
    dtype: str,
    device: Device,
    evaluator: EvaluatorFactory | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> TimeTable:
    """The table with times of ``pairs`` (shape, configuration), checked and raced against the shape's best one.

    Only ratios within a race are used: the time of a pair is the best one's, times that ratio. What does not compile,
    or gives a wrong result, stays missing, and is told.

    Raises:
        CoverError: a race fails as a whole.
        DeuteronError: the workload does not fit a shape, or the device is not there.
    """
    by_shape: dict[int, list[int]] = {}
    for shape, config in pairs:
        by_shape.setdefault(shape, []).append(config)
    with local_evaluators(device.name) if evaluator is None else nullcontext(evaluator) as make:
        for number, (shape, configs) in enumerate(by_shape.items(), start=1):
            tell(f"{number}/{len(by_shape)}: {len(configs)} configurations at {shape_key(table.shapes[shape])}")
            problem = Problem(workload, table.shapes[shape], dtype)
            table = table.with_times(shape, _raced(table, shape, configs, problem, device, make, tell))
    return table


def _raced(
    table: TimeTable,
    shape: int,
    configs: list[int],
    problem: Problem,
    device: Device,
    make: EvaluatorFactory,
    tell: Callable[[str], None],
) -> Mapping[int, Interval]:
    best = table.best(shape)
    default = problem.default(problem.full_space(device.properties), device.properties.kind)
    evaluator = make(problem, device, default, 0)
    try:
        sound = [best]
        for config in configs:
            evaluator.submit(table.configs[config])
            compiled = evaluator.compiled(table.configs[config])
            if compiled.status == "ok":
                sound.append(config)
            else:
                tell(f"not measured, {compiled.status}: {dict(table.configs[config])} {compiled.error or ''}".rstrip())
        chosen = [table.configs[config] for config in sound]
        raced = evaluator.race(chosen, rounds=ROUNDS, seconds=SECONDS * len(chosen), seed=1, fresh=True)
    finally:
        evaluator.close()
    if raced.status != "ok" or not raced.times or not raced.times[0]:
        why = raced.error or next((error for error in raced.errors if error), "no time was taken")
        raise CoverError(f"the configurations cannot be compared at {shape_key(problem.dims)}: {why}")
    found = {}
    for config, times, error in zip(sound[1:], raced.times[1:], raced.errors[1:], strict=True):
        if times:
            found[config] = scaled(paired_ratio(times, raced.times[0]), table.times[shape][best])
        else:
            tell(f"not measured: {dict(table.configs[config])} {error or ''}".rstrip())
    return found
