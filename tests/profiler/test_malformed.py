"""Files that are not profiles: each has a message that names the place."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest

from deuteron.profiler import MalformedProfile, Profile, ProfileFileError
from deuteron.profiler.viewer.arguments import main as viewer_main

GOOD = {"frame": {"name": "ROOT", "type": "function"}, "metrics": {"time (ns)": 1}, "children": []}


def with_child(**changes: object) -> str:
    child = {"frame": {"name": "k", "type": "function"}, "metrics": {}, "children": []} | changes
    return json.dumps([GOOD | {"children": [child]}, {}])


CASES = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "text": (b"hello", "is not JSON: Expecting value at line 1, column 1"),
    "binary": (b"\xff\xfe\x00\x01", "neither JSON nor MessagePack"),
    "object": (b"{}", "it holds dict"),
    "number": (b"3", "it holds int"),
    "no tree": (b"[]", "it holds a list of 0"),
    "three": (json.dumps([GOOD, {}, {}]).encode(), "it holds a list of 3"),
    "root is a list": (b"[[], {}]", "the root is list, not a frame"),
    "no frame": (json.dumps([{"metrics": {}}, {}]).encode(), "the root has no frame with a name"),
    "frame without name": (
        with_child(frame={"type": "function"}).encode(),
        "child 0 of the root has no frame",
    ),
    "no metrics": (
        with_child(metrics=None).encode(),
        "child 0 of the root ('k') has no metrics object",
    ),
    "bad metric": (
        with_child(metrics={"a": {}}).encode(),
        "metric 'a' of child 0 of the root ('k') is dict",
    ),
    "bad vector": (
        with_child(metrics={"a": ["x"]}).encode(),
        "metric 'a' of child 0 of the root ('k') is list",
    ),
    "bad children": (
        with_child(children={}).encode(),
        "the children of child 0 of the root ('k') are not a list",
    ),
    "bad devices": (json.dumps([GOOD, {"CUDA": 3}]).encode(), "the device section is damaged"),
    "devices are deep": (
        f'[{json.dumps(GOOD)}, {{"CUDA": {{"0": {{"arch": {"[" * 900 + "]" * 900}}}}}}}]'.encode(),
        "the device section is damaged",
    ),
    "devices are a list": (json.dumps([GOOD, []]).encode(), "the device section is damaged"),
    "thousands of digits": (
        b'[{"frame": {"name": "ROOT"}, "metrics": {"a": ' + b"9" * 5000 + b"}}, {}]",
        "holds an integer of thousands of digits",
    ),
    "chrome trace": (b'{"displayTimeUnit":"us","traceEvents":[]}', "is a chrome trace"),
    "two traces": (b'{"traceEvents":[]}\n{"traceEvents":[]}', "is a chrome trace"),
    "too deep": (b"[" * 200_000, "deeper than this reader can follow"),
    "msgpack, cut": (Profile().to_msgpack()[:-4], "is not whole MessagePack"),
}


@pytest.mark.parametrize("case", CASES)
def test_message_names_the_place(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data, message = CASES[case]
    path = tmp_path / "p.hatchet"
    path.write_bytes(data)
    with pytest.raises(MalformedProfile) as caught:
        Profile.read(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert viewer_main(["-m", "time/ms", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_called_truncated(part: float, tmp_path: Path, h200_profile: Path) -> None:
    data = h200_profile.read_bytes().rstrip()
    path = tmp_path / "cut.hatchet"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(MalformedProfile, match="truncated|is not JSON"):
        Profile.read(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    profile = Profile()
    profile.add(("a", "b"), {"x": 1.5, "v": [1, 2]})
    text = profile.to_hatchet().strip()
    path = tmp_path / "cut.hatchet"
    for length in range(1, len(text)):
        path.write_text(text[:length])
        with pytest.raises(MalformedProfile):
            Profile.read(path)


def test_a_missing_file_and_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ProfileFileError, match="No such file"):
        Profile.read(tmp_path / "absent.hatchet")
    assert viewer_main(["-m", "time", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_null_is_nan_and_devices_may_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps([GOOD | {"metrics": {"time (ns)": None}}]))
    profile = Profile.read(path)
    value = profile.root.metrics["time (ns)"]
    assert value != value
    assert profile.devices == {}


KERNEL = {"time (ns)": 5, "count": 1, "device_id": "0", "device_type": "CUDA"}
DEVICES = {"CUDA": {"0": {"arch": "90", "num_sms": 132, "clock_rate": 1980000}}}
UNSHOWN = {
    "a type that is a dict": ({"frame": {"name": "k", "type": {}}}, "frame 'k' has the type {}, which is no text"),
    "a type that is a list": ({"frame": {"name": "k", "type": [1]}}, "frame 'k' has the type [1], which is no text"),
    "no name": ({"frame": {"name": "", "type": "function"}}, "a frame has an empty name"),
    "text as bytes": ({"metrics": KERNEL | {"bytes": "x"}}, "metric 'bytes' holds text"),
    "a list of flops": ({"metrics": KERNEL | {"flops8": [1, 2]}}, "metric 'flops8' holds lists"),
    "text as a time": ({"metrics": KERNEL | {"time (ns)": "x"}}, "metric 'time' holds text"),
    "beyond floats": ({"metrics": KERNEL | {"count": 10**400}}, "metric 'count' of frame 'k' is a number of more than"),
}


@pytest.mark.parametrize("case", UNSHOWN)
def test_what_cannot_be_shown_is_an_error(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    changes, message = UNSHOWN[case]
    child = {"frame": {"name": "k", "type": "function"}, "metrics": KERNEL, "children": []} | changes
    path = tmp_path / "p.hatchet"
    path.write_text(json.dumps([GOOD | {"children": [child]}, DEVICES]))
    assert viewer_main(["-m", "util", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_integers_beyond_64_bits_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "p.hatchet"
    path.write_text(with_child(metrics={"time (ns)": 1 << 63}))
    assert viewer_main(["-m", "time/ns", str(path)]) == 0
    assert "9223372036854775808.000 k" in capsys.readouterr().out


def test_a_device_type_that_is_a_list_is_no_device(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "p.hatchet"
    child = {"frame": {"name": "k"}, "metrics": KERNEL | {"device_type": [1], "bytes": 8}, "children": []}
    path.write_text(json.dumps([GOOD | {"children": [child]}, DEVICES]))
    assert viewer_main(["-m", "util", str(path)]) == 0
    assert " k\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("metrics", "devices", "message"),
    [
        ({b"time (ns)": 1}, {}, "no text"),
        ({"time (ns)": 1}, {b"CUDA": {}}, "device section is damaged"),
        ({"time (ns)": 1}, {"CUDA": {"0": {"arch": [b"90"]}}}, "device section is damaged"),
        ({"time (ns)": 1}, {"CUDA": {"0": {"arch": {b"90": 1}}}}, "device section is damaged"),
    ],
)
def test_bytes_in_messagepack_are_refused(
    tmp_path: Path, metrics: dict[object, int], devices: dict[object, object], message: str
) -> None:
    path = tmp_path / "p.hatchet_msgpack"
    node = {"frame": {"name": "ROOT", "type": "function"}, "metrics": metrics, "children": []}
    path.write_bytes(msgpack.packb([node, devices]))
    with pytest.raises(MalformedProfile, match=message):
        Profile.read(path)
