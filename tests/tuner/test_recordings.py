from __future__ import annotations

import gzip
import json
import random
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deuteron.tuner.codec import decode
from deuteron.tuner.events import JobStarted, TrialFinished
from deuteron.tuner.input_file import read_file
from deuteron.tuner.journal import JournalHeader
from deuteron.tuner.measure.measurement import Measurement, TimingProtocol
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.replay import (
    PROTOCOLS,
    Protocol,
    Recording,
    RecordingError,
    StrategyComparison,
    StrategyScore,
    compare,
    plot_svg,
    read_journal,
    read_recording,
    search,
    warm_surrogate,
)
from deuteron.tuner.replay.kernel_tuner import observed_parameters
from deuteron.tuner.replay.search import convention, pick
from deuteron.tuner.space import Configuration
from deuteron.tuner.strategies import STRATEGIES, Outcome, make_strategy
from deuteron.tuner.strategies.exhaustive import ExhaustiveStrategy
from deuteron.tuner.trial import Trial

DATA = Path(__file__).parent / "data"
SAMPLE = DATA / "convolution-A4000-sample.json"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(SAMPLE)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    cache = {
        "1,a": {"x": 1, "mode": "a", "time": 9.0, "times": [3.0, 5.0]},
        "2,a": {"x": 2, "mode": "a", "time": "RuntimeFailedConfig"},
        "2,b": {"x": 2, "mode": "b", "time": 2.0},
    }
    data = {
        "device_name": "some GPU",
        "kernel_name": "k",
        "tune_params_keys": ["x", "mode"],
        "tune_params": {"x": [1, 2], "mode": ["a", "b"]},
        "cache": cache,
    }
    path.write_text(json.dumps(data))
    return path


def test_reads_values_failures_and_absent_points(tiny: Path) -> None:
    recording = read_recording(tiny)
    assert recording.best_ns == 2e6
    assert recording.outcome({"x": 1, "mode": "a"}).value == 4e6  # the mean of times, not the field time
    assert recording.outcome({"x": 2, "mode": "a"}).label == "failed"
    assert recording.outcome({"x": 1, "mode": "b"}).label == "invalid"
    assert recording.space("charged").count() == 4
    assert recording.space("constrained").count() == 3


def curve(recording: Recording, strategy: str, seed: int, evaluations: int, protocol: Protocol) -> list[float]:
    made = make_strategy(strategy, recording.space(convention(protocol)), seed)
    return list(search(recording, made, evaluations, protocol, seed).fractions.values())


def score_of(recording: Recording, name: str, protocol: Protocol, budget: int, seeds: int) -> StrategyScore:
    (score,) = compare([recording], {name: STRATEGIES[name]}, protocol=protocol, budget=budget, seeds=range(seeds))
    return score


def mean_fractions(recording: Recording, name: str, protocol: Protocol, budget: int, seeds: int) -> dict[int, float]:
    score = score_of(recording, name, protocol, budget, seeds)
    return {n: score.at(n).mean for n in score.fractions}


def test_curves_in_both_conventions(tiny: Path) -> None:
    recording = read_recording(tiny)
    assert curve(recording, "exhaustive", 0, 4, "charged") == [0.5, 0.5, 0.5, 1.0]
    assert curve(recording, "exhaustive", 0, 4, "constrained") == [0.5, 0.5, 1.0, 1.0]  # three are all there are


def test_unfinished_and_gzipped_files(tiny: Path) -> None:
    text = tiny.read_text()
    tiny.write_text(text[: text.index(', "2,b"')] + ",\n")
    assert len(read_recording(tiny).trials) == 2
    packed = tiny.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert len(read_recording(packed).trials) == 3


