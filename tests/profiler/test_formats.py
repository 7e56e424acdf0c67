"""Formats of the viewer: every one adds up to what a walk over the file adds up to."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from generated_profiles import Node, literals, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.profiler import Profile
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.formats import FORMATS
from deuteron.profiler.viewer.formats.exports import Export
from deuteron.profiler.viewer.formats.flat import flattened
from deuteron.profiler.viewer.show import views
from deuteron.profiler.viewer.view import Choice


def export(
    name: str, literal: list, *metrics: str, other: list | None = None, depth: int = 100, **options: object
) -> str:
    """What a format writes for a literal."""
    choice = Choice(metrics, depth=depth, diff_profile=other and json.dumps(other), **options)
    sides = [view.cut(depth) for view in views(json.dumps(literal), choice)]
    return FORMATS[name].write(Export(sides, ["a", "b"][: len(sides)], top=0))


def summed(node: Node, metric: str) -> float:
    return sum(below["metrics"].get(metric, 0) for below in walk(node))


def in_order(root: Node) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Paths and nodes in the order of the viewer's tree."""
    pending = [((), root)]
    while pending:
        above, node = pending.pop()
        path = (*above, node["frame"]["name"])
        yield path, node
        children = sorted(node["children"], key=lambda child: child["frame"]["name"])
        pending.extend((path, child) for child in reversed(children))


@settings(max_examples=50)
@given(literals())
def test_json_has_every_number(literal: list) -> None:
    document = json.loads(export("json", literal))
    frames = document["frames"]
    adds_up = {metric["name"] for metric in document["metrics"] if metric["adds_up"]}
    assert {"count", "time (ns)"} <= adds_up and not {"cpu_time (ns)", "loss"} & adds_up
    paths: list[tuple[str, ...]] = []
    for frame, (path, node) in zip(frames, in_order(literal[0]), strict=True):
        above = paths[frame["parent"]] if frame["parent"] is not None else ()
        paths.append((*above, frame["name"]))
        assert paths[-1] == path
        own = {metric: value for metric, value in node["metrics"].items() if not metric.startswith("device")}
        read = {name: cell.get("self", cell.get("value")) for name, cell in frame["metrics"].items()}
        assert {name: value for name, value in read.items() if value is not None} == own
        for name, cell in frame["metrics"].items():
            if name in adds_up:
                assert cell["total"] == pytest.approx(summed(node, name), rel=1e-12)
            else:
                assert set(cell) == {"value"}
        kept = {metric: value for metric, value in node["metrics"].items() if metric.startswith("device")}
        assert frame.get("properties", {}) == kept
    assert document["devices"] == literal[1]


@settings(max_examples=50)
@given(literals(), st.integers(1, 4))
def test_csv_says_what_json_says(literal: list, depth: int) -> None:
    rows = list(csv.DictReader(io.StringIO(export("csv", literal, depth=depth))))
    frames = json.loads(export("json", literal, depth=depth))["frames"]
    assert len(rows) == len(frames)
    for number, (row, frame) in enumerate(zip(rows, frames, strict=True)):
        assert (row.pop("id"), row.pop("name")) == (str(number), frame["name"])
        assert row.pop("parent") == ("" if frame["parent"] is None else str(frame["parent"]))
        assert int(row.pop("depth")) < depth
        expected = {
            f"{name} {part}" if part != "value" else name: str(value)
            for name, cell in frame["metrics"].items()
            for part, value in cell.items()
        }
        assert {key: value for key, value in row.items() if value} == expected | frame.get("properties", {})


@settings(max_examples=50)
@given(literals(), st.integers(1, 4), st.booleans())
def test_pictures_add_up_to_the_whole(literal: list, depth: int, filtered: bool) -> None:
    """Whatever is too deep or too small to be shown counts for a frame that is."""
    options = {"threshold": 10.0} if filtered else {}
    whole = summed(literal[0], "time (ns)")
    if filtered and whole < 10:
        return
    stacks = [line.rsplit(" ", 1) for line in export("folded", literal, "time", depth=depth, **options).splitlines()]
    assert sum(int(value) for _, value in stacks) == whole
    assert all(stack.count(";") < depth for stack, _ in stacks)
    (profile,) = json.loads(export("speedscope", literal, "time", depth=depth, **options))["profiles"]
    assert sum(profile["weights"]) == profile["endValue"] == whole
    assert [int(value) for _, value in stacks] == profile["weights"]


def by_name(root: Node) -> dict[str, tuple[float, float]]:
    """(own, total) time of each name, recursion counted once."""
    own: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)

    def visit(node: Node, above: frozenset[str]) -> None:
        name = node["frame"]["name"]
        own[name] += node["metrics"].get("time (ns)", 0)
        if name not in above:
            total[name] += summed(node, "time (ns)")
        for child in node["children"]:
            visit(child, above | {name})

    visit(root, frozenset())
    return {name: (own[name], total[name]) for name in total}


