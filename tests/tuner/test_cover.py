"""Covers against brute force, and dispatch rules against the tables that they were made from."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from deuteron.cli.errors import CommandError
from deuteron.cli.exports.cover import cover_json, cover_python
from deuteron.compiler import get_device
from deuteron.tuner.cover import (
    Cover,
    CoverError,
    TimeTable,
    cover_with,
    cover_within,
    dispatch_nearest,
    dispatch_tree,
    measure_missing,
    table_of_logs,
)
from deuteron.tuner.cover.set_cover import smallest_cover
from deuteron.tuner.evaluate.messages import Compiled, Extended, Raced
from deuteron.tuner.experience import SearchLog
from deuteron.tuner.experience.search_log import KnownConfig
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import Problem, builtin_workload


def random_table(seed: int, shapes: int = 7, configs: int = 6, share: float = 0.8) -> TimeTable:
    """Times of random pairs; every shape has one at least."""
    drawn = random.Random(seed)
    sizes = drawn.sample([(m, n) for m in (1, 3, 16, 100, 4096) for n in (2, 30, 512)], shapes)
    rows = []
    for _ in range(shapes):
        row = {c: drawn.choice((1.0, 1.01, 1.02, 1.05, 1.3)) * 1000 for c in range(configs) if drawn.random() < share}
        rows.append(row or {drawn.randrange(configs): 1000.0})
    weights = tuple(drawn.choice((1.0, 2.0, 10.0)) for _ in range(shapes))
    made = tuple({"BLOCK": 2**c, "num_warps": 4} for c in range(configs))
    return TimeTable(tuple({"M": m, "N": n} for m, n in sizes), made, tuple(rows), weights)


def losses_of(table: TimeTable, members: tuple[int, ...]) -> list[float]:
    """By hand: of each shape the least loss of the members; infinite where none was measured."""
    found = []
    for row in table.times:
        times = [row[c] for c in members if c in row]
        found.append(min(times) / min(row.values()) - 1 if times else float("inf"))
    return found


def subsets(table: TimeTable, size: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(len(table.configs)), size))


@pytest.mark.parametrize("seed", range(40))
def test_no_fewer_and_none_cheaper(seed: int) -> None:
    table = random_table(seed)
    for tolerance in (0.0, 0.03):
        found = cover_within(table, tolerance)
        good = [m for size in range(1, 8) for m in subsets(table, size) if max(losses_of(table, m)) <= tolerance]
        size = min(map(len, good))
        assert len(found.configs) == found.least == size
        assert found.proven

        def mean(members: tuple[int, ...]) -> float:
            pairs = zip(table.weights, losses_of(table, members), strict=True)
            return sum(w * loss for w, loss in pairs) / sum(table.weights)

        assert found.mean == pytest.approx(min(mean(m) for m in good if len(m) == size))
        assert found.worst == max(losses_of(table, found.configs)) <= tolerance


@pytest.mark.parametrize("seed", range(20))
def test_so_many_with_the_least_loss(seed: int) -> None:
    table = random_table(seed, share=0.9)
    for count in (1, 2, 4):
        worst = [max(losses_of(table, m)) for size in range(1, count + 1) for m in subsets(table, size)]
        if min(worst) == float("inf"):
            with pytest.raises(CoverError, match="measured at all shapes"):
                cover_with(table, count)
        else:
            found = cover_with(table, count)
            assert len(found.configs) <= count
            assert found.worst == pytest.approx(min(worst))


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_where_the_search_is_cut_short(seed: int) -> None:
    """With one node a level the answer is a cover all the same, and the bound that is stated is one."""
    drawn = random.Random(seed)
    everything = (1 << 12) - 1
    masks = {c: drawn.getrandbits(12) & drawn.getrandbits(12) for c in range(14)}
    masks |= {20 + bit: 1 << bit for bit in range(12)}
    exact = smallest_cover(masks, everything, lambda members: 0.0)
    short = smallest_cover(masks, everything, lambda members: 0.0, most_nodes=1)
    for found in (exact, short):
        covered = 0
        for config in found.members:
            covered |= masks[config]
        assert covered == everything
    assert exact.least == len(exact.members)
    assert short.least <= exact.least <= len(short.members)
    if short.least < len(short.members):
        assert not short.proven


@pytest.mark.parametrize("seed", range(6))
def test_a_cover_is_proven_only_where_no_other_costs_less(seed: int) -> None:
    drawn = random.Random(seed)
    everything = (1 << 10) - 1
    masks = {c: drawn.getrandbits(10) & drawn.getrandbits(10) for c in range(24)}
    masks |= {30 + bit: 1 << bit for bit in range(10)}
    costs = {c: drawn.random() for c in masks}

    def cost(members: Sequence[int]) -> float:
        return sum(costs[config] for config in members)

    exact = smallest_cover(masks, everything, cost)
    found = [smallest_cover(masks, everything, cost, most_nodes=nodes) for nodes in range(1, 200)]
    assert all(short.members == exact.members for short in found if short.proven)
    assert any(len(short.members) == exact.least and not short.proven for short in found)


def test_a_cover_of_the_largest_leaves_out_what_others_cover() -> None:
    masks = {0: 0b011110, 1: 0b000111, 2: 0b111000}
    assert smallest_cover(masks, 0b111111, lambda members: 0.0, most_nodes=0).members == (1, 2)


@pytest.mark.parametrize("seed", range(25))
def test_rules_are_exact_on_the_measured_shapes(seed: int) -> None:
    """In memory, as a Python module, and as JSON: every measured shape gets a configuration within the tolerance."""
    table = random_table(seed, shapes=9)
    found = cover_within(table, 0.03)
    for rule in (dispatch_tree(found), dispatch_nearest(found)):
        scope: dict[str, object] = {}
        exec(cover_python("k", found, rule), scope)  # noqa: S102 -- a module that was just written
        written = json.loads(cover_json("k", found, rule))
        for number, shape in enumerate(table.shapes):
            chosen = found.configs[rule.pick(shape)]
            assert losses_of(table, (chosen,))[number] <= 0.03
            assert scope["config_for"](**shape) == table.configs[chosen]  # type: ignore[operator]
            assert written["rule"]["configs"][walked(written["rule"], shape)] == table.configs[chosen]
            assert written["shapes"][number]["loss"] <= 0.03


@pytest.mark.parametrize("dim", ["CONFIGS", "min", "_NEAREST", "_distance"])
def test_sizes_that_would_hide_what_a_module_uses_are_refused(dim: str) -> None:
    table = TimeTable(({dim: 1}, {dim: 64}), ({"B": 1}, {"B": 2}), ({0: 1.0}, {1: 1.0}), (1.0, 1.0))
    found = cover_within(table)
    for rule in (dispatch_tree(found), dispatch_nearest(found)):
        with pytest.raises(CommandError, match="is a name of the module itself"):
            cover_python("k", found, rule)


def walked(rule: Mapping[str, object], shape: Mapping[str, int]) -> int:
    """The place that the JSON of a rule gives: its definition, written again."""
    if "nearest" in rule:
        near = min(rule["nearest"], key=lambda n: sum((shape[d] / n["shape"][d] != 1) for d in shape))  # type: ignore
        return near["config"]
    node = rule["tree"]
    while isinstance(node, dict):
        node = node["below"] if math.prod(shape[d] for d in node["dims"]) <= node["most"] else node["above"]
    assert isinstance(node, int)
    return node


def test_one_configuration_is_one_leaf() -> None:
    table = TimeTable(({"M": 1}, {"M": 64}), ({"B": 1}, {"B": 2}), ({0: 10.0, 1: 10.1}, {0: 10.2, 1: 10.0}), (1.0, 3.0))
    found = cover_within(table, 0.03)
    assert found.configs == (1,)  # the second shape counts more
    assert dispatch_tree(found).to_json()["tree"] == 0
    assert cover_within(table, 0.0).configs == (0, 1)
    split = dispatch_tree(cover_within(table, 0.0))
    assert split.to_json()["tree"] == {"dims": ["M"], "most": 8, "below": 0, "above": 1}


def test_what_was_not_measured_is_not_used_and_named() -> None:
    table = TimeTable(({"M": 1}, {"M": 2}), ({"B": 1}, {"B": 2}), ({0: 1.0}, {1: 1.0}), (1.0, 1.0))
    found = cover_within(table, 5.0)
    assert found.configs == (0, 1)
    assert found.missing == ((0, 1), (1, 0))
    with pytest.raises(CoverError, match="no 1 configurations were found"):
        cover_with(table, 1)


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
def test_what_no_clock_shows_is_refused(number: float) -> None:
    shapes, configs = ({"M": 1},), ({"B": 1}, {"B": 2})
    for times, weight in (({0: 1.0, 1: number}, 1.0), ({0: 1.0}, number)):
        with pytest.raises(CoverError, match="positive numbers"):
            TimeTable(shapes, configs, (times,), (weight,))


def log(shape: Mapping[str, int], known: Mapping[int, float], dtype: str = "f32", device: str = "cpu/x") -> SearchLog:
    configs = tuple(KnownConfig({"B": size}, time) for size, time in known.items())
    return SearchLog("k", "hash", device, shape, dtype, configs)


def test_tables_of_logs() -> None:
    table = table_of_logs([log({"M": 1}, {1: 5.0, 2: 6.0}), log({"M": 2}, {2: 7.0}), log({"M": 1}, {4: 1.0})])
    assert [dict(row) for row in table.times] == [{0: 5.0, 1: 6.0}, {1: 7.0}]  # the shorter log of M=1 is left out
    assert table.configs == ({"B": 1}, {"B": 2})
    with pytest.raises(CoverError, match="several dtypes: f16, f32"):
        table_of_logs([log({"M": 1}, {1: 5.0}), log({"M": 1}, {1: 5.0}, dtype="f16")])
    with pytest.raises(CoverError, match="several devices"):
        table_of_logs([log({"M": 1}, {1: 5.0}), log({"M": 1}, {1: 5.0}, device="cpu/y")])
    with pytest.raises(CoverError, match="no shape was measured") as caught:
        table_of_logs([log({"M": 1}, {1: 5.0})], dtype="bf16")
    assert "f32 on cpu/x" in str(caught.value)
    with pytest.raises(CoverError, match="no shape M=9"):
        table.weighted({"M=9": 2.0})


def test_losses_have_the_range_that_intervals_leave() -> None:
    """By hand: 95 to 104 over 100 to 90, and what has no interval."""
    ends = {1: (90.0, 100.0), 2: (95.0, 104.0), 4: None, 8: (1.0, 1.7e308)}
    times = {1: 95.0, 2: 99.0, 4: 110.0, 8: 120.0}
    known = tuple(KnownConfig({"B": size}, time, ends[size]) for size, time in times.items())
    table = table_of_logs([SearchLog("k", "hash", "cpu/x", {"M": 1}, "f32", known)])
    assert table.loss_range(0, 0) == (0.0, 0.0)
    assert table.loss_range(0, 1) == (0.0, pytest.approx(104 / 90 - 1))
    assert table.loss_range(0, 2) is None
    tiny = replace(table, ranges=({0: (1e-300, 100.0), 3: (1.0, 1.7e308)},))
    assert tiny.loss_range(0, 3) is None  # JSON has no infinity
    found = cover_within(table, 0.03)
    assert json.loads(cover_json("k", found, dispatch_tree(found)))["shapes"][0]["loss_range"] == [0.0, 0.0]


def test_of_equal_ones_the_first_of_the_search_is_the_best() -> None:
    """Where two shapes name configurations in another order."""
    table = table_of_logs([log({"M": 1}, {1: 5.0, 2: 6.0}), log({"M": 2}, {2: 7.0, 1: 7.0})])
    assert [table.configs[table.best(shape)] for shape in (0, 1)] == [{"B": 1}, {"B": 2}]


class Tape:
    """An evaluator with times by configuration."""

    exclusive, workers = True, 1

    def __init__(self, times: Mapping[int, float | None]) -> None:
        self.times = times

    def submit(self, config: Configuration) -> None: ...

    def settle(self) -> None: ...

    def next_compiled(self, configs) -> int:  # type: ignore[no-untyped-def]
        raise AssertionError("nothing is screened")

    def prepare_final(self, seed: int) -> None: ...

    def prepare_next_problem(self, problem: Problem, default: Configuration) -> None: ...

    def extend(self, config: Configuration, seed: int) -> Extended:
        raise AssertionError("nothing is stored")

    def close(self) -> None: ...

    def compiled(self, config: Configuration) -> Compiled:
        return Compiled("ok" if config["BLOCK_SIZE"] != 128 else "compile_error", error="too small")

    def race(self, configs, *, rounds: int, seconds: float, seed: int, fresh: bool) -> Raced:  # type: ignore[no-untyped-def]
        assert fresh, "a race that checks results"
        found = [self.times[int(str(config["BLOCK_SIZE"]))] for config in configs]
        times = [[] if time is None else [time, time, time] for time in found]
        return Raced("ok", times=times, errors=[None if time else "wrong" for time in found])


def test_missing_pairs_are_measured_as_ratios() -> None:
    """A race on another day is twice as slow; ratios are what counts. What fails stays missing."""
    configs = tuple({"BLOCK_SIZE": size} for size in (256, 512, 1024, 128))
    table = TimeTable(({"n": 1000}, {"n": 4000}), configs, ({0: 100.0}, {1: 50.0}), (1.0, 1.0))
    told: list[str] = []
    filled = measure_missing(
        table,
        [(0, 1), (0, 2), (0, 3)],
        workload=builtin_workload("vector_add"),
        dtype="f32",
        device=get_device("cpu"),
        evaluator=lambda problem, device, default, seed: Tape({256: 200.0, 512: 180.0, 1024: None}),
        tell=told.append,
    )
    assert filled.times[0] == pytest.approx({0: 100.0, 1: 90.0})
    assert filled.times[1] == {1: 50.0}
    assert filled.ranges == ({1: pytest.approx((90.0, 90.0))}, {})
    assert any("too small" in line for line in told) and any("wrong" in line for line in told)
    assert Problem(builtin_workload("vector_add"), {"n": 1000}, "f32").dims == table.shapes[0]


@pytest.mark.parametrize(
    ("raced", "says"),
    [
        (Raced("crashed", "ended by SIGSEGV"), "ended by SIGSEGV"),
        (Raced("ok", times=[[], [1.0]], errors=["the best is wrong", None]), "the best is wrong"),
        (Raced("ok", times=[], errors=[]), "no time was taken"),
    ],
)
def test_a_race_without_the_best_compares_nothing(raced: Raced, says: str) -> None:
    class Broken(Tape):
        def race(self, configs, **how: object) -> Raced:  # type: ignore[no-untyped-def]
            return raced

    table = TimeTable(({"n": 1000},), ({"BLOCK_SIZE": 256}, {"BLOCK_SIZE": 512}), ({0: 100.0},), (1.0,))
    with pytest.raises(CoverError, match=f"cannot be compared at n=1000: {says}"):
        measure_missing(
            table,
            [(0, 1)],
            workload=builtin_workload("vector_add"),
            dtype="f32",
            device=get_device("cpu"),
            evaluator=lambda problem, device, default, seed: Broken({}),
            tell=print,
        )


def test_refusals() -> None:
    table = random_table(0)
    with pytest.raises(CoverError, match="tolerance"):
        cover_within(table, -0.1)
    with pytest.raises(CoverError, match="0 configurations"):
        cover_with(table, 0)
    with pytest.raises(CoverError, match="no shape"):
        TimeTable((), (), (), ())
    with pytest.raises(CoverError, match="twice"):
        TimeTable(({"M": 1}, {"M": 1}), ({"B": 1},), ({0: 1.0}, {0: 1.0}), (1.0, 1.0))
    with pytest.raises(CoverError, match="positive"):
        TimeTable(({"M": 1},), ({"B": 1},), ({0: 0.0},), (1.0,))
    assert isinstance(cover_within(table), Cover)
