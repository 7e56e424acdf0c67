from __future__ import annotations

import importlib.util
import sys

import pytest

from deuteron.compiler.errors import MissingExtra
from deuteron.tuner.codec import Scalar
from deuteron.tuner.errors import StrategyError
from deuteron.tuner.space import Parameter, Space, config_key
from deuteron.tuner.strategies import STRATEGIES, OptunaStrategy, Outcome, Strategy, make_strategy

SPACE = Space(
    (
        Parameter("block", (16, 32, 64, 128)),
        Parameter("warps", (1, 2, 4, 8)),
        Parameter("order", ("row", "column")),
        Parameter("fused", (False, True)),
    ),
    ("block * warps <= 256", "not fused or block >= 64"),
)


def cost(config: dict[str, Scalar]) -> Outcome:
    """A bowl with its minimum at block 64, warps 4; some configurations fail."""
    if config["block"] == 16 and config["fused"] is False and config["order"] == "column":
        return Outcome(None, "compile_error")
    time = 100.0 + abs(int(config["block"]) - 64) + 10 * abs(int(config["warps"]) - 4)
    return Outcome(time + (5 if config["fused"] else 0))


def drain(strategy: Strategy, ahead: int = 1, limit: int = 1000) -> list[str]:
    """Keep ``ahead`` proposals open, tell them in order, return the keys in the order of proposal."""
    keys: list[str] = []
    open_configs: list[dict[str, Scalar]] = []
    while len(keys) < limit:
        config = strategy.ask()
        if config is not None:
            keys.append(config_key(config))
            open_configs.append(config)
        if config is None and not open_configs:
            return keys
        if config is None or len(open_configs) >= ahead:
            oldest = open_configs.pop(0)
            strategy.tell(oldest, cost(oldest))
    return keys


class StrategyConformance:
    """Inherit, set ``name``: the contract of :class:`deuteron.tuner.strategies.Strategy` as tests."""

    name: str

    def make(self, space: Space = SPACE, seed: int = 3) -> Strategy:
        return make_strategy(self.name, space, seed)

    @pytest.mark.parametrize("ahead", [1, 5])
    def test_proposes_every_valid_configuration_once_then_is_done(self, ahead: int) -> None:
        strategy = self.make()
        keys = drain(strategy, ahead)
        assert sorted(keys) == sorted(config_key(c) for c in SPACE.configurations())
        assert strategy.ask() is None
        assert strategy.ask() is None

    def test_same_seed_same_sequence(self) -> None:
        assert drain(self.make(), 4, 25) == drain(self.make(), 4, 25)

    def test_told_trials_are_not_proposed_again(self) -> None:
        told = list(SPACE.configurations())[::3]
        strategy = self.make()
        for config in told:
            strategy.tell(config, cost(config))
        keys = drain(strategy)
        assert not set(keys) & {config_key(c) for c in told}
        assert len(keys) + len(told) == SPACE.count()

    def test_survives_nothing_but_failures(self) -> None:
        strategy = self.make()
        count = 0
        while (config := strategy.ask()) is not None:
            strategy.tell(config, Outcome(None, "crashed"))
            count += 1
        assert count == SPACE.count()

    def test_telling_twice_and_strangers_is_allowed(self) -> None:
        strategy = self.make()
        config = strategy.ask()
        assert config is not None
        strategy.tell(config, Outcome(5.0))
        strategy.tell(config, Outcome(6.0))
        strategy.tell({"block": 999}, Outcome(1.0))
        assert strategy.ask() is not None

    def test_never_invalid_in_a_large_thin_space(self) -> None:
        space = Space(
            tuple(Parameter(f"p{i}", tuple(range(16))) for i in range(6)),
            ("p0 + p1 == p2", "p3 < p4"),
        )
        strategy = self.make(space)
        seen = set()
        for number in range(60):
            config = strategy.ask()
            assert config is not None and space.contains(config)
            seen.add(config_key(config))
            strategy.tell(config, Outcome(float(number)))
        assert len(seen) == 60

    def test_a_valid_default_is_enough_where_draws_hit_nothing(self) -> None:
        """1,976 of 32^6 points are valid."""
        space = Space(
            tuple(Parameter(f"p{i}", tuple(range(1, 33)), first) for i, first in enumerate((32, 32, 4, 1, 1, 1))),
            ("p0 * p1 * p2 * p3 * p4 * p5 == 4096", "p0 >= p1"),
        )
        strategy = self.make(space)
        strategy.tell(space.default(), Outcome(100.0))
        seen = {config_key(space.default())}
        for number in range(20):
            config = strategy.ask()
            assert config is not None and space.contains(config)
            seen.add(config_key(config))
            strategy.tell(config, Outcome(float(number)))
        assert len(seen) == 21

    def test_single_configuration(self) -> None:
        strategy = self.make(Space((Parameter("only", (1,)),)))
        assert strategy.ask() == {"only": 1}
        assert strategy.ask() is None


