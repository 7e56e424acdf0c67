"""Reading profiles: from a file to checked Python lists and dictionaries, with errors that name the place."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from deuteron.compiler.extras import require_packages

from .errors import MalformedProfile, ProfileFileError
from .metrics import Value
from .output.hatchet import DEEPEST

if TYPE_CHECKING:
    from .tree import DeviceField, ProfileTree

# Frames of a tree are two levels of JSON each; a reader in C takes 2 MiB of the thread's stack for as many.
_RECURSION = 2 * DEEPEST + 500
#: Of the reader in Python, which calls itself twice a level, and needs no stack.
_RECURSION_IN_PYTHON = 4 * DEEPEST + 500
_HINT = "a profile is written by deuteron.profiler or by Proton with data='tree'"


def read_literal(path: str | os.PathLike[str]) -> list[dict[str, object]]:
    """Read and check a ``.hatchet`` or ``.hatchet_msgpack`` file.

    Raises ProfileFileError if it cannot be read, MalformedProfile if it is not a profile, MissingExtra if it is
    MessagePack and msgpack is not installed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ProfileFileError(
            f"cannot read {os.fspath(path)}: {error.strerror or error}",
            hint="give the path of a .hatchet or .hatchet_msgpack file",
        ) from error
    return decode(data, os.fspath(path))


def decode(data: bytes, where: str) -> list[dict[str, object]]:
    """Decode and check the bytes of a profile; ``where`` names them in errors."""
    if not data.strip():
        raise MalformedProfile(f"{where} is empty", hint=_HINT)
    # MessagePack arrays of one or two elements start with these bytes; no JSON text does.
    literal = _decode_msgpack(data, where) if data[0] in (0x91, 0x92) else _decode_json(data, where)
    return check_literal(literal, where)


def _decode_json(data: bytes, where: str) -> object:
    with _deep_recursion(_RECURSION):
        # The fast reader first; the other one knows nan, halves of surrogate pairs, and what is wrong where.
        try:
            return cast(object, msgspec.json.decode(data))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _decode_slowly(data, where)


def _decode_slowly(data: bytes, where: str) -> object:
    try:
        return _decode_text(data.decode())
    except json.JSONDecodeError as error:
        if b'"traceEvents"' in data[:200_000]:
            raise MalformedProfile(
                f"{where} is a chrome trace, not a tree",
                hint="open it in Perfetto or chrome://tracing",
            ) from error
        if error.pos >= len(error.doc.rstrip()) - 1:
            raise MalformedProfile(
                f"{where} ends in the middle of its JSON (line {error.lineno}): it is truncated",
                hint=_HINT,
            ) from error
        raise MalformedProfile(
            f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            hint=_HINT,
        ) from error
    except UnicodeDecodeError as error:
        raise MalformedProfile(f"{where} is neither JSON nor MessagePack", hint=_HINT) from error
    except ValueError as error:
        raise MalformedProfile(f"{where} holds an integer of thousands of digits", hint=_HINT) from error
    except RecursionError as error:
        raise MalformedProfile(
            f"{where} nests deeper than this reader can follow",
            hint=f"it follows {DEEPEST} frames inside each other; paths of scopes are shorter than context='python'",
        ) from error


def _decode_text(text: str) -> object:
    try:
        return cast(object, json.loads(text))
    except RecursionError:
        # Python 3.12 has a limit of its own for calls in C, some hundred frames of a tree.
        decoder = json.JSONDecoder()
        decoder.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        decoder.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
        with _deep_recursion(_RECURSION_IN_PYTHON):
            return cast(object, decoder.decode(text))


