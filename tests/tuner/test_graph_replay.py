"""Short launches in graphs, on a simulated device: which are timed so, and what becomes of the times."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from deuteron.compiler.errors import DeviceError
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.tuner.evaluate.messages import Race, Raced
from deuteron.tuner.evaluate.session import ChildSession
from deuteron.tuner.measure.graph_replay import LAUNCHES, MOST_NS, ROUNDS, SHORT_NS, replayed, short_ones
from deuteron.tuner.races import _replays_of_timed
from deuteron.tuner.workloads.tolerance import Comparison


class Device:
    """Each launch takes ``own`` ns and, from the host, as long as the host takes; events resolve half a microsecond."""

    HOST_NS = 5_000.0
    name = "cuda:0"
    properties = DeviceProperties("simulated", "cuda")

    def __init__(self, *, graphs: bool = True, refuses: str = "") -> None:
        self.now, self.graphs, self.refuses, self.captured = 0.0, graphs, refuses, 0

    def kernel(self, name: str, own: float) -> Callable[[], None]:
        def launch() -> None:
            if self.captured and name == self.refuses:
                raise DeviceError("a launch that allocates cannot be captured")
            self.now += own if self.captured else max(own, self.HOST_NS)

        return launch

    def repeated(self, launch: Callable[[], None], times: int) -> Callable[[], None] | None:
        if not self.graphs:
            return None
        before = self.now
        self.captured += 1
        try:
            for _ in range(times):
                launch()
        finally:
            self.captured -= 1
        took, self.now = self.now - before, before

        def run() -> None:
            self.now += took

        return run

    def timer(self) -> Device:
        return self

    def start(self) -> None:
        self.began = self.now

    def stop(self) -> None:
        self.ended = self.now

    def elapsed_ns(self) -> int:
        return round((self.ended - self.began) / 500) * 500

    def flush_l2(self) -> None: ...

    def held_back(self, rest_ns: float = 0.0) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronize(self) -> None: ...

    def clocks(self) -> None: ...


def test_a_graph_tells_what_the_device_takes_and_not_the_host() -> None:
    device = Device()
    times = replayed(device, [device.kernel("a", 1_300.0), device.kernel("b", 2_000.0)], seed=1)
    assert times is not None and [len(values) for values in times] == [ROUNDS, ROUNDS]
    assert times[0] == pytest.approx([1_300.0] * ROUNDS, abs=250 / LAUNCHES) and set(times[1]) == {2_000.0}


@pytest.mark.parametrize("device", [Device(graphs=False), Device(refuses="b")])
def test_where_a_launch_cannot_be_captured_there_are_no_times(device: Device) -> None:
    assert replayed(device, [device.kernel("a", 1.0), device.kernel("b", 1.0)], seed=1) is None


def test_short_are_medians_below_the_limit() -> None:
    assert short_ones([[2 * SHORT_NS] * 9, [SHORT_NS - 1] * 5 + [9 * SHORT_NS] * 4, []]) == [1]
    assert short_ones([[SHORT_NS] * 9, []]) == short_ones([]) == []


def test_replays_end_although_launches_are_not_short_in_graphs() -> None:
    """As where they wait for memory that those before them write; the median that they were chosen by was another."""
    device = Device()
    times = replayed(device, [device.kernel("a", 1_000.0), device.kernel("b", MOST_NS / 50)], seed=1)
    assert times is not None and [len(values) for values in times] == [3, 3]
    assert device.now < 2.5 * MOST_NS


def test_times_in_graphs_belong_to_the_candidates_that_were_timed() -> None:
    raced = Raced("ok", times=[[1.0], [], [3.0]], errors=[None, "wrong", None], replays=[[10.0], [], [30.0]])
    assert _replays_of_timed(raced) == [[10.0], [30.0]]
    assert _replays_of_timed(Raced("ok", times=[[1.0]], errors=[None])) == []


class Checker:
    """Configurations that say how long they take, and whether they are wrong."""

    reference = "simulated"

    def __init__(self, device: Device) -> None:
        self.device = device

    def check(self, config: dict[str, float]) -> Comparison:
        return Comparison(2.0, "wrong") if config.get("wrong") else Comparison(0.0)

    check_often = check

    def damage(self) -> None: ...

    def launch(self, config: dict[str, float]) -> Callable[[], None]:
        return self.device.kernel("simulated", config["ns"])


def test_only_short_candidates_run_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a default that takes a fifth of a second each of its graphs would take seconds."""
    device, session = Device(), ChildSession()
    monkeypatch.setattr(session, "_ready", lambda: (Checker(device), device))
    configs = ({"ns": 250e6}, {"ns": 9e3, "wrong": 1}, {"ns": 12e3}, {"ns": SHORT_NS})
    raced = session.race(Race(configs, rounds=9, seconds=0.0, seed=1, final=True))
    assert raced.status == "ok" and [bool(times) for times in raced.times] == [True, False, True, True]
    assert raced.replays == [[], [], [12e3] * ROUNDS, []]
    assert session.race(Race(configs[2:], rounds=9, seconds=0.0, seed=1, final=False)).replays == []
    assert session.race(Race(configs[::3], rounds=9, seconds=0.0, seed=1, final=True)).replays == []
