"""Learning from searches: LightGBM's trees as arrays, what leaving shapes out says, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping

import modelled_products
import numpy as np
import pytest
from msgspec.structs import replace
from optional import loads

from deuteron.compiler.errors import MissingExtra
from deuteron.tuner.cover import TimeTable
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.experience import SearchLog
from deuteron.tuner.learn import (
    HeldOut,
    LearnError,
    SearchGroup,
    cross_validate,
    groups_of_logs,
    grow,
    kernel_hash_of,
    kernel_of_table,
    kernel_of_workload,
    learn,
    leave_one_out,
    rank,
    rows_of_table,
    training,
)
from deuteron.tuner.learn.training import candidates_of
from deuteron.tuner.prediction import Accuracy
from deuteron.tuner.records import DeviceFingerprint, Predictor
from deuteron.tuner.records.lookup import FARTHEST
from deuteron.tuner.workloads import builtin_workload

SPEC = builtin_workload("matmul")
CHAIN = {"deuteron": "0.1.0"}
Searches = Callable[[TimeTable, Mapping[str, str]], list[SearchLog]]

needs_lightgbm = pytest.mark.skipif(not loads("lightgbm"), reason="needs the extra learn, and the system's libgomp1")


def group_of(logs: list[SearchLog]) -> SearchGroup:
    (found,) = groups_of_logs(logs, kernel_hash_of(SPEC))
    return found


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_TREES", 30)
        yield


@pytest.fixture(scope="module")
def learnt(modelled: TimeTable, searches: Searches) -> Predictor:
    return learn(group_of(searches(modelled, CHAIN)), SPEC)


def test_products_of_the_model_behave_like_products(modelled: TimeTable) -> None:
    """Twice the depth takes about twice as long, a full wave more takes longer, and few rows want small tiles."""
    config = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
    times = {k: modelled_products.time_ns({"M": 4096, "N": 4096, "K": k}, config) for k in (4096, 8192)}
    assert 1.8 < times[8192] / times[4096] < 2.2
    at = {m: modelled_products.time_ns({"M": m, "N": 4096, "K": 4096}, config) for m in (128 * 32, 128 * 200)}
    assert at[128 * 200] > 4 * at[128 * 32]
    few = [modelled.configs[modelled.best(s)]["BLOCK_M"] for s, shape in enumerate(modelled.shapes) if shape["M"] == 16]
    assert max(few) <= 64


@needs_lightgbm
def test_arrays_give_what_lightgbm_gives(modelled: TimeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    import lightgbm

    kept = []
    train = lightgbm.train
    monkeypatch.setattr(lightgbm, "train", lambda *args: kept.append(train(*args)) or kept[0])
    rows = rows_of_table(modelled, kernel_of_table(modelled))
    forest = grow(rows)
    assert len(forest.roots) == 30
    drawn = np.random.default_rng(0)
    others = rows.values[drawn.permutation(len(rows.values))] + drawn.normal(size=rows.values.shape)
    for values in (rows.values, others):
        assert np.allclose(forest.predict(values), kept[0].predict(values), rtol=0, atol=1e-9)


@needs_lightgbm
def test_a_predictor_beats_the_nearest_shape_and_reads_back(learnt: Predictor, modelled: TimeTable) -> None:
    assert learnt.accuracy.pays and learnt.accuracy.predicted.geomean > 0.85
    # For the two shapes that none of the others is as large as nothing is answered.
    assert learnt.accuracy.shapes + 2 == len(modelled.shapes) == len(learnt.shapes)
    assert learnt.accuracy.unanswered == 2 / 12
    assert learnt.trials == sum(len(row) for row in modelled.times)
    again = Predictor.from_json(learnt.to_json())
    assert again == learnt
    for shape in ({"M": 200, "N": 4096, "K": 4096}, {"M": 2000, "N": 8000, "K": 4000}):
        config = again.predict(shape, FARTHEST)
        assert config is not None and config == learnt.predict(shape, FARTHEST)
        assert kernel_of_workload(SPEC, shape, "f16", learnt.device).space.bind(shape).contains(config)


@needs_lightgbm
def test_a_shape_that_is_left_out_teaches_nothing(modelled: TimeTable) -> None:
    """Whatever its times were, the ranking for it is the same: that of the others alone."""
    place, shape = 2, modelled.shapes[2]
    kernel = kernel_of_table(modelled)
    others = [other for other in range(len(modelled.shapes)) if other != place]
    wrong = tuple({c: 1e6 / (1 + c) for c in row} if s == place else dict(row) for s, row in enumerate(modelled.times))
    orders, answers = [], []
    for table in (modelled, dataclasses.replace(modelled, times=wrong)):
        rows = rows_of_table(table, kernel)
        ranking = rank(table, kernel, rows, grow(rows, rows.shape != place), others)
        orders.append(list(ranking.order(shape)))
        answers.append(list(ranking.answers(shape)))
    assert orders[0] == orders[1] and answers[0] == answers[1] and answers[0][0] == ranking.best(shape)
    best = modelled.times[place][modelled.best(place)]
    choice = next(c for c in answers[0] if modelled.configs.index(c) in modelled.times[place])
    found = next(one for one in leave_one_out(modelled, kernel) if one.shape == place)
    assert found.predicted == pytest.approx(best / modelled.times[place][modelled.configs.index(choice)])


@needs_lightgbm
def test_noise_alone_is_not_predicted(modelled: TimeTable) -> None:
    """Times that have nothing to do with configurations: no better than the nearest shape by much, and said so."""
    drawn = np.random.default_rng(1)
    rows = tuple({c: float(drawn.uniform(1, 2)) for c in row} for row in modelled.times)
    table = dataclasses.replace(modelled, times=rows)
    found = cross_validate(list(leave_one_out(table, kernel_of_table(table))))
    assert found.predicted.geomean < 0.9


@needs_lightgbm
def test_nearest_and_default_are_what_they_are_called() -> None:
    """By hand: the nearest shape's best, and where that was not measured its second; the default where it was."""
    shapes = tuple({"M": m} for m in (1, 2, 16, 64, 1024))
    configs = tuple({"B": b} for b in (1, 2, 4))
    times = ({0: 4.0, 1: 5.0}, {0: 10.0, 1: 8.0}, {1: 3.0, 2: 4.0}, {0: 1.0, 2: 2.0}, {0: 2.0, 1: 1.0, 2: 4.0})
    table = TimeTable(shapes, configs, times, (1.0,) * 5)
    found = list(leave_one_out(table, kernel_of_table(table), lambda place: {"B": 4} if place else None))
    assert [one.nearest for one in found] == [4 / 5, 8 / 10, 3 / 4, 1 / 2, 1 / 2]
    assert [one.default for one in found] == [None, None, 3 / 4, 1 / 2, 1 / 4]
    assert [one.answered for one in found] == [True] * 4 + [False], "nothing is known to be right at the largest shape"
    assert found[-1].predicted is None and cross_validate(found).unanswered == 1 / 5


