"""Profiles made up by hypothesis, as the lists and dictionaries that a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Node = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "a1", "kern", "my_kern"])
WHOLE = st.integers(0, 2**45)  # sums stay exact as floats, too
REAL = st.floats(0, 1e15, allow_nan=False)
OPTIONAL = {
    "flops8": REAL,
    "flops16": REAL,
    "bytes": WHOLE,
    "cpu_time (ns)": WHOLE,
    "loss": st.floats(-10, 10, allow_nan=False),
    "x (inc)": WHOLE,
}


@st.composite
def metrics(draw: st.DrawFn, *, leaf: bool) -> dict[str, Any]:
    """Those of a kernel (a leaf), or of a scope."""
    found: dict[str, Any] = {}
    if leaf or draw(st.booleans()):
        found = {"count": draw(WHOLE), "time (ns)": draw(WHOLE), "device_id": "0", "device_type": "CUDA"}
    chosen = draw(st.sets(st.sampled_from(sorted(OPTIONAL)), max_size=3))
    return found | {name: draw(OPTIONAL[name]) for name in sorted(chosen)}


@st.composite
def nodes(draw: st.DrawFn, depth: int) -> Node:
    """A frame with what is below it; every leaf has metrics, so that the viewer shows it."""
    children = draw(st.lists(nodes(depth - 1), max_size=3)) if depth else []
    given = draw(metrics(leaf=not children))
    return {"frame": {"name": draw(NAMES), "type": "function"}, "metrics": given, "children": children}


@st.composite
def literals(draw: st.DrawFn) -> list[Any]:
    """A whole profile: a tree below ROOT and one H100."""
    root: dict[str, Any] = {"count": 0, "time (ns)": 0}
    if draw(st.booleans()):
        root |= {"bytes": 0, "flops8": 0.0, "x (inc)": 0}  # as older writers did
    children = draw(st.lists(nodes(3), min_size=1, max_size=3))
    device = {"arch": "90", "num_sms": 114, "clock_rate": 1755000, "memory_clock_rate": 2619000, "bus_width": 5120}
    tree = {"frame": {"name": "ROOT", "type": "function"}, "metrics": root, "children": children}
    return [tree, {"CUDA": {"0": device}}]


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for child in node["children"]:
        yield from walk(child)
