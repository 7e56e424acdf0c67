"""The ``.hatchet`` file: JSON with indent 4 and sorted keys, byte for byte as Proton's writer prints it.

The text is built without recursion: call paths recorded with Python frames are deeper than Python's stack allows
a recursive encoder to go.
"""

from __future__ import annotations

import json
import math
import warnings
from typing import TYPE_CHECKING

from ..metrics import Value

if TYPE_CHECKING:
    from ..tree import Node, ProfileTree

_INDENT = "    "
# Proton's viewer reads no deeper than this: below, nobody compares the text with Proton's, and what is before the lines
# of a tree of thousands of frames would be a gigabyte.
_MOST_INDENTED = 1000
#: Frames inside each other that a reader follows (decode.py).
DEEPEST = 5_000


def device_literal(profile: ProfileTree) -> dict[str, dict[str, dict[str, object]]]:
    """The device section of the file.

    A CPU is named without an entry for each index: Proton's viewer computes peak figures for all entries, and
    stops with an error on a kind that is neither CUDA nor HIP.
    """
    return {
        kind: {} if kind == "CPU" else {index: dict(fields) for index, fields in devices.items()}
        for kind, devices in profile.devices.items()
    }


def to_literal(profile: ProfileTree) -> list[object]:
    """The structure of the file as Python lists and dictionaries."""
    root = node_literal(profile.root, profile.root_metrics())
    pending = [(profile.root, root)]
    while pending:
        node, literal = pending.pop()
        for child in list(node.children.values()):
            child_literal = node_literal(child, child.metrics)
            literal["children"].append(child_literal)  # type: ignore[attr-defined]
            pending.append((child, child_literal))
    return [root, device_literal(profile)]


def node_literal(node: Node, metrics: dict[str, Value]) -> dict[str, object]:
    """One node without its children."""
    return {
        "frame": {"name": node.name, "type": "function"},
        "metrics": dict(metrics),
        "children": [],
    }


def to_text(profile: ProfileTree) -> str:
    """The text of the file: newline, the JSON document, newline."""
    parts = ["\n[\n"]
    _write_tree(parts, profile)
    parts.append(f",\n{_INDENT}")
    _write_object(parts, device_literal(profile), 1)
    parts.append("\n]\n")
    return "".join(parts)


def _write_tree(parts: list[str], profile: ProfileTree) -> None:
    # A node is opened when it is pushed and closed when its children are exhausted.
    parts.append(_INDENT)
    stack = [(profile.root, 1, iter(_open(parts, profile.root, 1)))]
    deepest = 0
    while stack:
        node, level, children = stack[-1]
        child = next(children, None)
        if child is not None:
            first = parts[-1].endswith("[")
            parts.append(("\n" if first else ",\n") + _indent(level + 2))
            stack.append((child, level + 2, iter(_open(parts, child, level + 2))))
            deepest = max(deepest, level // 2 + 1)
            continue
        stack.pop()
        metrics = profile.root_metrics() if node is profile.root else node.metrics
        _close(parts, node, metrics, level)
    if deepest > DEEPEST:
        warnings.warn(
            f"the profile nests {deepest} frames inside each other, and proton-viewer reads {DEEPEST}",
            RuntimeWarning,
            stacklevel=2,
        )


def _indent(level: int) -> str:
    return _INDENT * min(level, _MOST_INDENTED)


def _open(parts: list[str], node: Node, level: int) -> list[Node]:
    parts.append("{\n" + _indent(level + 1) + '"children": [')
    return list(node.children.values())


def _close(parts: list[str], node: Node, metrics: dict[str, Value], level: int) -> None:
    inner = _indent(level + 1)
    if not parts[-1].endswith("["):
        parts.append("\n" + inner)
    parts.append(f'],\n{inner}"frame": ')
    _write_object(parts, {"name": node.name, "type": "function"}, level + 1)
    parts.append(f',\n{inner}"metrics": ')
    _write_object(parts, dict(metrics), level + 1)
    parts.append("\n" + _indent(level) + "}")


def _write_object(parts: list[str], value: object, level: int) -> None:
    inner = "\n" + _indent(level + 1)
    if isinstance(value, dict):
        if not value:
            parts.append("{}")
            return
        for position, key in enumerate(sorted(value)):
            parts.append(("{" if position == 0 else ",") + inner + _text(key) + ": ")
            _write_object(parts, value[key], level + 1)
        parts.append("\n" + _indent(level) + "}")
    elif isinstance(value, list):
        if not value:
            parts.append("[]")
            return
        for position, item in enumerate(value):
            parts.append(("[" if position == 0 else ",") + inner + _scalar(item))
        parts.append("\n" + _indent(level) + "]")
    else:
        parts.append(_scalar(value))


def _text(text: str) -> str:
    """A string of JSON. Halves of surrogate pairs, which no encoding has, become escapes; names of files have some."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return float_text(value)
    return str(value)


def float_text(value: float) -> str:
    """A float as Proton's JSON writer prints it: shortest form, null for nan and infinities.

    Python changes to exponents at 1e16, that writer at 1e15; below, the two agree.
    """
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    if not 1e15 <= abs(value) < 1e16:
        return text
    sign = "-" if value < 0 else ""
    digits = text.lstrip("-").replace(".", "").rstrip("0")
    return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e+15"