@needs_lightgbm
def test_a_choice_that_only_the_shape_left_out_knows_to_be_right_is_none() -> None:
    """It is what would be fastest there, was measured there and at smaller shapes: lookups would not answer it."""
    shapes = tuple({"M": m} for m in (1, 2, 4, 8, 16, 32))
    times = tuple({0: 1.0, 1: 2.0} if m["M"] < 16 else {1: 2.0} if m["M"] > 16 else {0: 1.0, 1: 2.0} for m in shapes)
    table = TimeTable(shapes, ({"B": 1}, {"B": 2}), times, (1.0,) * 6)
    found = list(leave_one_out(table, kernel_of_table(table)))
    assert [one.predicted for one in found] == [1.0, 1.0, 1.0, 1.0, 0.5, None]


def test_what_the_figures_do_not_tell_is_said() -> None:
    held = [HeldOut(0, 0.9, 0.8, None, True), HeldOut(1, 0.9, 0.8, None, False), HeldOut(2, None, 0.8, None, False)]
    assert cross_validate(held[:1]).doubts == ()
    assert cross_validate([*held, HeldOut(3, None, 0.9, None, False, answered=False)]).doubts == (
        "at 50% of them the next choice stood for one that was not measured",
        "at 25% of all shapes no configuration was known to be right",
    )


def test_accuracy_by_hand() -> None:
    fractions = [1.0, 0.5, 0.9, 0.8, 0.7, 0.95, 0.99, 0.6, 0.85, 0.65, 0.75]
    found = Accuracy.of(fractions)
    assert found.geomean == pytest.approx(math.prod(fractions) ** (1 / 11))
    assert (found.p10, found.worst) == (0.6, 0.5)
    assert Accuracy.of([1.0, 1.0]) == Accuracy(1.0, 1.0, 1.0)


