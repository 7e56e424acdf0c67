"""A small, seeded version of ``benchmarks/verdict_rates.py``: what finals say on recorded noise, with a neighbour and
without."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "verdict_rates.py"
SEARCHES = 150


@pytest.fixture(scope="module")
def rates() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdict_rates", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verdict_rates"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def surely_below(limit: float, events: int) -> bool:
    """Whether so few events in all searches exclude a true rate of ``limit`` or more, with 95 % (the exact binomial
    bound of C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    chance = sum(math.comb(SEARCHES, k) * limit**k * (1 - limit) ** (SEARCHES - k) for k in range(events + 1))
    return chance <= 0.05


@pytest.mark.parametrize("machine", ["idle", "neighbour", "W6600"])
@pytest.mark.parametrize("finalists", [1, 2, 4])
def test_rates_on_recorded_noise(rates: ModuleType, machine: str, finalists: int) -> None:
    repeats = rates.repeats_of(machine, rates.read_sample())
    for ratio, expected in ((1.0, "SAME"), (0.995, "SAME"), (0.98, "FASTER"), (0.97, "FASTER"), (1.03, "SLOWER")):
        found = rates.cell(machine, repeats, ratio, finalists, SEARCHES)
        assert surely_below(0.1, SEARCHES - found.counts[expected]), (ratio, found.counts)
        if ratio >= 0.995:
            assert surely_below(0.025, found.counts["FASTER"]), (ratio, found.counts)


def test_a_crowded_machine_gives_no_false_alarm_within_its_time(rates: ModuleType) -> None:
    """Where the time does not suffice for an answer, it is AMBIGUOUS and not a guess."""
    repeats = rates.repeats_of("crowded", rates.read_sample())
    counts = {"FASTER": 0, "SAME": 0, "SLOWER": 0, "AMBIGUOUS": 0}
    for seed in range(12):
        machine = rates.Machine(rates.random.Random(seed), repeats, rates.LOADS["crowded"])
        said, rounds = rates.final(machine, 1.0, 2, seed)
        counts[said] += 1
        assert rounds <= rates.FINAL_SECONDS * 1e9 / (2 * rates.KERNEL_NS * 3)
    assert counts["AMBIGUOUS"] + counts["SAME"] == 12
