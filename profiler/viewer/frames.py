"""The frames of a profile as columns: reading them, dropping bookkeeping frames, sums over subtrees.

Lists of Python numbers, because they are exact for integers of any size, and because a profile of 100,000 frames is
read, filtered and printed in the time that importing a library of data frames takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import cast

from ..decode import check_literal, decode, read_literal
from ..errors import EmptyProfile, MalformedProfile
from ..metrics import TAKEN_NAMES
from ..profiles import Profile
from ..tree import METADATA_SCOPE

Literal = list[dict[str, object]]
Source = str | os.PathLike[str] | Profile
DeviceInfo = dict[str, dict[str, dict[str, object]]]
Number = int | float
Numbers = list[Number]

NAN = float("nan")
_NUMBERS = frozenset({int, float})
_WHOLE = 1 << 63
# What kernels do: rates are of all the work below a frame.
_WORK = re.compile(r"bytes|flops(?:8|16|32|64)?")
# Words in names of metrics that say: two values do not add up.
_NOT_SUMMED = re.compile(
    r"(?:^|[^a-z])(?:min|max|avg|mean|average|median|ratio|rate|pct|percent|util|utili[sz]ation|efficiency|occupancy"
    r"|peak|std|stddev)(?:$|[^a-z])|%"
)


@dataclass
class FrameTree:
    """Frames in the order in which they are shown: parents before children, siblings by name.

    ``frames`` are the descriptions in the file, ``parents`` and ``depths`` number them (a root has the parent -1 and
    the depth 0). ``cells`` holds, for each metric, the values of the frames that have one. ``inclusive`` names the
    metrics that are summed over subtrees, ``exclusive`` the others, in the order of the file. ``written`` are the
    frames in the order of the file, if that is another one.
    """

    frames: list[dict[str, object]]
    names: list[str]
    parents: list[int]
    depths: list[int]
    cells: dict[str, dict[int, object]]
    inclusive: list[str]
    exclusive: list[str]
    devices: DeviceInfo = field(default_factory=dict)
    sums: dict[str, Numbers] = field(default_factory=dict)
    written: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.names)

    def is_number(self, metric: str) -> bool:
        """Does every frame that has the metric have a number (and not text or a list)?"""
        return set(map(type, self.cells[metric].values())) <= _NUMBERS

    def own(self, metric: str) -> Numbers:
        """The metric of each frame itself, nan where it has none."""
        column: Numbers = [NAN] * len(self)
        for index, value in cast(dict[int, Number], self.cells[metric]).items():
            column[index] = value
        return column

    def totals(self, metric: str) -> Numbers:
        """The sum of a metric over each frame's subtree, of those that have a value; nan if none has."""
        if metric not in self.sums:
            self.sums[metric] = subtree_sums(self.own(metric), self.parents, self.written or range(len(self)))
        return self.sums[metric]

    def keep(self, kept: Sequence[bool]) -> FrameTree:
        """A tree of the kept frames, with their own values; each kept frame's parent must be kept."""
        chosen = [index for index, keep in enumerate(kept) if keep]
        place = {index: new for new, index in enumerate(chosen)}
        cells = {
            metric: {place[index]: value for index, value in column.items() if index in place}
            for metric, column in self.cells.items()
        }
        return FrameTree(
            [self.frames[index] for index in chosen],
            [self.names[index] for index in chosen],
            [place.get(self.parents[index], -1) for index in chosen],
            [self.depths[index] for index in chosen],
            cells,
            self.inclusive,
            self.exclusive,
            self.devices,
            written=[place[index] for index in self.written if index in place],
        )


def subtree_sums(values: Numbers, parents: Sequence[int], order: Sequence[int]) -> Numbers:
    """Sums over subtrees of values, given each one's parent and an order, parents first; nan stands for no value.

    A frame's own value comes first, then the sums of its children in the order, as Proton's viewer adds them: its
    numbers are to be found again to the last digit.
    """
    sums = list(values)
    below: dict[int, list[Number]] = {}  # by parent, the last child first
    for index in reversed(order):
        terms = below.pop(index, None)
        if terms is not None:
            terms.append(sums[index])
            terms.reverse()
            sums[index] = _sum(terms)
        if parents[index] >= 0:
            below.setdefault(parents[index], []).append(sums[index])
    return sums


