"""Searches that start from others: which count, what is tried first, when they end, and where they are read from."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replace_place
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deuteron.tuner.codec import Document
from deuteron.tuner.errors import BundleError, SchemaError
from deuteron.tuner.events import JobStarted, ShapeFinished, TrialFinished
from deuteron.tuner.experience import (
    Course,
    KnownConfig,
    SearchLog,
    SearchPlace,
    Start,
    Waves,
    logs_of_records,
    logs_of_trials,
    start_from,
)
from deuteron.tuner.experience.patience import LONG_PATIENCE, PATIENCE, Patience, rank_correlation
from deuteron.tuner.experience.sources import SourceError, read_logs
from deuteron.tuner.http import ServiceUnreachable
from deuteron.tuner.journal import JournalHeader
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.records import ConfigRecord, write_bundle
from deuteron.tuner.space import Configuration, Parameter, Space
from deuteron.tuner.strategies.surrogate import Prior
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads import builtin_workload

SPACE = Space(tuple(Parameter(name, (1, 2, 4, 8, 16)) for name in "ab"), ("a * b <= 64",))
PLACE = SearchPlace("k", "text", "cuda/h200", {"M": 64, "N": 64}, "f16")


def one_wave(shape: object, config: object) -> float:
    return 1.0


def log(count: int = 12, seed: int = 0, **changes: object) -> SearchLog:
    configs = random.Random(seed).sample(list(SPACE.configurations()), count)
    known = sorted(
        (KnownConfig(c, 1000.0 * int(c["a"]) + 10.0 * int(c["b"])) for c in configs), key=lambda k: k.time_ns
    )
    here = {
        "kernel_name": "k",
        "kernel_hash": "text",
        "device": "cuda/h200",
        "shape": {"M": 64, "N": 64},
        "dtype": "f16",
    }
    return SearchLog(**{**here, "known": tuple(known), **changes})  # type: ignore[arg-type]


def test_what_says_nothing_has_no_distance() -> None:
    assert PLACE.distance(log(kernel_name="other", kernel_hash="other")) is None
    assert PLACE.distance(log(device="cpu/epyc")) is None
    assert PLACE.distance(log(shape={"M": 64})) is None
    assert PLACE.distance(log(kernel_name="renamed")) == 0


def test_nearer_is_more_alike() -> None:
    """Shapes by the squares of their ratios' logarithms; a dtype or a text count for less than another device."""
    near = PLACE.distance(log(shape={"M": 128, "N": 64}))
    far = PLACE.distance(log(shape={"M": 256, "N": 64}))
    text = PLACE.distance(log(kernel_hash="older"))
    dtype = PLACE.distance(log(dtype="f32"))
    device = PLACE.distance(log(device="cuda/a100"))
    assert (near, far) == (1.0, 4.0)
    assert text is not None and dtype is not None and device is not None
    assert 0 < text < device and 0 < dtype < device
    assert PLACE.distance(log(kernel_hash="older", dtype="f32")) == text + dtype


def test_a_start_knows_its_sources_and_tries_the_best_of_each() -> None:
    near, far = log(dtype="f32"), log(20, seed=1, device="cuda/a100", shape={"M": 512, "N": 64})
    start = start_from(SPACE, PLACE, [far, log(kernel_name="x", kernel_hash="x"), near], one_wave)
    assert start is not None and start.sources == (near, far) and start.same_device
    assert start.prior.first[0] == near.known[0].config and far.known[0].config in start.prior.first[:2]
    assert len(start.prior.first) == 4 and all(SPACE.contains(config) for config in start.prior.first)
    assert start.names[0] == "M=64,N=64 f32 on cuda/h200 (12 configurations)"
    assert start.prior.log_times is not None
    slow, fast = start.prior.log_times([{"a": 16, "b": 1}, {"a": 1, "b": 1}])
    assert slow > fast + 1


