"""Recordings in the formats of others: T4 and the results of KTT."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from deuteron.tuner.replay import RecordingError, read_recording

T4 = {
    "schema_version": "1.0.0",
    "metadata": {"timeunit": "microseconds", "device": "some GPU"},
    "results": [
        {"configuration": {"x": 2, "m": "b"}, "times": {"runtimes": [3.0, 5.0]}, "invalidity": "correct"},
        {
            "configuration": {"x": 1, "m": "a"},
            "times": {},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 7.5, "unit": ""}],
        },
        {"configuration": {"x": 1, "m": "b"}, "times": {}, "invalidity": "compile"},
    ],
}


def test_reads_t4(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(T4))
    recording = read_recording(path)
    assert recording.name == "space" and recording.device_name == "some GPU"
    assert [(p.name, p.choices) for p in recording.parameters] == [("x", (1, 2)), ("m", ("b", "a"))]
    assert recording.time_ns({"x": 2, "m": "b"}) == 4000.0
    assert recording.time_ns({"x": 1, "m": "a"}) == 7500.0
    assert recording.outcome({"x": 1, "m": "b"}).label == "failed"
    assert recording.outcome({"x": 2, "m": "a"}).label == "invalid"


def test_t4_in_an_unknown_unit_or_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({**T4, "metadata": {"timeunit": "fortnights"}}))
    with pytest.raises(RecordingError, match="fortnights"):
        read_recording(path)
    path.write_text(json.dumps({**T4, "results": [{"configuration": {"x": 1}}]}))
    with pytest.raises(RecordingError, match="neither runtimes nor"):
        read_recording(path)


KTT = {
    "Metadata": {"ComputeApi": "CUDA", "Device": "some GPU", "KttVersion": "2.1.0", "TimeUnit": "Microseconds"},
    "Results": [
        {
            "ComputationResults": [{"Duration": 3.5, "KernelFunction": "k"}],
            "Configuration": [
                {"Name": "x", "Value": 2, "ValueType": "UnsignedInt"},
                {"Name": "m", "Value": "b", "ValueType": "String"},
            ],
            "KernelName": "k",
            "Status": "Ok",
            "TotalDuration": 4.5,
            "TotalOverhead": 99.0,
        },
        {
            "ComputationResults": [],
            "Configuration": [
                {"Name": "x", "Value": 1, "ValueType": "UnsignedInt"},
                {"Name": "m", "Value": "b", "ValueType": "String"},
            ],
            "KernelName": "k",
            "Status": "ComputationFailed",
            "TotalDuration": 0.0,
        },
    ],
}


def test_reads_results_of_ktt(tmp_path: Path) -> None:
    path = tmp_path / "space.json.gz"
    path.write_bytes(gzip.compress(json.dumps(KTT).encode()))
    recording = read_recording(path)
    assert (recording.name, recording.device_name, recording.kernel_name) == ("space", "some GPU", "k")
    assert [(p.name, p.choices) for p in recording.parameters] == [("x", (1, 2)), ("m", ("b",))]
    assert recording.time_ns({"x": 2, "m": "b"}) == 4500.0
    assert recording.outcome({"x": 1, "m": "b"}).label == "failed"
    assert [trial.error for trial in recording.trials] == [None, "ComputationFailed"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Metadata": {"TimeUnit": "Fortnights"}}, "'Fortnights' is none of Nanoseconds, Microseconds"),
        ({"Metadata": {}}, "TimeUnit"),
        ({"Results": []}, "no parameters"),
        ({"Results": KTT["Results"][1:]}, "no configuration in it was measured"),
        ({"Results": [{"Configuration": [], "Status": "Ok"}]}, "TotalDuration"),
    ],
)
def test_results_of_ktt_that_say_too_little(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({**KTT, **change}))
    with pytest.raises(RecordingError, match=said):
        read_recording(path)
