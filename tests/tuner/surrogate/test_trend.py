"""Facts of the code explain times: against dense formulas, and what a search makes of them."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from msgspec.structs import replace

from deuteron.tuner.measure.measurement import CodeFacts, Measurement, TimingProtocol
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.space import Configuration, Parameter, Space
from deuteron.tuner.strategies import Outcome
from deuteron.tuner.strategies.surrogate import Prior, SurrogateStrategy
from deuteron.tuner.strategies.surrogate.encoding import Grid, Levels
from deuteron.tuner.strategies.surrogate.facts import FactModel
from deuteron.tuner.strategies.surrogate.targets import Targets
from deuteron.tuner.strategies.surrogate.trend import LEAST_DEVIATION, SLOPES, trend

TILES = (8, 16, 32, 64, 128, 256)
SPACE = Space(
    (Parameter("BM", TILES), Parameter("BN", TILES), Parameter("warps", (1, 2, 4, 8)), Parameter("order", TILES))
)
GRID = Grid(SPACE.parameters)


def code_of(config: Configuration) -> CodeFacts:
    bm, bn, warps = (int(config[name]) for name in ("BM", "BN", "warps"))
    return CodeFacts((4096 // bm) * (4096 // bn), registers=min(255, bm * bn // (8 * warps)), resident_warps=2 * warps)


def measured(config: Configuration, ns: float = 1000.0, at_once: int = 132) -> Measurement:
    """On a device that holds so many programs ``at_once``."""
    cold, code = TimingProtocol("device", True, "first look"), code_of(config)
    return Measurement(Interval(ns, ns, ns, 3), cold, 0.0, 0.0, code=code, waves=code.programs / at_once)


def row(**config: int) -> Levels:
    found = GRID.levels({"order": 8} | config)
    assert found is not None
    return found


def learnt(configs: list[dict[str, int]]) -> FactModel:
    facts = FactModel(GRID)
    for config in configs:
        facts.learn(row(**config), measured(config))
    return facts


SOME = [{"BM": m, "BN": n, "warps": w} for m, n, w in ((8, 8, 1), (64, 16, 2), (16, 128, 8), (256, 32, 1), (32, 64, 4))]


def test_slopes_are_those_of_dense_regression() -> None:
    """A normal density of the values for each deviation, and the mean of the slopes given the values."""
    rng = np.random.default_rng(0)
    facts, rows = learnt(SOME), np.stack([row(**config) for config in SOME])
    targets = Targets(rng.normal(size=len(SOME)), 0.7, 3.0)
    mixed = rng.normal(size=(len(SOME), len(SOME)))
    covariance = mixed @ mixed.T / len(SOME) + np.eye(len(SOME))
    names = ("programs", "registers", "resident_warps")
    known = np.array([[math.log2(1 + getattr(code_of(config), name)) for name in names] for config in SOME])
    scales = known.std(0) + LEAST_DEVIATION
    scaled = (known - known.mean(0)) / scales
    density, slopes = [], []
    for deviation in SLOPES:
        total = covariance + deviation**2 * scaled @ scaled.T
        weights = np.linalg.solve(total, targets.values)
        density.append(math.exp(-targets.values @ weights / 2) / math.sqrt(np.linalg.det(total)))
        slopes.append(deviation**2 * scaled.T @ weights)
    expected = np.array(density) / sum(density) @ np.array(slopes) * targets.unit / scales
    found = trend(facts, rows, targets, np.linalg.inv(np.linalg.cholesky(covariance)))
    assert found.names == names
    assert found.slopes == pytest.approx(expected)
    assert found.of(rows) == pytest.approx(known @ expected)


def test_what_was_told_counts_and_else_what_is_predicted() -> None:
    facts = learnt(SOME)
    told, other = row(**SOME[0]), row(BM=8, BN=16, warps=1)
    found = facts.known_or_predicted(("programs",), np.stack([told, other]))[:, 0]
    assert found[0] == math.log2(1 + 512 * 512)
    assert found[1] == pytest.approx(math.log2(512 * 256), abs=0.5)  # nobody compiled it
    facts.learn(other, replace(measured({"BM": 8, "BN": 16, "warps": 1}), code=CodeFacts(5)))
    assert facts.known_or_predicted(("programs",), other[None])[0, 0] == math.log2(6)


def search(
    seed: int, *, at_once: int = 132, code: bool = True, told: bool = True, prior: Prior | None = None
) -> list[Configuration]:
    strategy, asked = SurrogateStrategy(SPACE, seed, prior), []
    for _ in range(18):
        config = strategy.ask()
        assert config is not None
        measurement = measured(config, cost(config), at_once)
        said = measurement if code else replace(measurement, code=None)
        strategy.tell(config, Outcome(cost(config), "ok", said if told else None))
        asked.append(config)
    return asked


def cost(config: Configuration) -> float:
    """Few programs are fast, unless they need more than 64 registers; the order matters a little."""
    code = code_of(config)
    assert code.registers is not None
    order = 1 + 0.1 * math.sin(int(config["order"]))
    return 1e3 * (code.programs**0.5 * order + 20 * max(0, code.registers - 64))


def test_a_search_that_hears_facts_finds_more() -> None:
    """How far the best of 18 is from the best of all, in the mean logarithm over seeds."""
    best = min(cost(config) for config in SPACE.configurations())

    def lost(told: bool) -> float:
        runs = [search(seed, told=told) for seed in range(16)]
        return statistics.fmean(math.log(min(map(cost, run)) / best) for run in runs)

    assert lost(told=True) < 0.4 * lost(told=False)


def test_without_facts_or_with_a_prior_choices_are_those_of_times_alone() -> None:
    assert search(0) != search(0, told=False)
    assert search(0, code=False) == search(0, told=False)
    predicting = Prior(lambda configs: [float(int(config["order"])) for config in configs])
    for prior in (predicting, Prior(None, tuple(SOME))):
        assert search(0, prior=prior) == search(0, told=False, prior=prior)


def test_where_the_fastest_variant_does_not_fill_the_device_choices_are_those_of_times_alone() -> None:
    """Though facts are told, and slow variants have programs for several waves."""
    found = search(0, told=False)
    programs = [code_of(config).programs for config in found]
    assert max(programs) > 4 * 8193
    assert all(code_of(min(found[:told], key=cost)).programs < 8193 for told in range(8, 18))
    assert search(0, at_once=8193) == found


def test_facts_that_some_do_not_tell_and_that_never_differ() -> None:
    """As from a CPU, which has no registers, and of kernels that never spill."""
    facts = FactModel(GRID)
    for number, config in enumerate(SOME):
        code = CodeFacts(7, registers=None if number % 2 else 10 * number + 1, spill_bytes=0)
        facts.learn(row(**config), replace(measured(config), code=code))
    rows = np.stack([row(BM=m, BN=n, warps=1) for m, n in itertools.product(TILES, TILES)])
    told = np.stack([row(**config) for config in SOME])
    found = trend(facts, told, Targets(np.arange(5.0), 1.0, 0.0), np.eye(5))
    assert found.names == ("programs", "registers", "spill_bytes")
    assert found.slopes[[0, 2]] == pytest.approx(0.0, abs=1e-6)
    assert np.isfinite(found.of(rows)).all()
