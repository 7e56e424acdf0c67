from __future__ import annotations

import gzip
import json
import random
import statistics
from pathlib import Path

import pytest

from replay import Recording, RecordingError, best_so_far, read_kernel_tuner, score

SAMPLE = Path(__file__).parent / "data" / "convolution-A4000-sample.json"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_kernel_tuner(SAMPLE)


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
    recording = read_kernel_tuner(tiny)
    assert recording.best_ns == 2e6
    assert recording.outcome({"x": 1, "mode": "a"}).value == 4e6  # the mean of times, not the field time
    assert recording.outcome({"x": 2, "mode": "a"}).label == "failed"
    assert recording.outcome({"x": 1, "mode": "b"}).label == "invalid"
    assert recording.space("charged").count() == 4
    assert recording.space("constrained").count() == 3


def test_curves_in_both_conventions(tiny: Path) -> None:
    recording = read_kernel_tuner(tiny)
    assert best_so_far(recording, "exhaustive", 0, 4, "charged") == [0.5, 0.5, 0.5, 1.0]
    assert best_so_far(recording, "exhaustive", 0, 4, "constrained") == [0.5, 0.5, 1.0, 1.0]


def test_unfinished_and_gzipped_files(tiny: Path) -> None:
    text = tiny.read_text()
    tiny.write_text(text[: text.index(', "2,b"')] + ",\n")
    assert len(read_kernel_tuner(tiny).trials) == 2
    packed = tiny.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert len(read_kernel_tuner(packed).trials) == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cache": {}}', "not json"])
def test_malformed_file_is_a_message(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(RecordingError, match="bad.json"):
        read_kernel_tuner(path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_kernel_tuner(tmp_path / "absent.json")


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
    scores = score(recording, "random", convention="constrained", evaluations=(25, 100), seeds=range(200))
    assert scores[25] == pytest.approx(expected, abs=0.02)
    assert scores[100] > scores[25]
    charged = score(recording, "random", convention="charged", evaluations=(25,), seeds=range(60))
    assert charged[25] < scores[25]