def test_nearer_searches_predict_more() -> None:
    """The far one says the opposite: its weight is too small to turn the order round."""
    far = log(20, shape={"M": 4096, "N": 64})
    reversed_far = replace(far, known=tuple(KnownConfig(k.config, 1e8 / k.time_ns) for k in far.known))
    start = start_from(SPACE, PLACE, [reversed_far, log(20)], one_wave)
    assert start is not None and start.prior.log_times is not None
    slow, fast = start.prior.log_times([{"a": 16, "b": 1}, {"a": 1, "b": 1}])
    assert slow > fast


def test_a_record_only_says_what_to_try() -> None:
    start = start_from(SPACE, PLACE, [log(2)], one_wave)
    assert start is not None and start.prior.log_times is None
    assert len(start.prior.first) == 2 and not start.same_device


def test_other_devices_are_not_believed_to_the_end() -> None:
    start = start_from(SPACE, PLACE, [log(device="cuda/a100")], one_wave)
    assert start is not None and start.prior.log_times is not None and not start.same_device


def test_nothing_of_use_is_no_start() -> None:
    strangers = replace(log(), known=(KnownConfig({"a": 3, "b": 1}, 1.0), KnownConfig({"c": 1}, 1.0)))
    outside = replace(log(), known=(KnownConfig({"a": 16, "b": 16}, 1.0),))
    assert start_from(SPACE, PLACE, [], one_wave) is None
    assert start_from(SPACE, PLACE, [strangers, outside, replace(log(), known=())], one_wave) is None


def test_of_one_place_the_fuller_log_counts() -> None:
    few, many = log(6), log(20)
    start = start_from(SPACE, PLACE, [few, many, few], one_wave)
    assert start is not None and start.sources == (many,)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([64, 256, 2048, 8192]), st.sampled_from([64, 512, 8192]), st.integers(1, 200))
def test_times_carry_over_as_waves(rows: int, columns: int, processors: int) -> None:
    """Tiles of ``a * b`` that take as long as they are large, as soon as there are processors for all of them: the best
    of one shape is the last of another, and is predicted to be. Where the number of waves is unknown, times count."""

    def waves(shape: Mapping[str, int], config: Configuration) -> float:
        return max(1.0, shape["M"] / int(config["a"]) * shape["N"] / int(config["b"]) / processors)

    def time_of(shape: Mapping[str, int], config: Configuration) -> float:
        return waves(shape, config) * (int(config["a"]) * int(config["b"])) ** 0.7

    here, there = {"M": 16, "N": 16}, {"M": rows, "N": columns}
    known = sorted((KnownConfig(c, time_of(there, c)) for c in SPACE.configurations()), key=lambda k: k.time_ns or 0.0)
    place = replace_place(PLACE, shape=here)
    start = start_from(SPACE, place, [log(shape=there, known=tuple(known))], waves)
    assert start is not None and start.prior.log_times is not None
    configs = list(SPACE.configurations())
    measured = [time_of(here, config) for config in configs]
    if len(set(measured)) > 1:
        assert rank_correlation(start.prior.log_times(configs), measured) > 0.9
    assert [time_of(here, c) for c in start.prior.first] == pytest.approx(sorted(measured)[:4])
    plain = start_from(SPACE, place, [log(shape=there, known=tuple(known))], lambda at, config: None)
    assert plain is not None and plain.prior.first == tuple(k.config for k in known[:4])


