"""Pictures of traces: what is drawn is what the trace has, wherever it came from."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from deuteron.profiler.chrome import to_chrome
from deuteron.profiler.timeline import Timeline

TOOL = Path(__file__).parents[2] / "development" / "trace_picture.py"
EVIL = '<script>"a"&\x1b[31m\ud800'


def run(trace: Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), str(trace), str(trace.with_suffix(".svg")), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def drawn(trace: Path, *options: object) -> ElementTree.Element:
    done = run(trace, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return ElementTree.parse(trace.with_suffix(".svg")).getroot()


def of_class(picture: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in picture.iter() if name in (element.get("class") or "").split()]


def words(element: ElementTree.Element) -> str:
    """What is written, without what only the pointer shows."""
    return (element.text or "") + "".join(child.tail or "" for child in element)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Warps with scopes inside scopes, at times that a generator draws: far enough apart to be drawn one by one."""
    timeline, draw = Timeline("ns"), random.Random(0)
    timeline.epoch_offset_ns = 0
    for warp in range(12):
        at = 10**9 + draw.randrange(200)
        for _ in range(draw.randint(1, 5)):
            inside = draw.randint(0, 3)
            end = at + 200 * (inside + 1)
            lane = f"kernel program 0 warp {warp}"
            timeline.add_span(("k", "outer"), at, end, category="kernel", lane=lane)
            for _ in range(inside):
                begin = at + 50
                at += 200
                timeline.add_span(("k", "outer", "in"), begin, at - 50, category="kernel", lane=lane)
            at = end + draw.randrange(100, 300)
    path = tmp_path / "kernel.chrome_trace"
    path.write_text(to_chrome(timeline))
    return path


def test_every_span_is_drawn_at_its_time(trace: Path) -> None:
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    picture = drawn(trace)
    rectangles = of_class(picture, "span")
    assert len(rectangles) == len(events)
    first, last = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
    left = min(float(r.get("x", "nan")) for r in rectangles)
    per_us = (max(float(r.get("x", 0)) + float(r.get("width", 0)) for r in rectangles) - left) / (last - first)
    found = Counter((round((float(r.get("x", 0)) - left) / per_us * 100), title(r).split(":")[0]) for r in rectangles)
    wanted = Counter((round((e["ts"] - first) * 100), e["name"]) for e in events)
    assert found.total() == wanted.total()
    for (at, name), (expected, expected_name) in zip(sorted(found.elements()), sorted(wanted.elements()), strict=True):
        assert name == expected_name and abs(at - expected) <= 1, "to 10 ns, which is a hundredth of a pixel or so"
    widths = sorted(float(r.get("width", 0)) / per_us for r in rectangles)
    assert widths == pytest.approx(sorted(e["dur"] for e in events), abs=0.01)


def title(element: ElementTree.Element) -> str:
    return next(child.text or "" for child in element if child.tag.endswith("title"))


def test_lanes_are_named_in_their_order_and_can_be_chosen(trace: Path) -> None:
    names = [words(label) for label in of_class(drawn(trace), "label")]
    assert names[0] == "kernel program 0 warp 0" and names.index("kernel program 0 warp 2") < names.index(
        "kernel program 0 warp 10"
    )
    some = [words(label) for label in of_class(drawn(trace, "--lanes", "warp 1$", "warp 3$"), "label")]
    assert some == ["kernel program 0 warp 1", "kernel program 0 warp 3"]


def test_a_part_of_the_time(trace: Path) -> None:
    picture = drawn(trace, "--from", 0.5, "--to", 1.0)
    ticks = [words(tick) for tick in of_class(picture, "tick")]
    assert ticks == [f"{at}" for at in range(0, 501, 50)]
    assert [words(unit) for unit in of_class(picture, "unit")] == ["ns"]


def test_the_legend_has_the_names_by_time_and_one_entry_for_the_rest(tmp_path: Path) -> None:
    timeline = Timeline()
    for number in range(20):
        timeline.add_device_span((f"kernel {number}",), 0, 1000 * (20 - number), lane=f"lane {number}")
    path = tmp_path / "many.chrome_trace"
    path.write_text(to_chrome(timeline))
    legend = [words(entry) for entry in of_class(drawn(path), "legend")]
    assert legend == [*(f"kernel {number}" for number in range(8)), "12 others"]


