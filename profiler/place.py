"""A place in the trees of the active sessions, and a scope that is open at one."""

from __future__ import annotations

from types import FrameType

from .session import ProfileTarget


class Place:
    """The targets of one path in all active sessions. ``path`` is that of scopes and states, whatever the sessions
    record. ``number`` stands for the targets in GPU records; -1: not asked for yet. ``timed``: those of the targets
    that have a time line. ``framed``: they have a frame each, as scopes do."""

    __slots__ = ("children", "framed", "launches", "number", "parent", "path", "states", "targets", "timed")

    def __init__(self, parent: Place | None, targets: list[ProfileTarget], path: tuple[str, ...]) -> None:
        self.parent = parent
        self.path = path
        self.targets = targets
        self.timed = [target for target in targets if target.phase.timeline is not None]
        self.framed = False
        self.number = -1
        self.children: dict[str, Place] = {}
        self.states: dict[str, Place] = {}
        # Places of launches made here, by the kernel's name and the name its metadata gave.
        self.launches: dict[tuple[str, str | None], Place] = {}


class OpenScope:
    """A scope between its entry and its exit. ``owner`` is what will leave it, ``outer`` the scope that it is in.

    ``below`` is the one that was opened before it in the same context, which may be that of a suspended generator.
    ``frame`` is that of the generator that opened it; None for other functions. ``place`` is where it is in the trees
    of all sessions, as of ``epoch``; ``entered`` is where its metrics and its end go: the place at its entry, states
    and Python frames included. ``start_ns`` is known where somebody asks for times.
    """

    # Defaults of the class: entering a scope must cost next to nothing, and sets only what differs.
    closed = False
    frame: FrameType | None = None
    place: Place | None = None
    epoch = -1
    metrics: dict[str, object] | None = None
    start_ns = 0
    entered: Place

    def __init__(
        self, name: str, owner: object, outer: OpenScope | None, below: OpenScope | None, generation: int
    ) -> None:
        self.name = name
        self.owner = owner
        self.outer = outer
        self.below = below
        self.generation = generation