def test_waves_of_a_product() -> None:
    waves = Waves(builtin_workload("matmul"), "bf16", 132)
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
    assert waves.at({"M": 4096, "N": 4096, "K": 4096}, config) == 32 * 16 / 132
    assert waves.at({"M": 128, "N": 8192, "K": 8192}, config) == 1.0
    assert waves.at({"M": 128, "N": 8192}, config) is None
    assert waves.at({"M": 4096, "N": 4096, "K": 4096}, {"BLOCK_M": 128}) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_pearsons_of_mean_ranks(pairs: list[tuple[int, int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        return [sum(v < x for v in values) + (sum(v == x for v in values) - 1) / 2 for x in values]

    a, b = (ranks(list(values)) for values in zip(*pairs, strict=True))
    found = rank_correlation(*(list(map(float, values)) for values in zip(*pairs, strict=True)))
    expected = 0.0 if len(set(a)) == 1 or len(set(b)) == 1 else float(np.corrcoef(a, b)[0, 1])
    assert found == pytest.approx(expected, abs=1e-9)


def told(times: list[float | None], predicted: Callable[[int], float]) -> Patience:
    patience = Patience()
    for place, time in enumerate(times):
        patience.tell(predicted(place), time)
    return patience


def test_patience_ends_where_predictions_hold_and_nothing_improves() -> None:
    rising: list[float | None] = [1000.0 + 10 * place for place in range(PATIENCE + 1)]
    assert told(rising, float).over
    assert not told(rising[:-1], float).over  # too few
    assert not told(rising, lambda place: -place).over  # ranked the other way round

    def best_last(place: int) -> float:
        return -1.0 if place == PATIENCE else place

    gaining = [*rising[:-1], 900.0]
    assert not told(gaining, best_last).over
    assert told([*gaining, *(2000.0 + place for place in range(PATIENCE))], best_last).over
    assert told([*rising[:-1], 999.0], best_last).over  # less than half a percent is no gain
    assert not told([None] * 40, float).over  # nothing worked


def test_patience_ends_also_where_predictions_do_not_hold() -> None:
    """But after longer, and after each gain anew."""
    rising: list[float | None] = [1000.0 + 10 * place for place in range(LONG_PATIENCE + 1)]

    def wrong(place: int) -> float:
        return -float(place)

    assert told(rising, wrong).over and not told(rising[:-1], wrong).over
    assert not told([None] * (LONG_PATIENCE + 9), float).over, "as long as nothing works"
    gaining = [*rising[:-1], 900.0]
    assert not told([*gaining, *rising[1:-1]], wrong).over and told([*gaining, *rising[1:]], wrong).over


def test_a_course_reports_what_the_start_was_worth() -> None:
    first = ({"a": 1, "b": 2}, {"a": 2, "b": 1})
    source = log()
    course = Course(Start(Prior(lambda configs: [float(c["a"]) for c in configs], first), (source,), True))
    course.tell(first[0], 1250.0)
    course.tell(first[1], None)
    course.tell({"a": 1, "b": 1}, 1000.0)
    report = course.report(100)
    assert (report.tried, report.screened, report.budget, report.share) == (2, 3, 100, 0.8)
    assert report.agreement is None and not report.ended_early
    assert report.text == (
        "started from M=64,N=64 f16 on cuda/h200 (12 configurations); the best of 2 known ones reached 80.0% of the "
        "best found; took 3 of 100 configurations"
    )
    for a in (2, 4, 8, 16) * 6:
        course.tell({"a": a, "b": 1}, 1000.0 * a)
    assert course.over and course.report(100).ended_early and not course.report(27).ended_early
    elsewhere = Course(Start(Prior(lambda configs: [float(c["a"]) for c in configs], first), (source,), False))
    for a in (1, 2, 4, 8, 16) * 8:
        elsewhere.tell({"a": a, "b": 1}, 1000.0 * a)
    assert not elsewhere.over


# -- where they come from


def trial(config: dict[str, int], ns: float | None, phase: str = "screen") -> Trial:
    time = None if ns is None else Interval(ns, ns, ns, 3)
    return Trial(0, config, "ok" if time else "crashed", phase, time)  # type: ignore[arg-type]


def test_logs_are_made_of_trials_that_worked() -> None:
    trials = [
        ({"M": 1}, "f32", trial({"a": 1}, 30.0)),
        ({"M": 1}, "f32", trial({"a": 2}, 20.0)),
        ({"M": 1}, "f32", trial({"a": 4}, None)),
        ({"M": 1}, "f32", trial({"a": 1}, 1.0, "race")),  # of a group that was not completed
        ({"M": 2}, "f32", trial({"a": 1}, None)),
        ({"M": 1}, "bf16", trial({"a": 1}, 5.0)),
        ({"M": 0}, "f32", trial({"a": 1}, 5.0)),  # a journal from elsewhere
    ]
    first, second = logs_of_trials("k", "hash", "cpu/x", trials)
    assert [(known.config, known.time_ns) for known in first.known] == [({"a": 2}, 20.0), ({"a": 1}, 30.0)]
    assert (second.dtype, len(second.known)) == ("bf16", 1)


def group(phase: str, default_ns: float, ratios: Mapping[int, float]) -> list[Trial]:
    """A race or final of configurations by ``a``, the default first."""
    made = []
    for index, (a, ratio) in enumerate(ratios.items()):
        pairs = {"ratio": ratio, "ratio_low": 0.99 * ratio, "ratio_high": 1.02 * ratio, "ratio_pairs": 40.0}
        place = {"group_index": float(index), "group_size": float(len(ratios))}
        # Medians of a group may be in another order than ratios, where drift was not alike for all: ratios count.
        time = default_ns if index == 0 else default_ns * 2
        made.append(replace(trial({"a": a}, time, phase), metrics=pairs | place))
    return made


def times_of(trials: Sequence[Trial]) -> dict[int, float]:
    (log,) = logs_of_trials("k", "hash", "cpu/x", [({"M": 1}, "f32", one) for one in trials])
    assert all(one.range_ns is not None and one.range_ns[0] <= (one.time_ns or 0) for one in log.known)
    return {int(one.config["a"]): round(one.time_ns or 0, 6) for one in log.known}


def test_times_are_those_of_the_last_phase() -> None:
    """Screened at 100, 80, 70 (the luckiest), 82 and 200; the race is twice as slow for all but that one; the final is
    half as slow as that again, and calls another one best."""
    screen = [trial({"a": a}, ns) for a, ns in ((1, 100.0), (2, 80.0), (4, 70.0), (8, 82.0), (16, 200.0))]
    race = group("race", 200.0, {1: 1.0, 2: 0.8, 4: 0.95, 8: 0.82})
    final = group("final", 100.0, {1: 1.0, 8: 0.84, 2: 0.88})
    assert times_of(screen) == {4: 70.0, 2: 80.0, 8: 82.0, 1: 100.0, 16: 200.0}
    assert times_of(screen + race) == {2: 160.0, 8: 164.0, 4: 190.0, 1: 200.0, 16: 400.0}
    # From race to final the three took 1/2, 88/160 and 84/164 of their time: the median for the one left out.
    decided = times_of(screen + race + final)
    since = (88 / 80 + 84 / 82) / 2
    assert decided == {8: 84.0, 2: 88.0, 4: pytest.approx(190 * 84 / 164), 1: 100.0, 16: pytest.approx(200 * since)}
    assert next(iter(decided)) == 8


def test_who_was_left_out_of_a_phase_is_not_the_fastest() -> None:
    """The finalist took more in the final than the others had taken in the race."""
    screen = [trial({"a": a}, 100.0) for a in (8, 4, 2, 1)]
    race = group("race", 100.0, {1: 1.0, 2: 0.90, 4: 0.901, 8: 0.95})
    found = times_of(screen + race + group("final", 100.0, {1: 1.0, 2: 0.96}))
    assert list(found.items())[:2] == [(2, 96.0), (4, 96.0)]
    assert found[8] == pytest.approx(95 * (1 + 0.96 / 0.90) / 2)


def test_the_same_code_takes_the_same_time() -> None:
    """A variant that was not measured again, being the first one's twin, is as fast as that turned out to be."""
    twin = replace(trial({"a": 4}, 50.0), number=2, metrics={"duplicate_of": 1.0})
    screen = [trial({"a": 1}, 100.0), replace(trial({"a": 2}, 50.0), number=1), twin]
    assert times_of(screen) == {2: 50.0, 4: 50.0, 1: 100.0}
    assert times_of(screen + group("race", 100.0, {1: 1.0, 2: 0.9})) == {2: 90.0, 4: 90.0, 1: 100.0}


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e308])
def test_ratios_that_nobody_measures_do_not_count(wrong: float) -> None:
    screen = [trial({"a": 1}, 100.0), trial({"a": 2}, 50.0)]
    assert times_of(screen + group("race", 100.0, {1: 1.0, 2: wrong})) == {2: 100.0, 1: 100.0}


def test_logs_of_records_have_both_configurations(make_record: Callable[..., ConfigRecord]) -> None:
    """Records of older versions may be of no search."""
    (found,) = logs_of_records([make_record({"M": 0}), make_record({"M": 4})])
    assert [known.time_ns for known in found.known] == [1000.0, 1500.0]
    assert found.device == "cuda/h100/cc90/sm132/80gib/700w" and found.shape == {"M": 4}


@pytest.mark.parametrize("ends", [(0.0, 1.5, 1.6), (-1.0, 1.5, 1.6), (0.0, 0.0, 0.0), (5e-324,) * 3])
def test_of_a_speed_up_that_nobody_measures_the_default_is_left(
    make_record: Callable[..., ConfigRecord], ends: tuple[float, float, float]
) -> None:
    low, median, high = ends
    record = replace(make_record({"M": 4}), speedup=Interval(median, low, high, 9))
    (found,) = logs_of_records([record])
    assert [known.time_ns for known in found.known] == [1500.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": {"M": 0}},
        {"known": [{"config": {"a": 1}, "time_ns": 0}]},
        {"known": [{"config": {"a": 1}, "time_ns": 5, "range_ns": [6, 7]}]},
        {"known": [{"config": {"a": 1}, "time_ns": 5, "range_ns": [0, 7]}]},
        {"known": [{"config": {}}]},
        {"dtype": 3},
    ],
)
def test_logs_from_outside_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        SearchLog.from_json({**log().to_json(), **wrong})