def test_scopes_inside_scopes_are_below_them_and_arrows_are_drawn(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.epoch_offset_ns = 0
    timeline.add_span(("a",), 0, 10_000, category="scope", lane="host")
    timeline.add_span(("a", "b"), 1000, 5000, category="scope", lane="host")
    timeline.add_call(("a", "cuLaunchKernel"), 2000, 3000, thread=2**22 - 1, correlation=9)
    timeline.add_device_span(("a", "k"), 6000, 9000, lane="GPU 0 Stream 7", correlation=9)
    path = tmp_path / "launch.chrome_trace"
    path.write_text(to_chrome(timeline))
    picture = drawn(path)
    at = {title(r).split(":")[0]: float(r.get("y", 0)) for r in of_class(picture, "span")}
    assert at["a"] < at["b"] and len(set(at.values())) == 4
    (arrow,) = of_class(picture, "arrow")
    spans = {title(r).split(":")[0]: r for r in of_class(picture, "span")}
    assert (arrow.get("x1"), arrow.get("x2")) == (spans["cuLaunchKernel"].get("x"), spans["k"].get("x"))
    assert of_class(drawn(path, "--lanes", "GPU"), "arrow") == []


def test_an_arrow_that_passes_through_a_launch_is_drawn_from_there(tmp_path: Path) -> None:
    events = [
        *(
            {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 90 - at}
            for name, at in (("a", 0), ("go", 50))
        ),
        {"ph": "X", "name": "k", "pid": 1, "tid": 2, "ts": 100, "dur": 10},
        *(
            {"ph": ph, "name": "", "pid": 1, "id": 7, "tid": t, "ts": at}
            for ph, t, at in zip("stf", (1, 1, 2), (0, 50, 100), strict=True)
        ),
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"traceEvents": events}))
    picture = drawn(path)
    spans = {title(r).split(":")[0]: r for r in of_class(picture, "span")}
    (arrow,) = of_class(picture, "arrow")
    assert (arrow.get("x1"), arrow.get("x2")) == (spans["go"].get("x"), spans["k"].get("x"))


def test_many_narrow_spans_are_a_small_picture(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 3 * number, "dur": 2, "cat": "kernel"}
        for number in range(20_000)
    ]
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"traceEvents": events}))
    rectangles = of_class(drawn(path), "span")
    assert len(rectangles) < 2000 and sum(in_spans(title(r)) for r in rectangles) == 20_000


def in_spans(shown: str) -> int:
    return int(shown.split(" in ")[1].split()[0]) if " in " in shown else 1


def test_names_are_text(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.add_device_span((EVIL,), 0, 10**6, lane=EVIL)
    path = tmp_path / "evil.chrome_trace"
    path.write_text(to_chrome(timeline))
    picture = drawn(path, "--title", '"</svg>')
    assert [words(entry) for entry in of_class(picture, "legend")] == ['<script>"a"&\ufffd[31m\ufffd']
    assert not [element for element in picture.iter() if element.tag.endswith("script")]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("{", (), "not a trace of a session"),
        ("[]", (), "not a trace of a session"),
        ('{"traceEvents": [{"ph": "X"}]}', (), "not a trace of a session"),
        ('{"traceEvents": []}', (), "no lane has something to draw; lanes of the trace: none"),
        (None, ("--lanes", "absent"), "no lane has something to draw; lanes of the trace: 'kernel program 0 warp 0'"),
        (None, ("--lanes", "("), "missing ), unterminated subpattern"),
        (None, ("--from", "1e9"), "no lane has something to draw"),
    ],
)
def test_what_cannot_be_drawn_is_said(trace: Path, text: str | None, options: tuple[str, ...], said: str) -> None:
    if text is not None:
        trace.write_text(text)
    done = run(trace, *options)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not trace.with_suffix(".svg").exists()
