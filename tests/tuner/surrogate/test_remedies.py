"""What proposals do about what bounds the best: learnt from facts of the code, and only said."""

from __future__ import annotations

import math
import random
from typing import get_args

import numpy as np
import pytest
from msgspec.structs import replace

from deuteron.tuner.measure.gauge import Gauge, Peaks
from deuteron.tuner.measure.measurement import Bound, CodeFacts, Measurement, TimingProtocol
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.space import Configuration, Parameter, Space
from deuteron.tuner.strategies import Outcome
from deuteron.tuner.strategies.surrogate import SurrogateStrategy
from deuteron.tuner.strategies.surrogate.encoding import Grid, Levels
from deuteron.tuner.strategies.surrogate.facts import FactModel
from deuteron.tuner.strategies.surrogate.remedies import REMEDIES, Remedies

SPACE = Space(
    (Parameter("BM", (16, 32, 64, 128)), Parameter("BN", (16, 32, 64, 128)), Parameter("warps", (1, 2, 4, 8)))
)
GRID = Grid(SPACE.parameters)
COLD = TimingProtocol("device", True, "first look")


def code_of(config: Configuration) -> CodeFacts:
    bm, bn, warps = (int(config[name]) for name in ("BM", "BN", "warps"))
    return CodeFacts(
        math.ceil(4096 / bm) * math.ceil(4096 / bn),
        threads=32 * warps,
        registers=bm * bn // (8 * warps),
        spill_bytes=0,
        shared_bytes=128 * bm * bn,
        slots=0,
        resident_programs=2,
        resident_warps=2 * warps,
        most_warps=64,
        limiter="registers",
    )


def measured(config: Configuration, bound: Bound | None, ns: float = 1000.0) -> Measurement:
    made = Gauge(1.0, 1.0, Peaks(), 132).measurement(Interval(ns, ns, ns, 3), COLD, code_of(config))
    return replace(made, bound=bound)


def row(**config: int) -> Levels:
    found = GRID.levels(config)
    assert found is not None
    return found


def learnt(bound: Bound | None, count: int = 20) -> Remedies:
    remedies = Remedies(FactModel(GRID))
    configs = random.Random(1).sample(list(SPACE.configurations()), count - 1)
    for config in [*configs, {"BM": 64, "BN": 64, "warps": 4}]:
        found = GRID.levels(config)
        assert found is not None
        remedies.learn(found, measured(config, bound))
    return remedies


def test_facts_of_unseen_configurations_are_predicted() -> None:
    """Products of parameters are sums of logarithms, which a dozen variants teach."""
    model = FactModel(GRID)
    every = list(SPACE.configurations())
    for config in random.Random(0).sample(every, 16):
        found = GRID.levels(config)
        assert found is not None
        model.learn(found, measured(config, None))
    rows = np.stack([found for config in every if (found := GRID.levels(config)) is not None])
    for fact in ("programs", "shared_bytes", "registers"):
        predicted = model.predicted(fact, rows)  # type: ignore[arg-type]
        true = np.array([math.log2(1 + getattr(code_of(config), fact)) for config in every])
        assert predicted is not None and np.abs(predicted - true).max() < 0.35


def test_too_few_variants_teach_nothing() -> None:
    model = FactModel(GRID)
    for config in list(SPACE.configurations())[:4]:
        found = GRID.levels(config)
        assert found is not None
        model.learn(found, measured(config, None))
    assert model.predicted("programs", row(BM=16, BN=16, warps=1)[None]) is None


@pytest.mark.parametrize(
    ("bound", "helps", "does_not", "words"),
    [
        ("registers", {"warps": 8}, {"warps": 2}, "fewer registers against few warps"),
        ("shared memory", {"BN": 32}, {"BN": 128}, "less shared memory against few warps"),
        ("parallelism", {"BM": 32}, {"BM": 128}, "more programs against an idle part of the device"),
        ("tail", {"BM": 32}, {"warps": 8}, "more programs against an unfilled last wave"),
        ("memory", {"BM": 128}, {"BM": 32}, "larger tiles against memory traffic"),
        ("latency", {"warps": 8}, {"BM": 32}, "more warps at once against latency"),
    ],
)
def test_a_remedy_moves_what_bounds_the_best(
    bound: Bound, helps: dict[str, int], does_not: dict[str, int], words: str
) -> None:
    remedies, best = learnt(bound), {"BM": 64, "BN": 64, "warps": 4}
    assert remedies.of(row(**best), row(**best | helps)) == words
    assert remedies.of(row(**best), row(**best | does_not)) is None


def test_every_bound_has_remedies_and_no_bound_has_none() -> None:
    assert set(REMEDIES) == set(get_args(Bound))
    assert learnt(None).of(row(BM=64, BN=64, warps=4), row(BM=32, BN=64, warps=4)) is None


def reasons_of_search(facts: bool) -> list[str | None]:
    strategy, reasons = SurrogateStrategy(SPACE, 3), []
    for _ in range(30):
        config = strategy.ask()
        assert config is not None
        time = 1000.0 + 50 * abs(math.log2(int(config["BM"])) - 5) + 30 * int(config["warps"])
        strategy.tell(config, Outcome(time, "ok", measured(config, "registers", time) if facts else None))
        reasons.append(strategy.reason(config))
    return reasons


def test_reasons_say_it_where_facts_are_told() -> None:
    assert any("fewer registers against few warps" in (reason or "") for reason in reasons_of_search(facts=True))
    assert not any("against" in (reason or "") for reason in reasons_of_search(facts=False))
