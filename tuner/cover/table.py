"""Shapes, configurations, and the times that were measured of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from ..errors import TunerError
from ..experience import SearchLog
from ..job import shape_key
from ..measure.statistics import Interval
from ..space import Configuration, config_key

Shape = Mapping[str, int]
#: The lowest and the highest that a value may be, by what was measured.
Range: TypeAlias = tuple[float, float]


class CoverError(TunerError):
    """No set of configurations can be chosen: nothing was measured, or what is asked for is impossible."""


@dataclass(frozen=True)
class TimeTable:
    """``times[s][c]``: the median time in ns of configuration ``c`` at shape ``s``, for the pairs that were measured.

    Times of one shape are on one scale and are compared with each other, never with those of another shape.
    ``weights``: what a shape's loss counts in means, positive. ``ranges[s][c]``: the ends of the interval of a time, of
    those that have one. All shapes have one dtype, and one device.
    """

    shapes: tuple[Shape, ...]
    configs: tuple[Configuration, ...]
    times: tuple[Mapping[int, float], ...]
    weights: tuple[float, ...]
    ranges: tuple[Mapping[int, Range], ...] = ()

    def __post_init__(self) -> None:
        if not self.shapes or any(not row for row in self.times):
            raise CoverError("there is a shape that nothing was measured at" if self.shapes else "there is no shape")
        if len({shape_key(shape) for shape in self.shapes}) < len(self.shapes):
            raise CoverError("a shape is there twice")
        numbers = (*self.weights, *(time for row in self.times for time in row.values()))
        if not all(0 < number < math.inf for number in numbers):
            raise CoverError("times and weights are positive numbers")

    def loss(self, shape: int, config: int) -> float | None:
        """How much slower than the best one measured a configuration is at a shape, 0.03 for 3 %; None where the pair
        was not measured."""
        return self.losses[shape].get(config)

    def loss_of(self, shape: int, config: Configuration) -> float | None:
        """:meth:`loss` of a configuration by names, values and types; raises KeyError for one that the table lacks."""
        return self.loss(shape, self._numbers[config_key(config)])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {config_key(config): number for number, config in enumerate(self.configs)}

    def loss_range(self, shape: int, config: int) -> Range | None:
        """What :meth:`loss` may be by the ends of the intervals of both times; None where either is not known, or says
        nothing."""
        best, known = self.best(shape), self.ranges[shape] if self.ranges else {}
        if config == best:
            return 0.0, 0.0
        if config not in known or best not in known:
            return None
        (fastest, slowest), (low, high) = known[best], known[config]
        most = high / fastest - 1
        return (max(0.0, low / slowest - 1), most) if most < math.inf else None

    @cached_property
    def losses(self) -> tuple[Mapping[int, float], ...]:
        """:meth:`loss` of every pair that was measured, by shape."""
        best = [min(row.values()) for row in self.times]
        return tuple({c: t / least - 1 for c, t in row.items()} for row, least in zip(self.times, best, strict=True))

    def best(self, shape: int) -> int:
        """The fastest configuration at a shape; of equal ones the first of its row, where searches put who was measured
        most."""
        return min(self.times[shape], key=self.times[shape].__getitem__)

    def winners(self) -> tuple[int, ...]:
        """The configurations that are the best of a shape, in order."""
        return tuple(sorted({self.best(shape) for shape in range(len(self.shapes))}))

    def missing(self, configs: Iterable[int]) -> list[tuple[int, int]]:
        """Pairs of a shape and one of ``configs`` that were not measured."""
        chosen = list(configs)
        return [(s, c) for s, row in enumerate(self.times) for c in chosen if c not in row]

    def weighted(self, weights: Mapping[str, float]) -> TimeTable:
        """The table with weights by :func:`~..job.shape_key`; raises CoverError for a shape that it does not have."""
        keys = [shape_key(shape) for shape in self.shapes]
        for key in weights:
            if key not in keys:
                raise CoverError(f"no shape {key} was measured", hint=f"measured: {', '.join(keys)}")
        return replace(self, weights=tuple(weights.get(key, w) for key, w in zip(keys, self.weights, strict=True)))

    def only(self, places: Sequence[int]) -> TimeTable:
        """The table of the shapes at these places, in this order."""
        rows = tuple(self.times[place] for place in places), tuple(self.weights[place] for place in places)
        ranges = tuple(self.ranges[place] for place in places) if self.ranges else ()
        return TimeTable(tuple(self.shapes[place] for place in places), self.configs, *rows, ranges)

    def with_times(self, shape: int, times: Mapping[int, Interval]) -> TimeTable:
        """The table with more times of one shape, on the scale of its others."""
        found = {config: time.median for config, time in times.items()}
        ends = {config: (time.low, time.high) for config, time in times.items()}
        rows = [{**row, **found} if index == shape else row for index, row in enumerate(self.times)]
        held = self.ranges or ({},) * len(self.shapes)
        ranges = [{**row, **ends} if index == shape else row for index, row in enumerate(held)]
        return replace(self, times=tuple(rows), ranges=tuple(ranges))


def table_of_logs(logs: Sequence[SearchLog], *, dtype: str | None = None, device: str | None = None) -> TimeTable:
    """The table of the searches of one kernel, in one dtype on one device. Of several searches of a shape the one that
    measured most counts: times of different searches are not compared.

    Raises:
        CoverError: there are none of these, or of several dtypes, devices or dims.
    """
    timed = [log for log in logs if any(one.time_ns is not None for one in log.known)]
    kept = [log for log in timed if dtype in (None, log.dtype) and device in (None, log.device)]
    if not kept:
        known = ", ".join(sorted({f"{log.dtype} on {log.device}" for log in logs})) or "nothing"
        raise CoverError("no shape was measured", hint=f"known: {known}")
    for what, found in (("dtype", {log.dtype for log in kept}), ("device", {log.device for log in kept})):
        if len(found) > 1:
            raise CoverError(f"there are several {what}s: {', '.join(sorted(found))}", hint=f"--{what} names one")
    if len({frozenset(log.shape) for log in kept}) > 1 or len({log.kernel_hash for log in kept if log.kernel_hash}) > 1:
        raise CoverError("these are searches of different kernels of one name", hint="name a journal of one of them")
    chosen: dict[str, SearchLog] = {}
    for log in kept:
        held = chosen.get(shape_key(log.shape))
        if held is None or len(log.known) > len(held.known):
            chosen[shape_key(log.shape)] = log
    places: dict[str, int] = {}
    configs: list[Configuration] = []
    rows: list[dict[int, float]] = []
    ranges: list[dict[int, Range]] = []
    for log in chosen.values():
        row: dict[int, float] = {}
        ends: dict[int, Range] = {}
        for one in log.known:
            if one.time_ns is None:
                continue
            key = config_key(one.config)
            if key not in places:
                places[key] = len(configs)
                configs.append(dict(one.config))
            row[places[key]] = one.time_ns
            if one.range_ns is not None:
                ends[places[key]] = one.range_ns
        rows.append(row)
        ranges.append(ends)
    shapes = tuple(dict(log.shape) for log in chosen.values())
    return TimeTable(shapes, tuple(configs), tuple(rows), (1.0,) * len(shapes), tuple(ranges))
