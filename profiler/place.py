"""Epochs, places in the trees of the active sessions, and scopes that are open at one."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import ProfileTarget


class Epoch:
    """The time from one change of the sessions to the next, in which places stay what they are. ``root`` is the place
    in no scope, None until it is asked for. ``generation`` is that of scopes which are opened meanwhile."""

    __slots__ = ("generation", "root")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.root: Place | None = None


class Place:
    """The targets of one path in all active sessions. ``path`` is that of scopes and states, whatever the sessions
    record. ``number`` stands for the targets in GPU records; -1: not asked for yet. ``timed``: those of the targets
    that have a time line. ``framed``: they have a frame each, as scopes do. ``settled``: framed
    and not timed, so that entering a scope here again leaves nothing in the trees; ``caller`` is the code of a plain
    function that did, None while the place is not settled."""

    __slots__ = (
        "caller",
        "children",
        "framed",
        "launches",
        "number",
        "parent",
        "path",
        "settled",
        "states",
        "targets",
        "timed",
    )

    def __init__(self, parent: Place | None, targets: list[ProfileTarget], path: tuple[str, ...]) -> None:
        self.parent = parent
        self.path = path
        self.targets = targets
        self.timed = [target for target in targets if target.phase.timeline is not None]
        self.framed = False
        self.settled = False
        self.caller: CodeType | None = None
        self.number = -1
        self.children: dict[str, Place] = {}
        self.states: dict[str, Place] = {}
        # Places of launches made here, by the kernel's name and the name its metadata gave.
        self.launches: dict[tuple[str, str | None], Place] = {}


class OpenScope:
    """A scope between its entry and its exit. ``owner`` is what will leave it, ``outer`` the scope that it is in.

    ``below`` is the one that was opened before it in the same context, which may be that of a suspended generator.
    ``frame`` is that of the generator that opened it; None for other functions and for context managers. ``place`` is
    where it is in the trees of all sessions, in ``epoch``; ``entered`` is where its metrics and its end go: the place
    at its entry, states and Python frames included. ``ordinary`` is the epoch if it was entered in the ordinary case
    (scopes.py), None in others. ``start_ns`` is known where somebody asks for times, 0 elsewhere.
    """

    # Entering a scope must cost next to nothing: no __init__ (open_scopes.enter and scopes.py set the fields), and
    # slots, since attributes that have a default in the class are slow to read.
    __slots__ = (
        "below",
        "closed",
        "entered",
        "epoch",
        "frame",
        "generation",
        "metrics",
        "name",
        "ordinary",
        "outer",
        "owner",
        "place",
        "start_ns",
    )

    name: str
    owner: object
    outer: OpenScope | None
    below: OpenScope | None
    generation: int
    closed: bool
    ordinary: Epoch | None
    frame: FrameType | None
    place: Place | None
    epoch: Epoch | None
    entered: Place
    metrics: dict[str, object] | None
    start_ns: int
