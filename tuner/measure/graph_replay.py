"""Times of short launches without the host between them: many in one CUDA graph, as serving engines run them.

A launch of a few microseconds that is timed alone, after its cache was flushed, is mostly waiting for memory and for
the launch itself. In a graph it follows others like it and finds its data in the cache. Neither is the truth about a
program, so both are told, and times of one protocol are never compared with those of the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from deuteron.compiler.errors import DeuteronError

from .sampling import Launch, TimedDevice
from .statistics import median_interval

#: Launches shorter than this are timed in graphs, too.
SHORT_NS = 20_000.0
#: Launches of a graph, so that its own start and the half microsecond that events resolve are shared by many; and how
#: often each graph runs. No round begins after the time: launches that are short when they are alone need not be so
#: after each other.
LAUNCHES, ROUNDS, MOST_NS = 20, 30, 250e6


class Repeating(TimedDevice, Protocol):
    """A device that may run a launch many times by itself."""

    def repeated(self, launch: Launch, times: int) -> Callable[[], None] | None:
        """A function that starts ``launch`` so many times in a row without the host; None where there is none."""
        ...


def short_ones(times: Sequence[Sequence[float]]) -> list[int]:
    """Which of the candidates with these times, in ns, are timed in graphs."""
    return [place for place, values in enumerate(times) if values and median_interval(values).median < SHORT_NS]


def replayed(device: Repeating, launches: Sequence[Launch], seed: int) -> list[list[float]] | None:
    """Nanoseconds a launch of each candidate, all of them short, in graphs that run in turns, in random order: one
    round at least. The launches must have run before. None where the device has no graphs or cannot capture one of
    them."""
    graphs: list[Callable[[], None]] = []
    with suppress(DeuteronError):
        graphs = [graph for graph in (device.repeated(launch, LAUNCHES) for launch in launches) if graph is not None]
    if len(graphs) < len(launches):
        return None
    for graph in graphs:
        graph()
    times: list[list[float]] = [[] for _ in graphs]
    rng, timer = random.Random(seed), device.timer()
    spent = 0.0
    for _ in range(ROUNDS):
        if spent > MOST_NS:
            break
        for index in rng.sample(range(len(graphs)), len(graphs)):
            timer.start()
            graphs[index]()
            timer.stop()
            took = max(timer.elapsed_ns(), 1)
            spent += took
            times[index].append(took / LAUNCHES)
    return times
