"""What is known before a search: how much of it counts, and where it comes from."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from deuteron.tuner.space import Configuration, Parameter, Space
from deuteron.tuner.strategies import Outcome
from deuteron.tuner.strategies.surrogate import one_thread, prior_from_log, warm_start
from deuteron.tuner.strategies.surrogate.gaussian_process import fit
from deuteron.tuner.strategies.surrogate.prior import scale

SPACE = Space(tuple(Parameter(name, (1, 2, 4, 8, 16)) for name in "abc"), ("a * b <= 64",))


def log_time(config: Configuration) -> float:
    return abs(math.log2(float(config["a"])) - 3) + 0.5 * abs(math.log2(float(config["b"])) - 1)


@pytest.fixture(scope="module")
def log() -> list[tuple[Configuration, Outcome]]:
    rng = random.Random(0)
    configs = rng.sample(list(SPACE.configurations()), 50)
    return [(config, Outcome(1e5 * math.exp(log_time(config)))) for config in configs]


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 1.0), (0.5, 0.5), (7.0, 2.0), (0.01, 0.2), (-1.0, 0.2)])
def test_the_scale_is_fitted_within_bounds(factor: float, expected: float) -> None:
    predicted = np.random.default_rng(1).standard_normal(30)
    assert scale(predicted, 4.0 + factor * predicted) == pytest.approx(expected)


def test_a_log_is_fitted_on_one_thread(
    log: list[tuple[Configuration, Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of OpenBLAS that wait for each other beside other processes made a fit take seconds."""
    openblas = one_thread._openblas()
    if openblas is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    seen = []
    monkeypatch.setattr(warm_start, "fit", lambda *given: (seen.append(openblas.get()), fit(*given))[1])
    prior_from_log(SPACE, log)
    assert seen == [1]


def test_a_constant_prediction_has_a_scale_too() -> None:
    assert 0.2 <= scale(np.ones(5), np.arange(5.0)) <= 2


def test_a_log_predicts_what_it_did_not_see(log: list[tuple[Configuration, Outcome]]) -> None:
    prior = prior_from_log(SPACE, log)
    assert prior is not None
    seen = [config for config, _ in log]
    others = [config for config in SPACE.configurations() if config not in seen]
    predicted = np.array(prior.log_times(others))
    true = np.array([log_time(config) for config in others])
    assert np.corrcoef(predicted, true)[0, 1] > 0.9


def test_the_fastest_of_the_log_are_tried_first(log: list[tuple[Configuration, Outcome]]) -> None:
    prior = prior_from_log(SPACE, log)
    assert prior is not None
    times = sorted(outcome.value for _, outcome in log if outcome.value is not None)
    assert [1e5 * math.exp(log_time(config)) for config in prior.first] == pytest.approx(times[:4])


def test_what_does_not_fit_the_space_is_left_out(log: list[tuple[Configuration, Outcome]]) -> None:
    strangers = [({**config, "a": 3}, Outcome(1.0)) for config, _ in log] + [({"x": 1}, Outcome(1.0))]
    failed = [(config, Outcome(None, "crashed")) for config in SPACE.configurations()]
    both, alone = prior_from_log(SPACE, [*strangers, *log]), prior_from_log(SPACE, log)
    assert both is not None and alone is not None
    assert both.first == alone.first
    assert prior_from_log(SPACE, strangers + failed) is None
    assert prior_from_log(SPACE, log[:4]) is None
    narrower = Space(SPACE.parameters, ("a * b <= 8",))
    shifted = prior_from_log(narrower, log)
    assert shifted is not None and all(narrower.contains(config) for config in shifted.first)
