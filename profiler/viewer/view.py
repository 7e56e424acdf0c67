"""What is shown: the chosen frames of one profile, or of the difference of two, with the chosen metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ..errors import EmptyProfile, UsageError
from .columns import Column
from .derive import all_columns, derive
from .filters import at_least, filter_tree
from .frames import FrameTree, Numbers, Source, read_tree
from .names import shortener

DEFAULT_DEPTH = 100


class Side(IntEnum):
    """Which of two profiles has a frame (hatchet's numbers for it)."""

    BOTH = 0
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True)
class Choice:
    """What of a profile is asked for: the options of ``proton-viewer`` that every format knows.

    No ``metrics`` are all that hold numbers. ``style`` is one of :data:`.names.STYLES`. With ``diff_profile`` it is
    this profile minus that one.
    """

    metrics: Sequence[str]
    include: str | None = None
    exclude: str | None = None
    threshold: float | None = None
    depth: int = DEFAULT_DEPTH
    style: str | None = None
    diff_profile: Source | None = None


@dataclass(frozen=True)
class View:
    """Frames as they are shown: parents before children, siblings by name.

    ``origin`` numbers each frame in ``tree``, the profile with the frames that --include and --exclude left; -1 for
    one that only the other profile has. Of two profiles, ``columns`` hold the differences, ``left`` and ``right`` the
    columns of each.
    """

    tree: FrameTree
    origin: list[int]
    names: list[str]
    parents: list[int]
    depths: list[int]
    columns: list[Column]
    sides: list[Side] = field(default_factory=list)
    left: list[Column] = field(default_factory=list)
    right: list[Column] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_difference(self) -> bool:
        """Is this the difference of two profiles?"""
        return bool(self.left)

    def children(self) -> list[list[int]]:
        """The children of each frame, in their order."""
        found: list[list[int]] = [[] for _ in self.names]
        for index, parent in enumerate(self.parents):
            if parent >= 0:
                found[parent].append(index)
        return found

    def paths(self) -> Iterator[tuple[int, list[str]]]:
        """(frame, names from the root to it) of every frame. The list is the same one each time: copy what you keep."""
        path: list[str] = []
        for index, name in enumerate(self.names):
            del path[self.depths[index] - self.depths[0] :]
            path.append(name)
            yield index, path

    def keep(self, kept: Sequence[bool]) -> View:
        """The view of the kept frames. What adds up, and belongs to frames that are left out, goes to their parents."""
        if all(kept):
            return self
        chosen = [index for index, keep in enumerate(kept) if keep]
        place = {index: new for new, index in enumerate(chosen)}
        heirs = _nearest_kept(self.parents, kept)

        def columns(given: list[Column]) -> list[Column]:
            return [_kept_column(column, chosen, place, heirs) for column in given]

        return replace(
            self,
            origin=[self.origin[index] for index in chosen],
            names=[self.names[index] for index in chosen],
            parents=[place.get(self.parents[index], -1) for index in chosen],
            depths=[self.depths[index] for index in chosen],
            columns=columns(self.columns),
            sides=[self.sides[index] for index in chosen] if self.sides else [],
            left=columns(self.left),
            right=columns(self.right),
        )

    def cut(self, depth: int) -> View:
        """The view of ``depth`` levels: 1 is the root alone. Raises UsageError below 1."""
        if depth < 1:
            raise UsageError(f"--depth {depth} shows nothing", hint="1 is ROOT alone")
        return self.keep([level < depth for level in self.depths])


def _nearest_kept(parents: Sequence[int], kept: Sequence[bool]) -> list[int]:
    """Each frame itself if it is kept, else its nearest ancestor that is; -1 if none is."""
    heirs: list[int] = []
    for index, parent in enumerate(parents):
        heirs.append(index if kept[index] else heirs[parent] if parent >= 0 else -1)
    return heirs


def _kept_column(column: Column, chosen: list[int], place: dict[int, int], heirs: list[int]) -> Column:
    own = None
    if column.own is not None:
        own = [column.own[index] for index in chosen]
        for index, heir in enumerate(heirs):
            value = column.own[index]
            if heir not in (index, -1) and value == value:
                at = place[heir]
                own[at] = own[at] + value if own[at] == own[at] else value

    def picked(numbers: Numbers) -> Numbers:
        return [numbers[index] for index in chosen]

    total = None if column.total is None else picked(column.total)
    return replace(column, values=picked(column.values), own=own, total=total)


def view_of(source: Source, choice: Choice) -> View:
    """The chosen part of one profile, without its difference to another and with all levels.

    Raises the errors of :func:`.frames.read_tree`, :func:`.filters.filter_tree`, :func:`.derive.derive`.
    """
    return _view(filter_tree(read_tree(source), choice.include, choice.exclude), choice)


def _view(tree: FrameTree, choice: Choice) -> View:
    columns = derive(tree, choice.metrics) if choice.metrics else all_columns(tree)
    shorten = shortener(choice.style)
    names = tree.names if choice.style in (None, "full") else [shorten(name) for name in tree.names]
    view = View(tree, list(range(len(tree))), names, tree.parents, tree.depths, columns)
    if not columns:
        raise EmptyProfile("no metric of the profile holds numbers", hint="-l lists metrics that do")
    if choice.threshold:  # as in Proton, 0 hides nothing: frames without a value stay
        first = columns[0]
        view = view.keep(at_least(first.values, view.parents, choice.threshold, first.name))
    return view