class TestExhaustive(StrategyConformance):
    name = "exhaustive"

    def test_keeps_the_order_of_the_space(self) -> None:
        assert drain(self.make()) == [config_key(c) for c in SPACE.configurations()]


class TestRandom(StrategyConformance):
    name = "random"

    def test_seeds_differ(self) -> None:
        assert drain(self.make(seed=1), limit=10) != drain(self.make(seed=2), limit=10)

    def test_resumed_search_goes_on_where_it_stopped(self) -> None:
        whole = drain(self.make())
        resumed = self.make()
        by_key = {config_key(c): c for c in SPACE.configurations()}
        for key in whole[:10]:
            resumed.tell(by_key[key], cost(by_key[key]))
        assert drain(resumed) == whole[10:]


class TestSurrogate(StrategyConformance):
    name = "surrogate"


needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="needs the extra optuna: pip install optuna"
)


@needs_optuna
class TestOptunaTPE(StrategyConformance):
    name = "optuna"

    def test_finds_the_minimum_sooner_than_chance(self) -> None:
        space = Space(tuple(Parameter(f"p{i}", tuple(range(10))) for i in range(4)))

        def best_of(name: str, seed: int) -> float:
            strategy, best = make_strategy(name, space, seed), float("inf")
            for _ in range(60):
                config = strategy.ask()
                assert config is not None
                value = sum((int(v) - 6) ** 2 for v in config.values())
                best = min(best, value)
                strategy.tell(config, Outcome(value))
            return best

        seeds = range(3)
        tpe = sum(best_of("optuna", s) for s in seeds)
        assert tpe < sum(best_of("random", s) for s in seeds)

    @pytest.mark.parametrize("asked", [True, False])
    def test_the_sampler_hears_of_all_trials(self, asked: bool) -> None:
        """Those of an interrupted run, which it did not propose, too."""
        strategy = OptunaStrategy(SPACE, 0)
        config = {"block": 64, "warps": 4, "order": "column", "fused": True}
        if asked:
            proposed = strategy.ask()
            assert proposed is not None
            config = proposed
        strategy.tell(config, Outcome(7.0))
        (trial,) = strategy._study.trials
        assert (strategy._decode(trial.params), trial.value) == (config, 7.0)


@needs_optuna
class TestOptunaRandom(StrategyConformance):
    name = "optuna:random"


@needs_optuna
class TestOptunaNsga(StrategyConformance):
    name = "optuna:nsgaii"


def test_every_strategy_has_a_conformance_class() -> None:
    tested = {c.name for c in StrategyConformance.__subclasses__()}
    assert set(STRATEGIES) - {"optuna:tpe"} == tested


def test_unknown_strategy_names_the_known_ones() -> None:
    with pytest.raises(StrategyError, match=", ".join(STRATEGIES)):
        make_strategy("hillclimb", SPACE, 0)


def test_missing_optuna_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"deuteron\[optuna\]"):
        make_strategy("optuna", SPACE, 0)
    with pytest.raises(MissingExtra, match="OptunaStrategy needs"):
        OptunaStrategy(SPACE, 0)