@settings(max_examples=40)
@given(literals())
def test_the_table_adds_up_by_name(literal: list) -> None:
    (view,) = views(json.dumps(literal), Choice(["time"]))
    flat = flattened(view)
    (column,) = flat.columns
    assert column.own is not None and column.total is not None
    found = dict(zip(flat.names, zip(column.own, column.total, strict=True), strict=True))
    expected = by_name(literal[0])
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert tuple(value if value == value else 0 for value in values) == expected[name]
    lines = export("table", literal, "time").splitlines()[1:]
    values = [0 if line.split()[0] == "-" else int(line.split()[0]) for line in lines]
    assert values == sorted((own for own, _ in expected.values()), reverse=True)


def test_the_table_in_numbers() -> None:
    def node(name: str, time: int | None, *children: Node, **metrics: object) -> Node:
        found = {"time (ns)": time, "count": 1} if time is not None else {}
        return {"frame": {"name": name}, "metrics": {**found, **metrics}, "children": list(children)}

    inner = node("f", 10, node("k", 30, flops16=60.0))
    literal = [node("ROOT", 0, node("f", None, inner, node("k", 20, flops16=240.0)), node("g", 40)), {}]
    literal[0]["metrics"] |= {"max_ns": 1}
    assert export("table", literal, "time", "flop16/s", "max_ns") == (
        "time (ns) self     %  total      %  flop16/s (FLOP16/s)  max_ns  name\n"
        "            50  50.0     50   50.0       6000000000.000       -  k\n"
        "            40  40.0     40   40.0                    -       -  g\n"
        "            10  10.0     60   60.0       5000000000.000       -  f\n"
        "             0   0.0    100  100.0       3000000000.000       1  ROOT\n"
    )
    other = json.loads(json.dumps(literal))
    other[0]["children"][1]["metrics"]["time (ns)"] = 70
    other[0]["children"][1]["frame"]["name"] = "h"
    assert export("table", literal, "time", other=other) == (
        "time (ns) self  total  name\n"
        "           -70    -70  h ▶\n"
        "           +40    +40  g ◀\n"
        "             +0    -30  ROOT\n".replace("   +0", "  +0")
        + "            +0     +0  f\n"
        "            +0     +0  k\n"
    )


def test_units_of_collapsed_stacks(capsys: pytest.CaptureFixture) -> None:
    def literal(**metrics: object) -> list:
        child = {"frame": {"name": "a;b\n"}, "metrics": metrics, "children": []}
        return [{"frame": {"name": "ROOT"}, "metrics": dict.fromkeys(metrics, 0), "children": [child]}, {}]

    assert export("folded", literal(**{"time (ns)": 1500}), "time/ms") == "ROOT;a:b\\n 1500\n"
    assert "time/ms in ns" in capsys.readouterr().err
    for value, written, unit in (
        (7.0, "7", "units"),
        (1.25, "1250", "thousandths"),
        (1 / 3, "333333333", "billionths"),
    ):
        assert export("folded", literal(joules=value), "joules") == f"ROOT;a:b\\n {written}\n"
        assert f"joules in {unit}" in capsys.readouterr().err
    assert export("folded", literal(bytes=3), "bytes", other=literal(bytes=5)) == "ROOT;a:b\\n 5 3\n"


@settings(max_examples=30)
@given(literals(), literals())
def test_differences_are_those_of_the_sides(left: list, right: list) -> None:
    frames = json.loads(export("json", left, "time", other=right))["frames"]
    time = frames[0]["metrics"]["time (ns)"]
    ours, theirs = summed(left[0], "time (ns)"), summed(right[0], "time (ns)")
    assert (time["left"]["total"], time["right"]["total"], time["difference"]["total"]) == (ours, theirs, ours - theirs)
    for frame in frames:
        sides = {"both", "left", "right"} - ({"both"} if frame["side"] != "both" else set())
        assert frame["side"] in sides
        cell = frame["metrics"].get("time (ns)", {})
        if cell.get("difference"):
            expected = cell["left"].get("total", 0) - cell["right"].get("total", 0)
            assert cell["difference"]["total"] == expected
    stacks = [line.rsplit(" ", 2) for line in export("folded", left, "time", other=right).splitlines()]
    assert sum(int(before) for _, before, _ in stacks) == theirs and sum(int(after) for *_, after in stacks) == ours