def _sum(terms: Numbers) -> Number:
    """The sum of those that have a value, rounded as by NumPy; nan if none has."""
    if all(term != term for term in terms):
        return NAN
    return _pairwise([term if term == term else 0 for term in terms])


def _pairwise(terms: Numbers) -> Number:
    """NumPy's order: from 8 numbers on in eight lanes, from 128 on by halves of whole lanes."""
    count = len(terms)
    if count > 128:
        half = count // 2 // 8 * 8
        return _pairwise(terms[:half]) + _pairwise(terms[half:])
    whole = count // 8 * 8
    rest = terms[whole:]
    if whole:
        a, b, c, d, e, f, g, h = (reduce(add, terms[lane:whole:8]) for lane in range(8))
        rest = [((a + b) + (c + d)) + ((e + f) + (g + h)), *rest]
    return reduce(add, rest)


def read_tree(source: Source) -> FrameTree:
    """The frames of a path, of the text of a ``.hatchet`` file, or of a Profile.

    Raises ProfileFileError, MalformedProfile, and EmptyProfile if there are no metrics.
    """
    tree = tree_of(load(source))
    if not tree.cells:
        raise EmptyProfile(f"{name_of(source)} has no metrics", hint="was anything launched or any metric given?")
    return tree


def name_of(source: Source) -> str:
    """How messages and titles call a source."""
    if isinstance(source, Profile) or (isinstance(source, str) and source.lstrip().startswith("[")):
        return "the profile"
    return os.fspath(source)


def load(source: Source) -> Literal:
    """The checked literal of a path, of the text of a ``.hatchet`` file, or of a Profile."""
    if isinstance(source, Profile):
        return check_literal(source.to_literal(), "the profile")
    if isinstance(source, str) and source.lstrip().startswith("["):
        return decode(source.encode("utf-8", "surrogatepass"), "the text")
    return read_literal(source)


def tree_of(database: Literal) -> FrameTree:
    """The frames of a checked literal, without launch metadata frames and those with neither metrics nor children.

    A frame whose children all vanish goes with them unless it has metrics of its own. ROOT stays. A metric is inclusive
    when ROOT has it or its name says so, all its values are numbers, and its name does not say that they do not add up.

    Raises MalformedProfile for what cannot be shown.
    """
    nodes, parents = _walk(database[0])
    alive = _alive(nodes, parents)
    order, above, depths = _arranged(nodes, parents, alive)
    cells = _cells(nodes, alive, order)
    frames = [cast(dict[str, object], nodes[index]["frame"]) for index in order]
    names = [cast(str, frame["name"]) for frame in frames]
    devices = cast(DeviceInfo, database[1]) if len(database) > 1 else {}
    written = sorted(range(len(order)), key=order.__getitem__)
    tree = FrameTree(frames, names, above, depths, cells, [], [], devices, written=written)
    root = cast(dict[str, object], database[0]["metrics"])
    summed = [*root, *(metric for metric in cells if metric not in root and is_inclusive(metric))]
    tree.inclusive = [metric for metric in summed if is_summed(metric) and tree.is_number(metric)]
    tree.exclusive = [metric for metric in cells if metric not in tree.inclusive]
    return tree


def is_inclusive(metric: str) -> bool:
    """Does a metric's name say that a frame's value is part of its parent's? Operations and bytes do, as ``(inc)``."""
    return metric.rstrip().endswith("(inc)") or _WORK.fullmatch(metric) is not None


def is_summed(metric: str) -> bool:
    """May values of the metric be added up, as far as its name says? Not if it speaks of a minimum, a mean, a ratio."""
    return _NOT_SUMMED.search(metric.lower()) is None


def is_metadata(node: dict[str, object]) -> bool:
    """Is it a frame of work done while launch metadata were evaluated?"""
    name: str = node["frame"]["name"]  # type: ignore[index]
    return name.startswith(METADATA_SCOPE) and name[len(METADATA_SCOPE) :][:1] in ("", ":")


def _walk(root: dict[str, object]) -> tuple[Literal, list[int]]:
    """All frames in the order of the file but those of launch metadata, and the parent of each."""
    nodes: Literal = []
    parents: list[int] = []
    pending: list[tuple[dict[str, object], int]] = [(root, -1)]
    while pending:
        node, parent = pending.pop()
        index = len(nodes)
        nodes.append(node)
        parents.append(parent)
        children: Literal = node["children"]  # type: ignore[assignment]
        if children:
            pending.extend([(child, index) for child in reversed(children) if not is_metadata(child)])
    return nodes, parents