@pytest.mark.parametrize("message", ["expected '}'", "expected '{'", "{{", "}}}"])
def test_braces_in_messages_are_no_braces_of_the_file(tiny: Path, message: str) -> None:
    cache = json.loads(tiny.read_text())
    cache["cache"]["2,a"]["__error__"] = message
    text = json.dumps(cache)
    for written in (text, text[: text.index(', "2,b"')] + ",\n"):
        tiny.write_text(written)
        assert [t.error for t in read_recording(tiny).trials] == [None, message, None][: 3 if written is text else 2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tune_params": {"x": [7], "mode": ["b"]}}, "none of its configurations has values that its parameters have"),
        ({"tune_params": {"x": [1, 2, 10**400], "mode": ["a", "b"]}}, "parameter 'x' has a choice of 1329 bits"),
        ({"cache": {"1,a": {"x": 1, "mode": "a", "time": 0.0}}}, r'tiny.json: the configuration .*"x":1} took 0 ns'),
        ({"cache": {"1,a": {"x": 1, "mode": "a", "time": 1.0, "times": [3.0, -1.0]}}}, "took -1e.06 ns"),
        ({"cache": {"1,a": {"x": 1, "mode": "a", "time": 1.0, "times": [3.0, 0.0]}}}, "took 0 ns"),
        ({"cache": {"1,a": {"x": 1, "mode": "a"}}}, "the field 'time' is missing"),
        ({"cache": {"1,a": {"x": 1, "mode": "a", "time": float("nan")}}}, "not valid JSON at line 1, column 181: "),
        ({"objective": "score"}, "tiny.json: its objective is 'score'"),
        ({"tune_params_keys": [], "tune_params": {}}, "tiny.json: it names no parameters"),
        ({"tune_params_keys": ["x", "mode", "y"]}, "tune_params has no values of 'y'"),
        ({"cache": {"1": {"x": 1, "time": 1.0}}}, r"tiny.json.cache.1: the field 'mode' is missing"),
    ],
)
def test_recordings_of_what_nobody_measures_are_refused(tiny: Path, changes: dict[str, object], says: str) -> None:
    tiny.write_text(json.dumps({**json.loads(tiny.read_text()), **changes}))
    with pytest.raises(RecordingError, match=says):
        read_recording(tiny)


def test_failures_with_a_field_of_their_own(tiny: Path) -> None:
    """As Kernel Tuner's own store_cache writes them since it has error classes."""
    data = json.loads(tiny.read_text())
    data["cache"]["2,a"] = {"x": 2, "mode": "a", "__error__": "CompilationFailedConfig", "timestamp": "x"}
    tiny.write_text(json.dumps(data))
    recording = read_recording(tiny)
    assert [trial.error for trial in recording.known] == [None, "CompilationFailedConfig", None]


def test_failures_of_old_versions_have_an_absurd_time(tiny: Path) -> None:
    """As ``runners/sequential.py`` of Kernel Tuner 0.3.2 stores them."""
    data = json.loads(tiny.read_text())
    data["cache"]["2,a"] = {"x": 2, "mode": "a", "time": 1e20}
    tiny.write_text(json.dumps(data))
    recording = read_recording(tiny)
    assert [(trial.time_ns, trial.error) for trial in recording.known] == [(4e6, None), (None, "failed"), (2e6, None)]


def test_what_is_outside_the_space_does_not_count(tiny: Path) -> None:
    data = json.loads(tiny.read_text())
    data["cache"]["9,a"] = {"x": 9, "mode": "a", "time": 0.5}
    tiny.write_text(json.dumps(data))
    recording = read_recording(tiny)
    assert recording.best_ns == 2e6 and recording.space("constrained").count() == 3
    for protocol in PROTOCOLS:
        assert curve(recording, "exhaustive", 0, 10, protocol)[-1] == 1.0


def test_a_value_that_equals_a_choice_is_that_choice(tiny: Path) -> None:
    """Caches write 1.0 for the choice 1: a strategy proposes the choice."""
    data = json.loads(tiny.read_text())
    data["tune_params"]["on"] = [True, False, 3]
    data["tune_params_keys"].append("on")
    for at, (entry, on) in enumerate(zip(data["cache"].values(), (1, 1.0, True), strict=True)):
        entry |= {"x": float(entry["x"]), "on": on, "time": at + 1.0, "times": None}
    tiny.write_text(json.dumps(data))
    recording = read_recording(tiny)
    assert [dict(trial.config) for trial in recording.known] == [
        {"x": 1, "mode": "a", "on": True},
        {"x": 2, "mode": "a", "on": True},
        {"x": 2, "mode": "b", "on": True},
    ]
    assert all(type(trial.config["x"]) is int and trial.config["on"] is True for trial in recording.known)
    for protocol in PROTOCOLS:
        for strategy in ("random", "surrogate"):
            assert curve(recording, strategy, 0, 12, protocol)[-1] == pytest.approx(1.0)


