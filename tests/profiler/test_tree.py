"""The profile tree, its metrics, and its files."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from deuteron.profiler import MalformedProfile, MetricError, Profile, ProfileFileError
from deuteron.profiler.metrics import Value, updates
from deuteron.profiler.output import hatchet
from deuteron.profiler.output.hatchet import float_text


def test_text_of_protons_own_file_is_reproduced_byte_for_byte(h200_profile: Path) -> None:
    assert Profile.read(h200_profile).to_hatchet() == h200_profile.read_text()


def test_text_has_the_json_that_the_literal_says() -> None:
    profile = Profile()
    profile.add(('a\n"\\/\x01é', "b"), {"v": [1, 2], "empty": [], "f": 0.1, "s (pty)": "x"})
    profile.node(("c",))
    profile.device("CUDA", 0, arch="90", num_sms=132)
    text = profile.to_hatchet()
    assert json.loads(text) == profile.to_literal()
    assert text == "\n" + json.dumps(json.loads(text), indent=4, sort_keys=True, ensure_ascii=False) + "\n"


# Printed by Proton 3.9's writer.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e15, "1e+15"),
        (1e16, "1e+16"),
        (1234567890123456.5, "1.2345678901234565e+15"),
        (-2e15, "-2e+15"),
        (999999999999999.0, "999999999999999.0"),
        (1e-5, "1e-05"),
        (12582912.0, "12582912.0"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_floats_print_as_proton_prints_them(value: float, text: str) -> None:
    assert float_text(value) == text


def test_a_tree_deeper_than_the_recursion_limit_is_written() -> None:
    profile = Profile()
    profile.add([f"f{i}" for i in range(5000)], {"x": 1})
    text = profile.to_hatchet()
    assert text.count('"frame"') == 5001
    assert len(text) < 200_000_000  # indented as far as readers go, it would be 900 MB


def test_a_tree_deeper_than_readers_follow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile()
    profile.add("abc", {"x": 1})
    profile.to_hatchet()
    monkeypatch.setattr(hatchet, "DEEPEST", 2)
    with pytest.warns(RuntimeWarning, match="nests 3 frames inside each other, and proton-viewer reads 2"):
        profile.to_hatchet()


def test_metrics_are_summed_and_properties_overwritten() -> None:
    profile = Profile()
    for i in (1, 2):
        node = profile.add(
            ("k",),
            {"a": i, "b (exc)": i, "c (unit) (inc)": i, "p (pty)": i, "v": [i, 0.5], "s": f"t{i}"},
        )
    assert node.metrics == {"a": 3, "b": 3, "c (unit) (inc)": 3, "p": 2, "v": [3.0, 1.0], "s": "t2"}


def test_roofline_names_have_fixed_types() -> None:
    profile = Profile()
    node = profile.add(("k",), {"flops": 5, "flops16": 2, "bytes": 7.9})
    profile.add(("k",), {"flops": 0.5, "flops16": np.int64(3), "bytes": np.float32(2.5)})
    assert node.metrics == {"flops": 5.5, "flops16": 5.0, "bytes": 9}
    assert [type(value) for value in node.metrics.values()] == [float, float, int]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": 1}, {"a": 2.0}, "type mismatch for 'a': it holds int, the new value is float"),
        ({"a": "x"}, {"a": 2}, "it holds str, the new value is int"),
        (
            {"v": [1, 2]},
            {"v": [1, 2, 3]},
            "size mismatch for 'v': it holds 2 values, the new one 3",
        ),
        ({"v": [1, 2]}, {"v": [1.0, 2.0]}, "it holds list of int, the new value is list of float"),
        ({}, {"o": object()}, "value of type object"),
        ({}, {"o": [1, "x"]}, "list that holds a str"),
        ({}, {"(exc)": 1}, "is empty"),
        ({}, {"flops": "many"}, "is text"),
        ({}, {"bytes": float("nan")}, "'bytes' is nan, and no whole number"),
        ({}, {"bytes": [1.0, float("inf")]}, "and no whole number"),
        ({}, {3: 1}, "is called 3, which is no text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_changes_nothing(first: dict, second: dict, message: str) -> None:
    profile = Profile()
    node = profile.add(("k",), {"ok": 1, **first})
    before = dict(node.metrics)
    with pytest.raises(MetricError) as caught:
        profile.add(("k",), {"ok": 1, **second})
    assert message in caught.value.message
    assert caught.value.hint
    assert node.metrics == before


def test_root_gets_zero_count_and_time_when_kernels_were_seen() -> None:
    profile = Profile()
    profile.add(("scope",), {"flops (exc)": 1})
    assert profile.to_literal()[0]["metrics"] == {}
    profile.add_launches(profile.node(("scope", "k")), count=2, time_ns=30, device_type="CUDA", device_id=1)
    literal = profile.to_literal()
    assert literal[0]["metrics"] == {"count": 0, "time (ns)": 0}
    assert profile.node(("scope", "k")).metrics == {
        "count": 2,
        "time (ns)": 30,
        "device_id": "1",
        "device_type": "CUDA",
    }


def test_siblings_keep_the_order_in_which_they_were_seen() -> None:
    profile = Profile()
    for name in ("z", "a", "z", "m"):
        profile.node((name,))
    assert [child["frame"]["name"] for child in profile.to_literal()[0]["children"]] == [
        "z",
        "a",
        "m",
    ]


def test_a_node_is_updated_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading and writing each update waits long enough for all other threads to read the same."""

    def slow(held: Mapping[str, Value], metrics: Mapping[str, object]) -> dict[str, Value]:
        changed = updates(held, metrics)
        time.sleep(0.005)
        return changed

    monkeypatch.setattr("deuteron.profiler.tree.updates", slow)
    profile = Profile()
    node = profile.node(("A",))
    threads = [threading.Thread(target=profile.add_to, args=(node, {"count": 1})) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.metrics == {"count": 8}


def test_adding_from_many_threads_loses_nothing() -> None:
    profile = Profile()

    def work() -> None:
        for i in range(2000):
            profile.add((f"s{i % 7}", "k"), {"n": 1})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(node.metrics.get("n", 0) for _, node in profile.walk())
    assert total == 8000


def test_root_gets_zeros_for_what_counts_for_the_frames_above() -> None:
    """As in the file that Proton 3.6 writes of these scopes, but for the property: Proton's viewer adds these up."""
    profile = Profile()
    for i in range(3):
        profile.add(("epoch", "step"), {"tokens": 100, "loss": 0.5, "t (exc)": 1, "u (inc)": 1.0, "p (pty)": i})
        profile.add(("epoch", "step", "sub"), {"tokens": 7})
    profile.add(("epoch", "timed"), {"cpu_time (ns)(exc)": 9, "note": "warm", "sizes": [1, 2]})
    profile.add(("epoch", "timed"), {"cpu_time (ns)": 1})  # the first value at a frame decides
    assert profile.to_literal()[0]["metrics"] == {"loss": 0, "tokens": 0, "u (inc)": 0}


def test_msgpack_is_the_same_structure_in_protons_key_order(tmp_path: Path) -> None:
    profile = Profile()
    profile.add(("A",), {"m (exc)": 1})
    data = profile.to_msgpack()
    # The bytes that Proton 3.9 writes for this tree.
    assert data == (
        b"\x92\x83\xa5frame\x82\xa4name\xa4ROOT\xa4type\xa8function\xa7metrics\x80\xa8children\x91"
        b"\x83\xa5frame\x82\xa4name\xa1A\xa4type\xa8function\xa7metrics\x81\xa1m\x01\xa8children\x90\x80"
    )
    (tmp_path / "p.hatchet_msgpack").write_bytes(data)
    assert Profile.read(tmp_path / "p.hatchet_msgpack").to_literal() == profile.to_literal()


def test_whole_numbers_beyond_64_bits_are_floats_in_msgpack(tmp_path: Path) -> None:
    profile = Profile()
    numbers = {"a": 2**64 - 1, "b": 2**64, "c": -(2**63), "d": -(2**70), "e": 2**1022, "f": [2**70, 1]}
    profile.add(("A",), {f"{name} (exc)": value for name, value in numbers.items()})
    (tmp_path / "p.hatchet_msgpack").write_bytes(profile.to_msgpack())
    (read,) = Profile.read(tmp_path / "p.hatchet_msgpack").root.children.values()
    assert read.metrics == numbers
    assert {name: type(value) for name, value in read.metrics.items()} == {
        name: list if name == "f" else float if name in "bde" else int for name in numbers
    }
    for _ in range(3):
        profile.add(("A",), {"e (exc)": 2**1022})
    with pytest.raises(MalformedProfile, match="a metric is too large for MessagePack"):
        profile.to_msgpack()


def test_reading_and_writing_keep_everything(tmp_path: Path, h200_profile: Path) -> None:
    copy = Profile.read(h200_profile).write(tmp_path / "copy.hatchet")
    assert copy.read_bytes() == h200_profile.read_bytes()


def test_halves_of_surrogate_pairs_are_escapes(tmp_path: Path) -> None:
    """As in names of files that are not UTF-8; nothing of the profile is lost for them."""
    profile = Profile()
    profile.add(("\\\udcff é",), {"\ud800 (pty)": "\udc80"})
    read = Profile.read(profile.write(tmp_path / "p.hatchet"))
    assert [(node.name, node.metrics) for _, node in read.walk()][1] == ("\\\udcff é", {"\ud800": "\udc80"})
    (tmp_path / "p.hatchet_msgpack").write_bytes(profile.to_msgpack())
    (packed,) = Profile.read(tmp_path / "p.hatchet_msgpack").root.children.values()
    assert (packed.name, packed.metrics) == ("\\\\udcff é", {"\\ud800": "\\udc80"})


def test_a_signal_that_adds_to_a_tree_in_the_middle_of_an_addition_does_not_block() -> None:
    profile = Profile()

    class Interrupted(int):
        def __int__(self) -> int:
            profile.add((), {"other (pty)": 1})
            return 5

    thread = threading.Thread(target=profile.add, args=((), {"m": Interrupted(5)}), daemon=True)
    thread.start()
    thread.join(10)
    assert profile.root.metrics == {"m": 5, "other": 1}


def test_the_longest_name_that_a_file_may_have_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 247 + ".hatchet")
    Profile().write(path)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_full_disk_keeps_the_old_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "p.hatchet"
    Profile().write(target)
    before = target.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProfileFileError, match="No space left on device"):
        Profile().write(target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["p.hatchet"]


def test_cpu_device_is_written_without_entries() -> None:
    profile = Profile()
    profile.add_launches(profile.node(("k",)), count=1, time_ns=5, device_type="CPU", device_id=0)
    assert profile.to_literal()[1] == {"CPU": {}}


def test_a_file_is_on_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "p.hatchet"
    target.write_text("old")
    states = []

    def fsync(descriptor: int) -> None:
        states.append((target.read_text(), os.fstat(descriptor).st_size))

    monkeypatch.setattr("os.fsync", fsync)
    profile = Profile()
    profile.add(("A",), {"count": 1})
    assert profile.write(target) == target
    assert states == [("old", len(target.read_bytes()))]
    assert list(tmp_path.iterdir()) == [target]
