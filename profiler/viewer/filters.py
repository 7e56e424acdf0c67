"""Which frames are shown: whole paths, chosen by regular expressions or by the size of a metric."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import EmptyProfile, UsageError
from .frames import FrameTree, Numbers, ancestors_too


def filter_tree(tree: FrameTree, include: str | None = None, exclude: str | None = None) -> FrameTree:
    """Keep paths through frames whose name matches ``include``; drop frames that match ``exclude``, and all below them.

    Both are regular expressions matched from the start of the name. Sums are those of what is left. Raises UsageError
    for a bad regular expression, EmptyProfile when nothing is left.
    """
    if include:
        tree = _nonempty(tree, _paths_through(tree, _pattern(include)), f"no frame matches --include {include!r}")
    if exclude:
        tree = _nonempty(tree, _unmatched(tree, _pattern(exclude)), f"every frame matches --exclude {exclude!r}")
    return tree


def at_least(values: Numbers, parents: Sequence[int], threshold: float, metric: str) -> list[bool]:
    """Which frames have a value of ``threshold`` or more, or a frame below them that has (nan is not).

    Raises EmptyProfile if none has.
    """
    kept = ancestors_too((index for index, value in enumerate(values) if value >= threshold), parents)
    if not any(kept):
        raise EmptyProfile(
            f"no frame has {metric} of {threshold:g} or more", hint="nothing is left to show: loosen the filter"
        )
    return kept


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{text!r} is not a regular expression: {error}",
            hint="matching starts at the beginning of a name: use '.*word' to find a word anywhere",
        ) from error


def _nonempty(tree: FrameTree, kept: list[bool], otherwise: str) -> FrameTree:
    if not any(kept):
        raise EmptyProfile(otherwise, hint="nothing is left to show: loosen the filter")
    return tree.keep(kept)


def _paths_through(tree: FrameTree, pattern: re.Pattern[str]) -> list[bool]:
    hits = [index for index, name in enumerate(tree.names) if pattern.match(name)]
    kept = ancestors_too(hits, tree.parents)
    below = [False] * len(tree)
    for index in hits:
        below[index] = True
    for index, parent in enumerate(tree.parents):
        if parent >= 0 and below[parent]:
            below[index] = kept[index] = True
    return kept


def _unmatched(tree: FrameTree, pattern: re.Pattern[str]) -> list[bool]:
    kept: list[bool] = []
    for name, parent in zip(tree.names, tree.parents, strict=True):
        kept.append((parent < 0 or kept[parent]) and not pattern.match(name))
    return kept