def test_of_equal_choices_the_one_of_the_same_type_counts(tiny: Path) -> None:
    data = json.loads(tiny.read_text())
    data["tune_params"]["x"] = [1, 1.0, 2]
    data["cache"]["1,a"]["x"] = 1.0
    data["cache"]["2,b"]["x"] = 2.0
    data["cache"]["True,a"] = {"x": True, "mode": "a", "time": 0.5}  # either of two
    tiny.write_text(json.dumps(data))
    known = read_recording(tiny).known
    assert [repr(trial.config["x"]) for trial in known] == ["1.0", "2", "2"]


def test_a_configuration_that_is_there_twice_is_one(tmp_path: Path) -> None:
    """All of its timings count, and a failure only where it never worked."""
    rows = [((1, 1), [5.0]), ((1, 2), [6.0, 8.0]), ((2, 1), []), ((1, 1), [7.0, 9.0]), ((2, 2), []), ((2, 2), [8.0])]
    results = [
        {
            "configuration": {"a": a, "b": b},
            "times": {"runtimes": runtimes},
            "invalidity": "correct" if runtimes else "timeout",
        }
        for (a, b), runtimes in rows
    ]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": results}))
    recording = read_recording(path)
    assert [trial.time_ns for trial in recording.known] == [7e6, 7e6, None, 8e6]
    assert recording.known[0].samples_ns == (5e6, 7e6, 9e6)
    assert recording.space("constrained").count() == 4
    for protocol in PROTOCOLS:
        assert curve(recording, "exhaustive", 0, 12, protocol)[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_searches_of_few_evaluations_have_a_score(tiny: Path, protocol: Protocol) -> None:
    """And a curve that goes to their end."""
    recording = read_recording(tiny)
    for budget in (1, 2, 3, 4, 5, 9, 11, 13):
        score = score_of(recording, "exhaustive", protocol, budget, 2)
        assert score.quartiles.evaluations[-1] == budget
        assert score.at(budget).mean == (0.5 if budget < 3 else 1.0) or protocol != "constrained"
        assert 0.5 <= score.at(budget).mean <= 1.0


def test_of_packed_files_as_much_is_read_as_may_be(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(bytes(1 << 20)))
    assert len(read_file(path, 1 << 20)) == 1 << 20
    with pytest.raises(OSError, match="more than 0 MiB"):
        read_file(path, (1 << 20) - 1)
    path.write_bytes(gzip.compress(b"in one") + gzip.compress(b" and another"))
    assert read_file(path) == b"in one and another"


def test_damaged_gzip_is_a_message(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 99))
    packed[20:40] = bytes(range(200, 220))
    for content in (packed, packed[:20], b"no gzip"):
        (tmp_path / "x.json.gz").write_bytes(content)
        with pytest.raises(RecordingError, match="cannot be read"):
            read_recording(tmp_path / "x.json.gz")


