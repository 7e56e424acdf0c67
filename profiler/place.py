"""A place in the trees of the active sessions, and a scope that is open at one."""

from __future__ import annotations

import time

from .session import ProfileTarget


class Place:
    """The targets of one path in all active sessions. ``number`` stands for them in GPU records; -1: not asked for
    yet."""

    __slots__ = ("children", "launches", "number", "parent", "states", "targets")

    def __init__(self, parent: Place | None, targets: list[ProfileTarget]) -> None:
        self.parent = parent
        self.targets = targets
        self.number = -1
        self.children: dict[str, Place] = {}
        self.states: dict[str, Place] = {}
        # Places of launches made here, by the kernel's name and the name its metadata gave.
        self.launches: dict[tuple[str, str | None], Place] = {}


class OpenScope:
    """A scope between its entry and its exit. ``owner`` is what will leave it."""

    __slots__ = ("generation", "metrics", "name", "owner", "place", "start_ns")

    def __init__(self, name: str, owner: object, place: Place, generation: int) -> None:
        self.name = name
        self.owner = owner
        self.place = place
        self.generation = generation
        self.metrics: dict[str, object] = {}
        self.start_ns = time.perf_counter_ns()