def test_only_shapes_that_all_ways_were_scored_at_count() -> None:
    held = [HeldOut(0, 0.9, 0.8, 0.5, True), HeldOut(1, None, 0.1, 0.1, False), HeldOut(2, 0.7, None, 0.1, True)]
    found = cross_validate([*held, HeldOut(3, 0.8, 0.6, None, False)])
    assert found.shapes == 2 and found.predicted.worst == 0.8 and found.nearest.worst == 0.6
    assert found.default is None and found.unmeasured == 0.5 and found.pays
    assert found.expected_loss == pytest.approx(1 / math.sqrt(0.9 * 0.8) - 1)
    assert not cross_validate([HeldOut(0, 0.8, 0.8, 0.1, True)]).pays
    assert not cross_validate([HeldOut(0, 0.8, 0.7, 0.9, True)]).pays
    with pytest.raises(LearnError, match="no two shapes"):
        cross_validate(held[1:])


def test_candidates_are_those_that_were_near_the_best_somewhere() -> None:
    times = ({0: 100.0, 1: 109.0, 2: 150.0}, {0: 300.0, 2: 200.0, 3: 221.0}, {1: 10.0, 4: 30.0})
    table = TimeTable(({"M": 1}, {"M": 2}, {"M": 3}), tuple({"B": b} for b in range(1, 6)), times, (1.0,) * 3)
    assert candidates_of(table, [0, 1, 2]) == [1, 0, 2]
    assert candidates_of(table, [0]) == [0, 1]


def test_groups_hold_what_may_be_compared(modelled: TimeTable, searches: Searches) -> None:
    logs = searches(modelled, CHAIN)
    other = [replace(log, toolchain={"deuteron": "0.2.0"}) for log in logs[:7]]
    text = [replace(log, kernel_hash="cd" * 32) for log in logs]
    found = groups_of_logs([*other, *logs, *text, replace(logs[0], known=())], kernel_hash_of(SPEC))
    assert [(group.shapes, group.toolchain) for group in found] == [(12, CHAIN), (7, {"deuteron": "0.2.0"})]
    assert [list(group.logs) for group in found] == [logs, other], "of this text alone, and with times"


@pytest.mark.parametrize(
    "key", ["cuda/h200/cc90/sm132/144gib/700w", "cpu/epyc/cores2", "cuda/a100-pcie", "cuda/l4/mig-on"]
)
def test_a_device_is_read_off_its_key(key: str) -> None:
    assert DeviceFingerprint.from_key(key).key == key


@pytest.mark.parametrize("key", ["cuda", "cuda/h200/what", "cpu/epyc/sm2", ""])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(SchemaError, match="is the key of no device"):
        DeviceFingerprint.from_key(key)


def test_what_cannot_be_learnt_from_is_refused(modelled: TimeTable, searches: Searches) -> None:
    few = dataclasses.replace(
        modelled, shapes=modelled.shapes[:4], times=modelled.times[:4], weights=modelled.weights[:4]
    )
    with pytest.raises(LearnError, match=r"4 shapes were measured; at least 5"):
        learn(group_of(searches(few, CHAIN)), SPEC)
    with pytest.raises(LearnError, match=r"4 shapes were measured; at least 5"):
        list(leave_one_out(few, kernel_of_table(few)))
    foreign: list[SearchLog] = []
    for log in searches(modelled, CHAIN):
        known = tuple(replace(one, config={**one.config, "BLOCK_M": 48}) for one in log.known)
        foreign.append(replace(log, known=known))
    (group,) = groups_of_logs(foreign, kernel_hash_of(SPEC))
    with pytest.raises(LearnError, match=r"no configuration that was measured at .* is of the workload's space"):
        learn(group, SPEC)


def test_without_lightgbm_the_extra_is_named(modelled: TimeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*extras: str, by: str) -> None:
        raise MissingExtra(by, ["lightgbm"], extras)

    monkeypatch.setattr(training, "require_extras", missing)
    with pytest.raises(MissingExtra, match=r"learning from trials.*|deuteron\[learn\]"):
        grow(rows_of_table(modelled, kernel_of_table(modelled)))
