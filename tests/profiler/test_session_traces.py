"""Traces of sessions: scopes, launches, lanes of threads."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trace_checks import check_lines

import deuteron.profiler as proton


def test_trace_has_scopes_with_metrics_and_launches(launch: Callable) -> None:
    proton.start("t", data="trace")
    with proton.scope("A", {"v": [1, 2], "f": 1.5}), proton.state("S"):
        launch("k", duration_ns=5000)
    with pytest.raises(proton.UsageError, match="has no tree"):
        proton.data.get()
    proton.finalize()
    document = json.loads(Path("t.chrome_trace").read_text())
    assert document["displayTimeUnit"] == "us"
    spans = {event["name"]: event for event in document["traceEvents"] if event["ph"] == "X"}
    assert list(spans) == ["A: <f, 1.500000>, <v, [1,2]>", "k"]
    scope = spans["A: <f, 1.500000>, <v, [1,2]>"]
    assert scope["cat"] == "metric"
    assert scope["args"] == {
        "call_stack": ["ROOT", "A"],
        "metrics": {"f": "1.500000", "v": "[1,2]"},
    }
    assert spans["k"]["cat"] == "kernel"
    assert spans["k"]["dur"] == 5.0
    assert spans["k"]["args"]["call_stack"] == ["ROOT", "A", "S", "k"]
    assert scope["ts"] == 0.0 <= spans["k"]["ts"]


def events(name: str) -> list[dict]:
    return json.loads(Path(f"{name}.chrome_trace").read_text())["traceEvents"]


def test_a_trace_has_what_launch_metadata_gave(launch: Callable) -> None:
    proton.start("plain", data="trace")
    proton.start("named", data="trace", hook="triton")
    launch("k", {"name": "k_64", "flops16": 2e6, "bytes": 4096, "tiny": 1e-9}, duration_ns=10)
    proton.finalize()
    (named,) = [event for event in events("named") if event["ph"] == "X"]
    assert (named["name"], named["cat"]) == ("k_64", "kernel")
    assert named["args"]["metrics"] == {"bytes": "4096", "flops16": "2000000.000000", "tiny": "1e-09"}
    (plain,) = [event for event in events("plain") if event["ph"] == "X"]
    assert plain["name"] == "k" and "metrics" not in plain["args"]


def test_numbers_in_a_trace_are_exact() -> None:
    values = {"a": 0.1 + 0.2, "b": 1e300, "c": 5e-324, "d": [1.5, 1e-7], "e": float("inf"), "f": float("nan")}
    proton.start("t", data="trace")
    with proton.scope("A", values):
        pass
    proton.finalize()
    (span,) = [event for event in events("t") if event["ph"] == "X"]
    shown = span["args"]["metrics"]
    assert {key: float(shown[key]) for key in "abce"} == {key: values[key] for key in "abce"}
    assert shown["d"] == "[1.500000,1e-07]" and shown["f"] == "nan"


def test_scopes_that_are_open_when_a_trace_is_written_end_there() -> None:
    proton.start("t", data="trace")
    with proton.scope("closed"):
        pass
    proton.enter_scope("open", metrics={"m": 1})
    inner = proton.scope("inner")
    inner.__enter__()
    proton.finalize()
    inner.__exit__(None, None, None)  # of a session that is gone
    spans = {event["args"]["call_stack"][-1]: event for event in events("t") if event["ph"] == "X"}
    assert list(spans) == ["closed", "open", "inner"]
    assert spans["open"]["args"]["metrics"] == {"m": "1"}
    assert spans["inner"]["args"]["call_stack"] == ["ROOT", "open", "inner"]
    end = spans["open"]["ts"] + spans["open"]["dur"]
    assert spans["closed"]["ts"] + spans["closed"]["dur"] <= spans["open"]["ts"] <= spans["inner"]["ts"]
    assert spans["inner"]["dur"] >= 0 and spans["inner"]["ts"] <= end


def test_a_thread_has_the_names_of_all_that_had_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives the number of one that has ended to another."""
    proton.start("t", data="trace")
    for name in ("first", "second", "first"):
        monkeypatch.setattr(threading.current_thread(), "name", name)
        with proton.scope(name):
            pass
    proton.finalize()
    document = json.loads(Path("t.chrome_trace").read_text())
    lanes = [event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"]
    assert lanes == [f"CPU Thread {threading.get_native_id()} (first, second)"]


def test_spans_are_drawn_in_the_scopes_that_they_are_in(launch: Callable) -> None:
    """And not in those of another task, or of a suspended generator, that are open meanwhile."""
    proton.start("t", data="trace", backend="cpu")

    async def long() -> None:
        with proton.scope("long"):
            await asyncio.sleep(0.01)

    async def short() -> None:
        with proton.scope("short"):
            await asyncio.sleep(0)
            launch("k1")

    async def both() -> None:
        await asyncio.gather(long(), short())

    def numbers() -> Iterator[int]:
        with proton.scope("generator"):
            yield 1

    asyncio.run(both())
    for _ in numbers():
        launch("k2")
    with proton.cpu_timed_scope("timed"):
        pass
    proton.finalize()
    found = json.loads(Path("t.chrome_trace").read_text())["traceEvents"]
    spans = [event for event in found if event["ph"] == "X"]
    check_lines(spans)
    line = {event["args"]["call_stack"][-1]: event["tid"] for event in spans}
    assert line["long"] == line["generator"] == threading.get_native_id()
    assert line["short"] == line["k1"] == line["k2"] != line["long"]
    assert list(spans[-1]["args"]["metrics"]) == ["cpu_time (ns)"]


def test_lanes_of_threads_have_their_names_and_numbers(launch: Callable) -> None:
    def work() -> None:
        numbers["loader"] = threading.get_native_id()
        with proton.scope("below"):
            launch("k", duration_ns=10)

    proton.start("t", data="trace")
    numbers = {"MainThread": threading.get_native_id()}
    with proton.scope("A"):
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
    proton.finalize()
    found = events("t")
    assert {event["pid"] for event in found} == {os.getpid()}
    lanes = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert lanes == {number: f"CPU Thread {number} ({name})" for name, number in numbers.items()}
    spans = {event["name"]: event["tid"] for event in found if event["ph"] == "X"}
    assert spans == {"A": numbers["MainThread"], "below": numbers["loader"], "k": numbers["loader"]}