def test_records_of_a_bundle_are_logs(tmp_path: Path, make_record: Callable[..., ConfigRecord]) -> None:
    write_bundle(tmp_path / "b", [make_record({"M": 4}), make_record({"M": 8})])
    assert [log.shape for log in read_logs(str(tmp_path / "b"), "kernel")] == [{"M": 4}, {"M": 8}]
    assert read_logs(str(tmp_path / "b"), "other") == []


def test_a_journal_of_two_devices_is_two_searches(tmp_path: Path, make_record: Callable[..., ConfigRecord]) -> None:
    """A job that was killed and went on elsewhere: times of one device are not taken for those of the other."""

    def run(device: str, setup: str, ns: float) -> list[Document]:
        found = replace(trial({"a": 1}, ns), setup=setup)
        return [JobStarted("k", device, "random", 1, 9, None), TrialFinished({"M": 4}, "f32", found, None)]

    finished = ShapeFinished(make_record({"M": 4}, kernel_hash="text", toolchain={"deuteron": "2"}))
    lines = [JournalHeader(1, "j"), *run("cpu/x", "one", 50.0), *run("cpu/y", "two", 70.0), finished]
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(line.to_json()) + "\n" for line in lines))
    found = [(log.device, [known.time_ns for known in log.known], log.toolchain) for log in read_logs(str(path), "k")]
    assert found == [("cpu/x", [50.0], {}), ("cpu/y", [70.0], {"deuteron": "2"})]


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_logs(str(tmp_path / "nothing"), "k")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="neither it nor a folder in it"):
        read_logs(str(tmp_path / "empty"), "k")
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(BundleError):
        read_logs(str(tmp_path / "text"), "k")
    (tmp_path / "damaged.jsonl").write_text(json.dumps({"journal": 1, "job": "x"}) + '\n{"kind": "no such"}\n')
    with pytest.raises(SchemaError):
        read_logs(str(tmp_path / "damaged.jsonl"), "k")
    with pytest.raises(ServiceUnreachable):  # and no path, though its scheme is in capitals
        read_logs("HTTP://127.0.0.1:9", "k")