def _alive(nodes: Literal, parents: Sequence[int]) -> list[bool]:
    """Which frames have metrics, or something below them that has; the root is always among them."""
    alive = [bool(node["metrics"]) for node in nodes]
    for index in range(len(nodes) - 1, 0, -1):
        if alive[index]:
            alive[parents[index]] = True
    alive[0] = True
    return alive


def _arranged(nodes: Literal, parents: Sequence[int], alive: Sequence[bool]) -> tuple[list[int], list[int], list[int]]:
    """The living frames in the order of the tree, siblings by name; the parents (in that order) and depths of each."""
    children: list[list[int]] = [[] for _ in nodes]
    for index in range(1, len(nodes)):
        if alive[index]:
            children[parents[index]].append(index)
    names = [_checked_name(node) if alive[index] else "" for index, node in enumerate(nodes)]
    order: list[int] = []
    above: list[int] = []
    depths: list[int] = []
    pending = [(0, -1, 0)]
    while pending:
        index, parent, depth = pending.pop()
        new = len(order)
        order.append(index)
        above.append(parent)
        depths.append(depth)
        below = children[index]
        if len(below) > 1:
            below.sort(key=names.__getitem__)
        if below:
            pending.extend([(child, new, depth + 1) for child in reversed(below)])
    return order, above, depths


def _checked_name(node: dict[str, object]) -> str:
    frame: dict[str, object] = node["frame"]  # type: ignore[assignment]
    name: str = frame["name"]  # type: ignore[assignment]
    if not name:
        raise MalformedProfile("a frame has an empty name", hint="give every scope a name")
    for key, value in frame.items():
        if type(value) is not str and not isinstance(value, str | int | float | None):
            raise MalformedProfile(
                f"frame {name!r} has the {key} {value!r}, which is no text", hint='write "type": "function"'
            )
    return name


def _cells(nodes: Literal, alive: Sequence[bool], order: Sequence[int]) -> dict[str, dict[int, object]]:
    """The metrics of the living frames as columns, by their place in the order of the tree.

    Columns are looked through as wholes: nearly all hold numbers of one type, which are taken as they are.
    """
    place = [-1] * len(nodes)
    for new, index in enumerate(order):
        place[index] = new
    cells: dict[str, dict[int, object]] = {}
    for node, living, new in zip(nodes, alive, place, strict=True):
        if living:
            for metric, value in node["metrics"].items():  # type: ignore[attr-defined]
                if metric in cells:
                    cells[metric][new] = value
                else:
                    cells[metric] = {new: value}
    for metric, column in cells.items():
        if metric in TAKEN_NAMES:
            raise MalformedProfile(
                f"frame {_checked_name(nodes[order[next(iter(column))]])!r} has a metric called {metric!r}, a name "
                "the viewer uses itself",
                hint="rename the metric",
            )
        _make_shown(metric, column, nodes, order)
    return cells


def _make_shown(metric: str, column: dict[int, object], nodes: Literal, order: Sequence[int]) -> None:
    """Replace the values of a column that cannot be shown as they are."""
    kinds = set(map(type, column.values()))
    if kinds <= {float, str, list}:
        return
    if kinds == {int}:
        whole = cast(dict[int, int], column).values()
        if min(whole) >= -_WHOLE and max(whole) < _WHOLE:
            return
    for new, value in column.items():
        if type(value) is not float and not (type(value) is int and -_WHOLE <= value < _WHOLE):
            column[new] = _shown(nodes[order[new]], metric, value)


def _shown(node: dict[str, object], metric: str, value: object) -> object:
    """Integers of 64 bits are exact; a larger one is shown as the nearest float."""
    if not isinstance(value, int):
        return value
    if isinstance(value, bool):
        return int(value)
    try:
        return float(value)
    except OverflowError:
        raise MalformedProfile(
            f"metric {metric!r} of frame {_checked_name(node)!r} is a number of more than 308 digits",
            hint="metrics are numbers up to 1.8e308",
        ) from None


def ancestors_too(wanted: Iterable[int], parents: Sequence[int]) -> list[bool]:
    """Which frames are wanted, or have a wanted one below them."""
    kept = [False] * len(parents)
    for index in wanted:
        while index >= 0 and not kept[index]:
            kept[index] = True
            index = parents[index]
    return kept