def test_configurations_over_different_parameters_are_no_space() -> None:
    with pytest.raises(RecordingError, match="no value of 'a'"):
        observed_parameters([{"a": 1}, {"b": 1}])
    with pytest.raises(RecordingError, match="no value of 'b'"):  # else three configurations would be one, or two
        observed_parameters([{"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cache": {}}', "not json"])
def test_malformed_file_is_a_message(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(RecordingError, match="bad.json"):
        read_recording(path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path / "absent.json")


def test_sample_of_a_real_recording(recording: Recording) -> None:
    assert recording.device_name == "NVIDIA RTX A4000"
    raw = json.loads(SAMPLE.read_text())["cache"]
    assert len(recording.trials) == len(raw) > 300
    measured = [statistics.fmean(e["times"]) for e in raw.values() if "times" in e]
    assert recording.best_ns == pytest.approx(1e6 * min(measured))
    assert sum(t.error == "RuntimeFailedConfig" for t in recording.trials) == len(raw) - len(measured)


def test_random_search_scores_what_drawing_without_replacement_must(recording: Recording) -> None:
    """An independent simulation with random.sample on the raw table."""
    raw = json.loads(SAMPLE.read_text())["cache"]
    times = [statistics.fmean(e["times"]) if "times" in e else float("inf") for e in raw.values()]
    rng = random.Random(0)
    expected = statistics.fmean(min(times) / min(rng.sample(times, 25)) for _ in range(4000))
    scores = mean_fractions(recording, "random", "constrained", 100, 200)
    assert scores[25] == pytest.approx(expected, abs=0.02)
    assert scores[100] > scores[25]
    assert mean_fractions(recording, "random", "charged", 25, 60)[25] < scores[25]


def test_reads_our_own_journals() -> None:
    (recording,) = read_journal(DATA / "stored" / "journal.jsonl")
    assert recording.name == "scale n=4099 f32"
    assert recording.space("constrained").count() == 3
    assert {p.name: p.choices for p in recording.parameters} == {"BLOCK": (256, 512, 1024), "num_warps": (4,)}
    assert recording.time_ns({"BLOCK": 512, "num_warps": 4}) == 8889.565217391304
    assert curve(recording, "exhaustive", 0, 3, "constrained")[-1] == 1.0


def test_a_replayed_search_reads_what_the_journal_measured(tmp_path: Path) -> None:
    """Under every protocol a strategy hears the measurement of each variant, not its time alone."""
    lines = [JournalHeader(1, "some job"), JobStarted("k", "cpu/some", "random", 1, 9, None)]
    measured = {}
    for number, (block, bound) in enumerate([(1, "memory"), (2, "registers"), (4, "parallelism")]):
        time = Interval(10.0 * block, 10.0 * block, 10.0 * block, 5)
        measured[block] = Measurement(time, TimingProtocol("device", True, "rounds"), 1.0, 2.0, bound=bound)
        trial = Trial(number, {"B": block}, "ok", "screen", time, measurement=measured[block])
        lines.append(TrialFinished({"n": 9}, "f32", trial, None))
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line.to_json()) + "\n" for line in lines))
    (recording,) = read_journal(tmp_path)
    for protocol in PROTOCOLS:
        told: dict[object, Measurement | None] = {}

        class Listener(ExhaustiveStrategy):
            def tell(self, config: Configuration, outcome: Outcome) -> None:
                told[config["B"]] = outcome.measurement  # noqa: B023
                super().tell(config, outcome)

        search(recording, Listener(recording.space("constrained"), 0), 3, protocol, 0)
        assert told == measured, protocol


def test_what_is_no_journal_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read"):
        read_journal(tmp_path)
    (tmp_path / "journal.jsonl").write_text('{"job":"x","journal":1}\n{"kind":"nonsense"}\n')
    with pytest.raises(RecordingError, match="not a journal"):
        read_journal(tmp_path)
    (tmp_path / "journal.jsonl").write_text('{"job":"x","journal":1}\n')
    with pytest.raises(RecordingError, match="no shape"):
        read_journal(tmp_path)


