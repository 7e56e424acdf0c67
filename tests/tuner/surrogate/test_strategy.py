"""The search itself, on functions made up: what every strategy must do is in tests/tuner/test_strategies.py."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from deuteron.tuner.codec import Scalar
from deuteron.tuner.space import Parameter, Space, config_key
from deuteron.tuner.strategies import Outcome, make_strategy
from deuteron.tuner.strategies.surrogate import Prior, SurrogateStrategy
from deuteron.tuner.strategies.surrogate import domain as domains
from deuteron.tuner.strategies.surrogate.gaussian_process import MaternPrior
from deuteron.tuner.strategies.surrogate.outlook import Observed, outlook
from deuteron.tuner.strategies.surrogate.process import Process

BLOCKS = (16, 32, 64, 128, 256)
SPACE = Space(
    (
        Parameter("M", BLOCKS),
        Parameter("N", BLOCKS),
        Parameter("K", (16, 32, 64)),
        Parameter("stages", (1, 2, 3, 4, 5)),
        Parameter("order", ("row", "column", "blocked")),
        Parameter("fused", (False, True)),
        Parameter("fixed", (7,)),
    ),
    ("M * N <= 16384", "M * K * stages <= 32768"),
)
BEST = {"M": 128, "N": 64, "K": 32, "stages": 4, "order": "blocked", "fused": True, "fixed": 7}


def cost(config: dict[str, Scalar]) -> float:
    """A bowl in the logarithms with its minimum of 1000 ns at BEST."""
    off = sum(abs(math.log2(float(config[n]) / float(BEST[n]))) ** 1.5 for n in ("M", "N", "K"))  # type: ignore[arg-type]
    off += 0.3 * abs(int(config["stages"]) - 4) + (config["order"] != "blocked") + 0.5 * (not config["fused"])
    return 1000 * math.exp(0.25 * off)


def search(
    strategy: SurrogateStrategy, evaluations: int, outcome: type[Outcome] = Outcome, ahead: int = 1
) -> list[dict[str, Scalar]]:
    """Proposals in order, with ``ahead`` of them open at a time."""
    proposed: list[dict[str, Scalar]] = []
    told = 0
    while told < evaluations:
        while len(proposed) < min(told + ahead, evaluations):
            config = strategy.ask()
            assert config is not None
            proposed.append(config)
        strategy.tell(proposed[told], outcome(cost(proposed[told])))
        told += 1
    return proposed


def fraction(configs: list[dict[str, Scalar]]) -> float:
    return 1000 / min(map(cost, configs))


@pytest.mark.parametrize("ahead", [1, 4])
def test_finds_the_minimum_of_a_bowl_among_hundreds(ahead: int) -> None:
    """Chance finds one of the three best of 1,590 in 45 evaluations in one search of twelve."""
    for seed in range(3):
        assert fraction(search(SurrogateStrategy(SPACE, seed), 45, ahead=ahead)) > 0.95


def test_sizes_that_two_divides_often_are_alike() -> None:
    """Without knowing that, finding the best of 4,096 takes 35 to 90 evaluations."""
    sizes = Space(
        (Parameter("x", tuple(range(16, 1040, 16))), Parameter("y", tuple(range(1, 33))), Parameter("z", (0, 1)))
    )

    def divided(size: int, most: int) -> int:
        return min(most, (size & -size).bit_length() - 1)

    def time(config: dict[str, Scalar]) -> float:
        x, y = int(config["x"]), int(config["y"])
        off = abs(math.log2(x / 768)) + abs(math.log2(y / 24)) + 3 * (config["z"] == 0)
        return 1000 * math.exp(0.1 * off - 0.3 * (divided(x, 8) + divided(y, 3) - 11))

    for seed in range(3):
        strategy = SurrogateStrategy(sizes, seed)
        times: list[float] = []
        for _ in range(30):
            config = strategy.ask()
            assert config is not None
            times.append(time(config))
            strategy.tell(config, Outcome(times[-1]))
        assert min(times) < 1001


def test_open_proposals_keep_away_from_each_other() -> None:
    """Six of them lie on both sides of the best so far."""
    space = Space((Parameter("x", tuple(range(1, 201))), Parameter("y", (1, 2))))
    strategy = SurrogateStrategy(space, 0)
    places: list[int] = []
    for _ in range(10):
        config = strategy.ask()
        assert config is not None
        strategy.tell(config, Outcome(1000 + abs(int(config["x"]) - 120) ** 1.5 + 10 * int(config["y"])))
        places.append(int(config["x"]))
    best = min(places, key=lambda x: abs(x - 120))
    proposed = [strategy.ask() for _ in range(6)]
    ahead = {int(config["x"]) for config in proposed if config is not None}
    assert len(ahead) == 6 and min(ahead) < best < max(ahead)


def test_where_a_proposal_is_open_less_is_expected_of_others() -> None:
    points, pool = np.linspace(0, 1, 6)[:, None], np.linspace(0.01, 0.99, 50)[:, None]
    keys, values, nothing = [b"%d" % i for i in range(6)], np.cos(7 * points[:, 0]), np.zeros(50)
    process = Process(MaternPrior())
    process.fit(points, values)
    process.attach(keys, points, pool)
    observed = Observed(keys, points, values, 1.0, 0.0, np.zeros(6), 0.0)
    alone = outlook(process, observed, nothing, keys, points)
    at = int(np.argmax(alone.improvement))
    beside = outlook(process, observed, nothing, [*keys, b"open"], np.concatenate([points, pool[[at]]]))
    assert beside.variance[at] < 0.5 * alone.variance[at]
    assert (beside.improvement <= alone.improvement + 1e-9).all()
    assert beside.improvement[at + 1] < 0.9 * alone.improvement[at + 1]


def test_what_keeps_failing_is_left_alone() -> None:
    """Half of the product fails for a reason that no constraint says, the centre of it included."""
    space = Space(tuple(Parameter(f"p{i}", tuple(range(8))) for i in range(4)))

    def outcome(config: dict[str, Scalar]) -> Outcome:
        values = [int(v) for v in config.values()]
        if values[0] + values[1] >= 7:
            return Outcome(None, "compile_error")
        return Outcome(
            100.0 + (values[0] - 5) ** 2 + (values[1] - 1) ** 2 + (values[2] - 2) ** 2 + (values[3] - 6) ** 2
        )

    strategy = SurrogateStrategy(space, 0)
    outcomes = []
    for _ in range(60):
        config = strategy.ask()
        assert config is not None
        outcomes.append(outcome(config))
        strategy.tell(config, outcomes[-1])
    failed = [o.value is None for o in outcomes]
    # Chance: 17 of 30 each time. A pool without the hopeless, unweighted: 15 of the first 30.
    assert sum(failed[:30]) <= 12 and sum(failed[30:]) <= 8
    assert min(o.value for o in outcomes if o.value is not None) <= 101


def test_what_is_likely_to_fail_weighs_less() -> None:
    """No rule holds of the middle values that fail, the best ones would be there, and the pool has all candidates."""
    failed = []
    for seed in range(3):
        strategy = SurrogateStrategy(Space(tuple(Parameter(f"p{i}", tuple(range(8))) for i in range(3))), seed)
        for _ in range(30):
            config = strategy.ask()
            assert config is not None
            a, b, c = (int(v) for v in config.values())
            time = None if a in (2, 3, 4) else 100.0 + (a - 3) ** 2 + (b - 1) ** 2 + (c - 2) ** 2
            failed.append(time is None)
            strategy.tell(config, Outcome(time, *(["compile_error"] if time is None else [])))
    # 13 of the 90, and 51 without the weight; three of eight fail by chance.
    assert sum(failed) <= 25


def test_noise_does_not_hold_it_at_a_lucky_measurement() -> None:
    """A configuration that once looked 30 % faster than it is must not end the search."""
    strategy = SurrogateStrategy(SPACE, 3)
    lucky = {**BEST, "M": 16, "N": 16}
    strategy.tell(lucky, Outcome(0.7 * cost(lucky)))
    assert fraction(search(strategy, 60)) > 0.95


def test_reasons_say_what_is_tried() -> None:
    strategy = SurrogateStrategy(SPACE, 0)
    configs = search(strategy, 40)
    reasons = [strategy.reason(config) for config in configs]
    assert reasons[0] == "centre of the space"
    assert set(reasons[1:8]) == {"spread-out start"}
    assert all(reason is not None and reason.startswith("expected ") for reason in reasons[8:])
    assert any(reason is not None and "->" in reason and reason.endswith("beside the best") for reason in reasons)
    assert strategy.reason(next(c for c in SPACE.configurations() if c not in configs)) is None
    assert strategy.reason({"block": 1}) is None


def test_an_interrupted_search_goes_on_with_what_it_learnt() -> None:
    whole = SurrogateStrategy(SPACE, 5)
    first = search(whole, 30)
    resumed = SurrogateStrategy(SPACE, 5)
    for config in first:
        resumed.tell(config, Outcome(cost(config)))
    rest = search(resumed, 12)
    assert not {config_key(c) for c in rest} & {config_key(c) for c in first}
    reasons = [resumed.reason(c) for c in rest]
    assert all(reason is not None and reason.startswith("expected") for reason in reasons)  # no second start
    assert fraction(first + rest) > 0.95


def test_same_seed_same_search_and_others_differ() -> None:
    def of(seed: int) -> list[str]:
        return [config_key(c) for c in search(SurrogateStrategy(SPACE, seed), 25, ahead=3)]

    assert of(1) == of(1)
    assert of(1) != of(2)


@pytest.mark.parametrize("prior", [None, Prior(lambda configs: [0.1 * float(c["M"]) ** 0.5 for c in configs])])
def test_the_unit_of_time_changes_nothing(prior: Prior | None) -> None:
    def of(unit: float) -> list[str]:
        strategy, found = SurrogateStrategy(SPACE, 4, prior), []
        for _ in range(25):
            config = strategy.ask()
            assert config is not None
            found.append(config_key(config))
            strategy.tell(config, Outcome(unit * cost(config)))
        return found

    assert of(1.0) == of(2.0**-20)  # logarithms above and below 0


def test_a_changed_outcome_counts() -> None:
    """What was slowest turns out to be by far the fastest: the search goes on beside it."""
    strategy = SurrogateStrategy(SPACE, 0)
    slowest = max(search(strategy, 20), key=cost)
    strategy.tell(slowest, Outcome(0.2 * cost(BEST)))
    for _ in range(3):
        config = strategy.ask()
        assert config is not None
        assert sum(config[name] != slowest[name] for name in config) <= 2
        strategy.tell(config, Outcome(cost(config)))
    strategy.tell(slowest, Outcome(None, "wrong_result"))
    following = strategy.ask()
    assert following is not None and sum(following[name] != slowest[name] for name in following) > 2


def test_a_product_too_large_to_list_is_drawn_from() -> None:
    space = Space(tuple(Parameter(f"p{i}", tuple(range(64))) for i in range(8)))  # 2.8e14
    strategy = SurrogateStrategy(space, 0)
    best = math.inf
    for _ in range(60):
        config = strategy.ask()
        assert config is not None
        value = 100.0 + sum(abs(int(v) - 40) for v in config.values())
        best = min(best, value)
        strategy.tell(config, Outcome(value))
    assert best < 130  # chance: 165 at best in 60 draws


def test_what_was_seen_of_a_product_is_not_drawn_for_an_unseen_one() -> None:
    class Seen:
        """All but rows that begin with a level."""

        def __contains__(self, key: bytes) -> bool:
            return key[0] != 3

    space = Space(tuple(Parameter(f"p{i}", tuple(range(8))) for i in range(16)))  # 2.8e14
    domain = SurrogateStrategy(space, 0)._domain
    row = domain.unseen(Seen(), np.random.default_rng(0))
    assert row is not None and row[0] == 3


def test_a_constrained_space_too_large_to_list_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "LISTED", 100)
    configs = search(SurrogateStrategy(SPACE, 2), 45)
    assert all(SPACE.contains(config) for config in configs)
    assert len({config_key(c) for c in configs}) == 45
    assert fraction(configs) > 0.9


def test_long_searches_keep_the_fastest_and_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.tuner.strategies.surrogate import model

    monkeypatch.setattr(model, "MODELLED", 20)
    configs = search(SurrogateStrategy(SPACE, 0), 70)
    assert len({config_key(c) for c in configs}) == 70
    assert fraction(configs) > 0.9


def test_a_prior_is_followed_as_far_as_it_holds() -> None:
    """One that knows the bowl finds its bottom at once; one that says the opposite is overruled."""

    def known(configs: object) -> list[float]:
        return [0.5 * math.log(cost(c)) for c in configs]  # type: ignore[attr-defined]

    def contrary(configs: object) -> list[float]:
        return [-math.log(cost(c)) for c in configs]  # type: ignore[attr-defined]

    assert fraction(search(SurrogateStrategy(SPACE, 0, Prior(known)), 15)) > 0.97
    assert fraction(search(SurrogateStrategy(SPACE, 0, Prior(contrary)), 60)) > 0.9


def test_what_was_good_before_is_tried_first() -> None:
    good = [BEST, {**BEST, "stages": 3}, {"of another": "space"}, {**BEST, "M": 256, "N": 256}]
    strategy = SurrogateStrategy(SPACE, 0, Prior(lambda configs: [0.0] * len(configs), tuple(good)))
    configs = search(strategy, 3)
    assert configs[:2] == good[:2]  # the others are not in the space
    assert strategy.reason(configs[0]) == "among the best known before"
    assert SPACE.contains(configs[2])


def test_before_anything_is_known_the_prediction_says_what_to_try() -> None:
    """Many are asked for while the first still compile: they are those predicted to be fast, not any."""
    predicted = {config_key(config): cost(config) for config in SPACE.configurations()}
    prior = Prior(lambda configs: [math.log(predicted[config_key(c)]) for c in configs], (BEST,))
    strategy = SurrogateStrategy(SPACE, 0, prior)
    asked = [config for config in (strategy.ask() for _ in range(24)) if config is not None]
    assert len({config_key(config) for config in asked}) == 24
    reasons = [strategy.reason(config) for config in asked]
    assert reasons[0] == "among the best known before" and reasons[-20:] == ["predicted to be fast"] * 20
    median = statistics.median(predicted.values())
    assert statistics.median(predicted[config_key(config)] for config in asked[-20:]) < 0.7 * median


def test_the_registry_has_it() -> None:
    assert isinstance(make_strategy("surrogate", SPACE, 0), SurrogateStrategy)


def test_it_says_when_nothing_more_is_to_be_won() -> None:
    """On a bowl soon after the minimum; never at the start, and not while times still fall."""
    for seed in range(3):
        strategy = SurrogateStrategy(SPACE, seed)
        times: list[float] = []
        while strategy.settled() is None and len(times) < 150:
            config = strategy.ask()
            assert config is not None
            times.append(cost(config))
            strategy.tell(config, Outcome(times[-1]))
        assert 20 <= len(times) < 60 and min(times) < 1020
        assert "expected" in str(strategy.settled())


@pytest.mark.parametrize("worked", [1, 5, 19])
def test_few_times_among_failures_do_not_end_a_search(worked: int) -> None:
    """How much times differ is not known yet, so nothing is known of what is to be won."""
    for seed in range(2):
        strategy = SurrogateStrategy(SPACE, seed)
        for number in range(60):
            config = strategy.ask()
            assert config is not None
            strategy.tell(config, Outcome(cost(config) if number % 3 == 0 and number < 3 * worked else None))
            assert strategy.settled() is None


def test_one_time_says_nothing_of_gains() -> None:
    strategy = SurrogateStrategy(SPACE, 0)
    for number in range(34):
        config = strategy.ask()
        assert config is not None
        reason = strategy.reason(config)
        strategy.tell(config, Outcome(1000.0 if number == 30 else None))
    assert str(reason).startswith("no two times differ so far")


def test_times_that_are_all_equal_end_a_search() -> None:
    for share in (1, 2):  # all work, or each second one
        strategy = SurrogateStrategy(SPACE, 0)
        worked = 0
        while strategy.settled() is None:
            config = strategy.ask()
            assert config is not None and worked < 30
            works = len(str(config)) % share == 0
            worked += works
            strategy.tell(config, Outcome(1000.0 if works else None))
        assert worked >= 20


def test_a_search_does_not_wait_for_gains_of_what_fails() -> None:
    """The larger M and N the faster, up to a sum beyond which all fails and that no product of parameters tells."""

    def time(config: dict[str, Scalar]) -> float | None:
        m, n, k, stages = (int(config[name]) for name in ("M", "N", "K", "stages"))
        log = 0.3 * math.log2(m * n) + 0.1 * stages - 0.1 * (config["order"] == "row")
        return None if m + 2 * n + k * stages > 300 else 1e6 * math.exp(-log)

    space = Space(SPACE.parameters)
    best = min(found for config in space.configurations() if (found := time(config)) is not None)
    for seed in range(2):
        strategy = SurrogateStrategy(space, seed)
        times: list[float | None] = []
        while strategy.settled() is None:
            config = strategy.ask()
            assert config is not None and len(times) < 160
            times.append(time(config))
            strategy.tell(config, Outcome(times[-1]))
        assert min(found for found in times if found is not None) == best


def test_a_search_whose_times_still_fall_is_not_settled() -> None:
    strategy = SurrogateStrategy(SPACE, 0)
    for number in range(60):
        config = strategy.ask()
        assert config is not None
        strategy.tell(config, Outcome(1e6 * 0.98**number))
        assert strategy.settled() is None