@contextmanager
def _deep_recursion(levels: int) -> Iterator[None]:
    """Trees of thousands of levels are written, and readers call themselves for each."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, levels))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _decode_msgpack(data: bytes, where: str) -> object:
    require_packages("msgpack", by=f"reading MessagePack ({where})")
    import msgpack

    try:
        return cast(object, msgpack.unpackb(data))
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise MalformedProfile(f"{where} is not whole MessagePack: {error}", hint=_HINT) from error


def check_literal(literal: object, where: str) -> list[dict[str, object]]:
    """Check the structure of a decoded profile and return it with ``children`` present on every node."""
    if isinstance(literal, dict) and "traceEvents" in literal:
        raise MalformedProfile(f"{where} is a chrome trace, not a tree", hint="open it in Perfetto or chrome://tracing")
    if not isinstance(literal, list) or len(literal) not in (1, 2):
        shape = f"a list of {len(literal)}" if isinstance(literal, list) else type(literal).__name__
        raise MalformedProfile(
            f"{where} does not hold a tree and its devices (a list of two): it holds {shape}",
            hint=_HINT,
        )
    pending: list[tuple[object, Place]] = [(literal[0], ())]
    while pending:
        node, place = pending.pop()
        children = _check_node(node, place, where)
        if children:
            pending.extend([(child, (i, place)) for i, child in enumerate(children)])
    if len(literal) == 2:
        _check_devices(literal[1], where)
    return literal


# Where a node is: its number among its siblings, and where its parent is; the root is nowhere.
Place = tuple[()] | tuple[int, "Place"]


def _named(place: Place) -> str:
    steps = []
    while place:
        steps.append(f"child {place[0]} of ")
        place = place[1]
    return "".join(steps) + "the root"


def _check_node(node: object, place: Place, where: str) -> list[object]:
    if not isinstance(node, dict):
        raise MalformedProfile(f"{where}: {_named(place)} is {type(node).__name__}, not a frame", hint=_HINT)
    frame = node.get("frame")
    if not isinstance(frame, dict) or not isinstance(frame.get("name"), str):
        raise MalformedProfile(f"{where}: {_named(place)} has no frame with a name", hint=_HINT)
    if "type" not in frame:
        frame["type"] = "function"
    metrics = node.get("metrics")
    if not isinstance(metrics, dict):
        raise MalformedProfile(f"{where}: {_named(place)} ({frame['name']!r}) has no metrics object", hint=_HINT)
    if not set(map(type, metrics)) <= {str}:  # MessagePack may also have bytes
        raise MalformedProfile(f"{where}: a metric of {_named(place)} has a name that is no text", hint=_HINT)
    for key, value in () if set(map(type, metrics.values())) <= _PLAIN else metrics.items():
        if type(value) in _PLAIN:
            continue
        if not _is_value(value):
            raise MalformedProfile(
                f"{where}: metric {key!r} of {_named(place)} ({frame['name']!r}) is {type(value).__name__}", hint=_HINT
            )
        if value is None:
            metrics[key] = float("nan")  # JSON has no nan; the writers store null
    children = node.setdefault("children", [])
    if not isinstance(children, list):
        raise MalformedProfile(
            f"{where}: the children of {_named(place)} ({frame['name']!r}) are not a list", hint=_HINT
        )
    return children


_PLAIN = frozenset({int, float, str})


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, (int, float)) or item is None for item in value)
    return value is None or isinstance(value, (int, float, str))


#: What describes a device nests two or three deep; writers call themselves for each level.
_MOST_LEVELS = 64


def _is_json(value: object, levels: int = _MOST_LEVELS) -> bool:
    """Whether JSON can hold the value, nested no deeper than so many levels; MessagePack can also hold bytes and types
    of programs' own."""
    if isinstance(value, dict | list) and levels == 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(part, levels - 1) for key, part in value.items())
    if isinstance(value, list):
        return all(_is_json(part, levels - 1) for part in value)
    return isinstance(value, str | int | float | None)


def _check_devices(devices: object, where: str) -> None:
    valid = isinstance(devices, dict) and all(
        isinstance(group, dict) and all(isinstance(fields, dict) for fields in group.values())
        for group in devices.values()
    )
    if not valid or not _is_json(devices):
        raise MalformedProfile(f"{where}: the device section is damaged", hint=_HINT)


def fill_profile(profile: ProfileTree, literal: list[dict[str, object]]) -> None:
    """Put a checked literal into an empty profile. Same-name siblings become one node, the last one's values win."""
    pending = [(profile.root, literal[0])]
    while pending:
        node, source = pending.pop()
        node.metrics.update(cast(dict[str, Value], source["metrics"]))
        for child in cast(list[dict[str, object]], source["children"]):
            name = cast(dict[str, str], child["frame"])["name"]
            pending.append((profile.descend(node, (name,)), child))
    if len(literal) == 2:
        devices = cast(dict[str, dict[str, dict[str, "DeviceField"]]], literal[1])
        for kind, group in devices.items():
            profile.devices[kind] = {index: dict(fields) for index, fields in group.items()}
