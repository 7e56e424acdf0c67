"""Trees made up by hypothesis: sums against Python's own, frames and columns against hatchet's reader."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from generated_profiles import Node, literals, walk
from hypothesis import given, settings
from hypothesis import strategies as st

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import EmptyProfile
from deuteron.profiler.decode import decode
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.columns import quotient
from deuteron.profiler.viewer.frames import FrameTree, is_summed, read_tree, tree_of
from deuteron.profiler.viewer.names import columns_wide, printable


def matched(tree: FrameTree, root: Node) -> Iterator[tuple[int, Node]]:
    """The frames of a tree beside the nodes of the literal: siblings by name, equal ones in the order of the file."""
    pending: list[tuple[Node, int]] = [(root, -1)]
    order = []
    while pending:
        node, parent = pending.pop()
        order.append((node, parent))
        children = sorted(node["children"], key=lambda child: child["frame"]["name"])
        pending.extend((child, len(order) - 1) for child in reversed(children))
    assert len(order) == len(tree)
    for index, (node, parent) in enumerate(order):
        assert (tree.names[index], tree.parents[index]) == (node["frame"]["name"], parent)
        yield index, node


@given(literals())
def test_totals_are_the_sums_of_subtrees(literal: list) -> None:
    tree = tree_of(json.loads(json.dumps(literal)))
    for metric in tree.inclusive:
        totals = tree.totals(metric)
        for index, node in matched(tree, literal[0]):
            parts = [Fraction(below["metrics"][metric]) for below in walk(node) if metric in below["metrics"]]
            assert (not parts and math.isnan(totals[index])) or math.isclose(totals[index], sum(parts), rel_tol=1e-12)
            if all(part.denominator == 1 and abs(part) < 2**63 for part in parts) and parts and metric == "count":
                assert totals[index] == sum(parts), "integers are exact"


@settings(max_examples=40)
@given(literals())
def test_hatchets_own_reader_has_the_same_numbers(literal: list) -> None:
    hatchet = pytest.importorskip("hatchet", reason="needs hatchet: pip install 'deuteron[viewer]'")
    theirs = hatchet.GraphFrame.from_literal(json.loads(json.dumps(literal[:1])))
    ours, inclusive, exclusive, _ = proton_viewer.read(json.dumps(literal))
    # Equal siblings come in hatchet's order of memory addresses: rows are compared as sets.
    metrics = [*inclusive, *exclusive]
    theirs.exc_metrics, theirs.inc_metrics = list(inclusive), []
    theirs.update_inclusive_columns()
    columns = [*metrics, *(f"{metric} (inc)" for metric in inclusive)]

    def rows(frame: object) -> list[tuple]:
        found = []
        for node, values in zip(frame.index, frame[["name", *columns]].itertuples(index=False), strict=True):
            path = tuple(step.frame["name"] for step in node.path())
            found.append((path, *(f"{value:.9g}" if isinstance(value, int | float) else value for value in values)))
        return sorted(found, key=str)

    assert rows(ours.dataframe) == rows(theirs.dataframe)


@settings(max_examples=25)
@given(literals(), st.sampled_from([(), ("util",), ("time/%", "bytes", "avg_time/us")]), st.booleans())
def test_protons_functions_on_frames_print_what_the_command_prints(
    literal: list, more: tuple[str, ...], filtered: bool
) -> None:
    pytest.importorskip("hatchet", reason="needs hatchet: pip install 'deuteron[viewer]'")
    literal[0]["metrics"].setdefault("bytes", 0)
    text, metrics = json.dumps(literal), ["time/us", *more]
    options = {"include": ".*kern|a", "exclude": "b"} if filtered else {}
    try:
        shown = proton_viewer.render(text, metrics, threshold=1.0001, diff_profile=text, **options)
    except EmptyProfile:
        return
    parsed, columns = proton_viewer.parse(metrics, text, threshold=1.0001, **options)
    gf, inclusive, exclusive, devices = proton_viewer.get_raw_metrics(proton_viewer.remove_frames(json.loads(text)))
    # As Proton's own viewer goes on; the inclusive columns are hatchet's.
    gf.update_inclusive_columns()
    gf = proton_viewer.filter_frames(gf, **options)
    assert proton_viewer.derive_metrics(gf, metrics, inclusive, exclusive, devices) == columns
    gf = proton_viewer.filter_frames(gf, threshold=1.0001, metric=columns[0])
    for column in columns:
        assert gf.dataframe[column].tolist() == pytest.approx(parsed.dataframe[column].tolist(), nan_ok=True), column
    difference = proton_viewer.apply_diff_profile(
        gf, columns, json.dumps(literal), metrics, threshold=1.0001, **options
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        proton_viewer.print_tree(difference, columns)
    assert printed.getvalue() == shown


def test_least_times_of_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas: pip install 'deuteron[viewer]'")
    device = {"arch": "100", "num_sms": 10, "clock_rate": 1_000_000, "memory_clock_rate": 1_000_000, "bus_width": 8}
    frame = pandas.DataFrame(
        {"device_id": ["0", "0", "1", None], "flops8": [16384e10, 0, 1, 1], "bytes": [4e9, 2e9, 1, 1]}
    )
    assert proton_viewer.get_min_time_flops(frame, {"CUDA": {"0": device}})["min_time"].tolist() == [1, 0, 0, 0]
    assert proton_viewer.get_min_time_bytes(frame, {"CUDA": {"0": device}})["min_time"].tolist() == [2, 1, 0, 0]


@given(literals(), st.sampled_from(["a.*", ".*kern", "b|c", "zzz", "ROOT"]))
def test_filters_keep_what_a_walk_keeps(literal: list, pattern: str) -> None:
    def through(node: Node) -> Node | None:
        if re.match(pattern, node["frame"]["name"]):
            return node
        kept = [below for child in node["children"] if (below := through(child))]
        return {**node, "children": kept} if kept else None

    def without(node: Node) -> Node | None:
        if re.match(pattern, node["frame"]["name"]):
            return None
        return {**node, "children": [below for child in node["children"] if (below := without(child))]}

    for options, expected in (({"include": pattern}, through), ({"exclude": pattern}, without)):
        left = expected(literal[0])
        if left is None:
            with pytest.raises(EmptyProfile):
                proton_viewer.render(json.dumps(literal), ["time"], **options)
            continue
        shown = proton_viewer.render(json.dumps(literal), ["time"], **options)
        # Metrics of frames that left nothing else are gone too: what is empty stays here, as it is in the file.
        names = [line.rsplit(" ", 1)[-1] for line in shown.splitlines() if line]
        assert sorted(names) == sorted(node["frame"]["name"] for node in walk(left))


def test_what_does_not_add_up_is_not_added_up(tmp_path: Path) -> None:
    root = {"count": 0, "time (ns)": 0, "max_depth": 0, "hit_ratio": 0.0, "gpu util (%)": 0, "minutes": 0}
    leaf = {"count": 1, "time (ns)": 10, "max_depth": 7, "hit_ratio": 0.5, "gpu util (%)": 60, "minutes": 2}
    children = [{"frame": {"name": name}, "metrics": leaf, "children": []} for name in "ab"]
    text = json.dumps([{"frame": {"name": "ROOT"}, "metrics": root, "children": children}, {}])
    first = proton_viewer.render(text, ["time", "max_depth", "hit_ratio", "gpu util", "minutes"]).splitlines()[0]
    assert first == "20.000 0.000 0.000 0.000 4.000 ROOT"
    listed = {"min": False, "min_ns": False, "time_max": False, "Average": False, "administered": True, "peaks": True}
    assert {name: is_summed(name) for name in listed} == listed


def test_names_move_no_cursor() -> None:
    hostile = "a\x1b[2J\nb\r\x9b31m\u202ec\ud800\u2028"
    assert printable(hostile) == "a\\x1b[2J\\nb\\r\\x9b31m\\u202ec\\ud800\\u2028"
    assert printable("größe λ 核") == "größe λ 核" and columns_wide("größe λ 核") == 10
    child = {"frame": {"name": hostile}, "metrics": {"time (ns)": 1}, "children": []}
    text = json.dumps([{"frame": {"name": "ROOT"}, "metrics": {"time (ns)": 0}, "children": [child]}, {}])
    shown = proton_viewer.render(text, ["time"], print_sorted=True)
    assert len(shown.splitlines()) == 5 and shown.isprintable() is False
    assert {character for character in shown if not character.isprintable()} == {"\n"}
    shown.encode()


def test_trees_of_thousands_of_levels_are_read(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    levels = 4000
    head = '{"frame": {"name": "f"}, "metrics": {"time (ns)": 1}, "children": ['
    path = tmp_path / "deep.hatchet"
    path.write_text("[" + head * levels + "]}" * levels + ", {}]")
    assert viewer_main(["-m", "time", "-d", "3", str(path)]) == 0
    assert capsys.readouterr().out == "4000.000 f\n└─ 3999.000 f\n   └─ 3998.000 f\n\n"


def test_trees_are_read_where_readers_in_c_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Python 3.12 do, after some hundred frames."""

    def stops(text: object) -> object:
        raise RecursionError

    monkeypatch.setattr("deuteron.profiler.decode.json.loads", stops)
    monkeypatch.setattr("deuteron.profiler.decode.msgspec.json.decode", stops)
    levels = 4900
    head = '{"frame": {"name": "f"}, "metrics": {"a": null, "b": -1.5e3, "c\\u00e9": true}, "children": ['
    (node, _) = decode(("[" + head * levels + "]}" * levels + ", {}]").encode(), "a profile")
    for _ in range(levels - 1):
        (node,) = node["children"]  # type: ignore[misc]
    assert node["metrics"]["b"] == -1500 and node["metrics"]["cé"] is True and node["children"] == []  # type: ignore[index]


def test_division_is_that_of_floats() -> None:
    assert quotient(1, 0) == math.inf and quotient(-1.0, 0) == -math.inf
    assert math.isnan(quotient(0, 0)) and math.isnan(quotient(math.nan, 0)) and quotient(1, 4) == 0.25


def test_a_metric_that_is_true_or_false_everywhere_is_a_number() -> None:
    kernels = [{"frame": {"name": name}, "metrics": {"flag": flag}} for name, flag in (("a", True), ("b", False))]
    tree = read_tree(json.dumps([{"frame": {"name": "ROOT"}, "metrics": {}, "children": kernels}]))
    assert tree.is_number("flag") and tree.own("flag")[1:] == [1, 0]
    assert set(map(type, tree.own("flag")[1:])) == {int}