def test_speedscope_documents_are_of_its_format(h200_profile: Path, capsys: pytest.CaptureFixture) -> None:
    """The fields and types of https://www.speedscope.app/file-format-schema.json for sampled profiles."""
    assert viewer_main(["-f", "speedscope", "-m", "time,count", str(h200_profile)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"} for frame in frames)
    assert len(document["profiles"]) == 2
    for profile in document["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] in {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= place < len(frames) for stack in profile["samples"] for place in stack)
    assert document["profiles"][0]["unit"] == "nanoseconds"


def test_python_frames_have_places_in_speedscope() -> None:
    child = {"frame": {"name": "/x/a.py:7@main"}, "metrics": {"time (ns)": 1}, "children": []}
    root = {"frame": {"name": "ROOT"}, "metrics": {"time (ns)": 0}, "children": [child]}
    document = json.loads(export("speedscope", [root, {}], "time"))
    assert document["shared"]["frames"][1] == {"name": "main", "file": "/x/a.py", "line": 7}


@settings(max_examples=40)
@given(literals())
def test_graphs_have_a_box_for_each_frame(literal: list) -> None:
    literal[0]["children"][0]["frame"]["name"] = 'evil"]; n9 [label="\\'
    text = export("dot", literal, "time", "loss" if '"loss"' in json.dumps(literal) else "count")
    string = r'"(?:[^"\\\n]|\\.)*"'
    box = rf'  n\d+ \[label={string}, fillcolor="#[0-9a-f]{{6}}"\];'
    boxes = [line for line in text.splitlines() if re.fullmatch(box, line)]
    arrows = [line for line in text.splitlines() if re.fullmatch(r"  n\d+ -> n\d+;", line)]
    count = sum(1 for _ in walk(literal[0]))
    assert (len(boxes), len(arrows)) == (count, count - 1)
    assert len(text.splitlines()) == 4 + 2 * count - 1


@pytest.fixture
def path(tmp_path: Path) -> str:
    profile = Profile()
    node = profile.node(("a", "k"))
    profile.add_launches(node, count=2, time_ns=1000, device_type="CUDA", device_id=0)
    profile.add_to(node, {"loss (pty)": 0.5, "flops8": -1.0})
    return str(profile.write(tmp_path / "p.hatchet"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "folded", "-m", "loss"], "does not add up"),
        (["-f", "folded", "-m", "flop8/s"], "does not add up"),
        (["-f", "folded", "-m", "time,count"], "have one metric"),
        (["-f", "folded", "-m", "flops8"], "the value -1"),
        (["-f", "speedscope", "-m", "avg_time/us"], "does not add up"),
        (["-f", "speedscope", "-diff", "p.hatchet"], "--diff-profile has no meaning with --format speedscope"),
        (["-l", "-m", "time"], "--metrics has no meaning with --list"),
        (["-l", "-d", "0"], "--depth has no meaning with --list"),
        (["-l", "-f", "csv"], "--format has no meaning with --list"),
        (["-l", "-o", "x"], "--output has no meaning with --list"),
        (["-f", "csv", "--print-sorted"], "--print-sorted has no meaning with --format csv"),
        (["-f", "dot", "--color", "always"], "--color always has no meaning with --format dot"),
        (["-m", "time", "-n", "3"], "--top has no meaning with --format tree"),
        (["-f", "table", "-n", "-3"], "--top -3 is negative"),
        (["-m", "time", "-d", "-1"], "--depth -1 is negative"),
        (["-m", "time\ncount"], r"--metrics 'time\ncount' is no list of names"),
        (["-f", "table", "-d", "0"], "--depth 0 shows nothing"),
    ],
)
def test_what_has_no_meaning_is_refused(
    arguments: list[str], message: str, path: str, capsys: pytest.CaptureFixture
) -> None:
    assert viewer_main([*arguments, path]) == 2
    error = capsys.readouterr().err
    assert message in error and "hint: " in error
    assert not Path("x").exists()


@pytest.mark.parametrize("name", ["tree", *FORMATS])
def test_a_file_is_written_whole(name: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    assert viewer_main(["-f", name, "-m", "time", "-o", str(out), path]) == 0
    assert capsys.readouterr().out == ""
    assert viewer_main(["-f", name, "-m", "time", path]) == 0
    assert out.read_text() == capsys.readouterr().out
    assert viewer_main(["-f", name, "-m", "nothing", "-o", str(out), path]) == 2
    assert viewer_main(["-f", name, "-m", "time", "-o", str(tmp_path / "absent" / "out"), path]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "p.hatchet"]


def test_both_kinds_of_format_together(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    profile = Profile()
    node = profile.node(("/usr/lib/a.py:7@main",))
    profile.add_launches(node, count=2, time_ns=1000, device_type="CUDA", device_id=0)
    file = str(profile.write(tmp_path / "p.hatchet"))
    for arguments in (["-f", "folded", "-f", "function_line"], ["-f", "function_line", "--format", "folded"]):
        assert viewer_main([*arguments, file]) == 0
        assert capsys.readouterr().out == "ROOT;7@main 1000\n"
    assert viewer_main(["-f", "table", "-n", "1", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "and 1 more (-n 0 shows all)"


HOSTILE = ['a"b', "</script>", "\x1b[2J", "a\nb", "\ud800", ";;", "\\", "'", "=1+1", "𝕏", "a" * 5000]


@pytest.mark.parametrize("name", ["tree", *FORMATS])
def test_hostile_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture, as_json: Callable) -> None:
    children = [{"frame": {"name": text}, "metrics": {"time (ns)": 1}, "children": []} for text in HOSTILE]
    root = {"frame": {"name": "ROOT"}, "metrics": {"time (ns)": 0}, "children": children}
    (tmp_path / "p.hatchet").write_text(json.dumps([root, {}]))
    assert viewer_main(["-f", name, "-m", "time", "-o", "out", str(tmp_path / "p.hatchet")]) == 0
    text = Path("out").read_bytes().decode()
    if name in ("json", "speedscope"):
        assert sorted(as_json(name, text)) == sorted(HOSTILE)
    elif name == "csv":
        names = {row["name"] for row in csv.DictReader(io.StringIO(text, newline=""))}
        assert names == {"ROOT", *HOSTILE} - {"\ud800", "=1+1", "'"} | {"\\ud800", "'=1+1", "''"}
    else:
        assert all(character.isprintable() for character in text if character != "\n")
        lines = text.count("\n")
        assert lines == {"tree": 13, "table": 13, "folded": 11, "dot": 4 + 2 * 12 - 1}.get(name, lines)


ODD = st.text(st.sampled_from("=+-@'\"\t\r\n\0\x1b,;＝ 1aé"), min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.lists(ODD, min_size=1, max_size=4, unique=True), ODD)
def test_csv_has_every_name_and_computes_none(names: list[str], value: str) -> None:
    children = [{"frame": {"name": name}, "metrics": {"a": 1, "text": value}, "children": []} for name in names]
    root = {"frame": {"name": "ROOT"}, "metrics": {"a": 0}, "children": children}
    rows = list(csv.DictReader(io.StringIO(export("csv", [root, {}], "a"), newline="")))
    assert len(rows) == len(names) + 1, "no name ends a row"
    cells = [row["name"] for row in rows[1:]]
    assert sorted(cell.removeprefix("'") for cell in cells) == sorted(names)
    for cell in [*cells, *(row["text"] for row in rows[1:])]:
        computed = cell[0] in "=+-@\t\r\n＝" and not re.fullmatch(r"[+-]1+ *", cell)
        assert not computed, "spreadsheets would take it for a formula"
    assert {row["text"].removeprefix("'") for row in rows[1:]} == {value}


def test_a_terminal_obeys_no_name_of_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = {"frame": {"name": "\x1b[2J\r"}, "metrics": {"a": 1}, "children": []}
    root = {"frame": {"name": "ROOT"}, "metrics": {"a": 0}, "children": [child]}
    (tmp_path / "p.hatchet").write_text(json.dumps([root, {}]))
    for terminal, shown in ((True, "\\x1b[2J\\r"), (False, "\x1b[2J\r")):
        screen = io.StringIO(newline="")
        monkeypatch.setattr(screen, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr("sys.stdout", screen)
        assert viewer_main(["-f", "csv", str(tmp_path / "p.hatchet")]) == 0
        assert [row[3] for row in csv.reader(io.StringIO(screen.getvalue(), newline=""))] == ["name", "ROOT", shown]


@pytest.fixture
def as_json() -> Callable[[str, str], list[str]]:
    """The names in a JSON document of a format."""

    def names(name: str, text: str) -> list[str]:
        document = json.loads(text)
        frames = document["frames"] if name == "json" else document["shared"]["frames"]
        return [frame["name"] for frame in frames if frame["name"] != "ROOT"]

    return names


def test_numbers_that_are_not_finite() -> None:
    child = {"frame": {"name": "k"}, "metrics": {"a": math.inf, "b": math.nan, "v": [1.0, None]}, "children": []}
    literal = [{"frame": {"name": "ROOT"}, "metrics": {"a": 0}, "children": [child]}, {"CUDA": {"0": {"x": math.nan}}}]
    document = json.loads(export("json", literal))
    assert document["frames"][1]["metrics"] == {"a": {"self": None, "total": None}}
    assert document["devices"] == {"CUDA": {"0": {"x": None}}}
    (row,) = [row for row in csv.DictReader(io.StringIO(export("csv", literal))) if row["name"] == "k"]
    assert (row["a self"], row["a total"], row["b"]) == ("inf", "inf", "")