def test_a_lucky_timing_is_not_picked(tmp_path: Path) -> None:
    """Of ten configurations nine have one timing in twenty that is half of what is usual; the tenth is fastest."""
    cache = {str(i): {"x": i, "time": 1.0, "times": [5.0] + [10.0] * 19} for i in range(9)}
    cache["9"] = {"x": 9, "time": 1.0, "times": [7.0] * 20}
    path = tmp_path / "noise.json"
    path.write_text(json.dumps({"tune_params_keys": ["x"], "tune_params": {"x": list(range(10))}, "cache": cache}))
    recording = read_recording(path)
    picks, lucky = [], 0
    for seed in range(60):
        rng = random.Random(seed)
        configs = recording.space("constrained").configurations()
        timings = [(config, time) for config in configs if (time := recording.sample_ns(config, rng)) is not None]
        lucky += min(timings, key=lambda pair: pair[1])[0] != {"x": 9}
        picks.append(pick(recording, timings, 20, rng) == {"x": 9})
    assert lucky > 12
    assert sum(picks) > 54


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_scores_every_checkpoint(recording: Recording, protocol: Protocol) -> None:
    score = score_of(recording, "random", protocol, 60, 4)
    assert set(score.fractions) == {25, 50, 60}
    values = [value for fractions in score.fractions.values() for value in fractions]
    assert all(0 <= value <= 1 for value in values) and max(values) > 0.5
    curves = score.quartiles
    assert len(curves.evaluations) == len(curves.median)
    assert all(a <= b <= c for a, b, c in zip(curves.low, curves.median, curves.high, strict=True))
    comparison = StrategyComparison((score,))
    assert decode(json.dumps(comparison.to_json()), StrategyComparison, "scores") == comparison


def test_errors_are_those_of_a_mean(recording: Recording) -> None:
    (score,) = compare([recording], {"random": STRATEGIES["random"]}, protocol="charged", budget=25, seeds=range(9))
    mean = score.at(25)
    assert mean.mean == pytest.approx(statistics.fmean(score.fractions[25]))
    assert mean.error == pytest.approx(statistics.stdev(score.fractions[25]) / 3)
    both = StrategyComparison((score, score))
    assert both.over_recordings("random", 25).error == pytest.approx(mean.error / 2**0.5)


def test_the_plot_has_a_panel_a_recording_and_a_line_a_strategy(recording: Recording, tiny: Path) -> None:
    spaces = [recording, read_recording(tiny)]
    chosen = {name: STRATEGIES[name] for name in ("random", "exhaustive")}
    comparison = StrategyComparison(tuple(compare(spaces, chosen, protocol="charged", budget=30, seeds=range(3))))
    root = ElementTree.fromstring(plot_svg(comparison))
    lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4 and len({line.get("stroke") for line in lines}) == 2
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"convolution-A4000-sample", "tiny", "random", "exhaustive"} <= set(texts)


@pytest.mark.parametrize(
    ("name", "protocol"), [("gemm-RTX2080Ti-SA1-SB1", "constrained"), ("convolution-A4000", "charged")]
)
def test_the_surrogate_beats_chance_on_recorded_spaces(name: str, protocol: Protocol) -> None:
    """The mean of four searches is ahead of that of chance by three standard errors of four random ones and more."""
    recording = read_recording(DATA / f"{name}.json.gz")
    ours = mean_fractions(recording, "surrogate", protocol, 40, 4)
    chance = score_of(recording, "random", protocol, 40, 40)
    assert ours[40] > chance.at(40).mean + 3 * statistics.stdev(chance.fractions[40]) / 4**0.5


def test_a_warm_start_is_ahead_after_25_evaluations() -> None:
    """The A4000 knows something about the W6600: another vendor, the same kernel. Of 30 seeds after 5, 10 and 24
    evaluations: 0.53, 0.71 and 0.89 of the optimum, cold 0.64, 0.74 and 0.82; fewer seeds say anything."""
    here, there = (read_recording(DATA / f"convolution-{device}.json.gz") for device in ("W6600", "A4000"))
    make = warm_surrogate(there, evaluations=60)
    space = here.space("constrained")
    warm, cold = [], []
    for seed in range(30):
        warm.append(search(here, make(space, seed), 25, "constrained", seed).fractions[24])
        cold.append(search(here, make_strategy("surrogate", space, seed), 25, "constrained", seed).fractions[24])
    assert statistics.fmean(warm) > statistics.fmean(cold)


def test_a_warm_start_from_another_kernel_is_refused(tiny: Path) -> None:
    here = read_recording(DATA / "convolution-W6600.json.gz")
    with pytest.raises(RecordingError, match="tiny has no configurations"):
        warm_surrogate(read_recording(tiny))(here.space("constrained"), 0)
