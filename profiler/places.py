"""Places: where a thread is in the trees of all active sessions, looked up once and then remembered.

Entering a scope a second time must cost next to nothing, so each thread keeps a tree of the places it has been to. It
is forgotten when the sessions change: a new epoch begins.
"""

from __future__ import annotations

from . import contexts
from .contexts import ThreadState
from .place import Place
from .session import ProfileTarget, Session, registry


class Places:
    """Finds the place a thread is at."""

    def __init__(self) -> None:
        self.epoch = 0
        # Python frames differ with every call: nothing to remember while a session records them.
        self._frames = False
        # Does any session evaluate launch metadata? Do GPU launches have places other than their thread's?
        self.wants_metadata = False
        self.of_launches = False

    def forget(self) -> None:
        """Begin a new epoch: sessions, phases or the GPU profiler changed."""
        self._frames = any(session.context == "python" for session in registry.active)
        self.wants_metadata = any(session.metadata_hook is not None for session in registry.active)
        self.of_launches = self._frames or self.wants_metadata
        self.epoch += 1

    def entered(self, thread: ThreadState, name: str) -> Place:
        """The place of a thread whose innermost scope ``name`` was just appended to its scopes."""
        place = thread.place
        if thread.epoch != self.epoch or place is None or thread.states or self._frames:
            thread.epoch = -1
            found = self.of(thread)
            _make_frames(found)
            return found
        child = place.children.get(name)
        if child is None:
            child = place.children[name] = Place(place, _targets(tuple(thread.scopes)))
            _make_frames(child)
        thread.place = child
        return child

    def left(self, thread: ThreadState) -> None:
        """Note that a thread's innermost scope was just removed from its scopes."""
        if thread.epoch == self.epoch and thread.place is not None:
            thread.place = thread.place.parent

    def of(self, thread: ThreadState) -> Place:
        """The place where a thread is, states included."""
        if self._frames:
            return Place(None, [session.target(path_in(session)) for session in registry.active])
        place = thread.place
        if thread.epoch != self.epoch or place is None:
            place = Place(None, _targets(()))
            for depth, name in enumerate(thread.scopes, start=1):
                child = Place(place, _targets(tuple(thread.scopes[:depth])))
                place.children[name] = child
                place = child
            thread.place, thread.epoch = place, self.epoch
        if not thread.states:
            return place
        state = thread.states[-1]
        inside = place.states.get(state)
        if inside is None:
            inside = place.states[state] = Place(place, _targets((*thread.scopes, state)))
        return inside


def _targets(path: tuple[str, ...]) -> list[ProfileTarget]:
    return [session.target(path) for session in registry.active]


def _make_frames(place: Place) -> None:
    """A scope is a frame even if nothing happens in it."""
    for target in place.targets:
        _ = target.node


def path_in(session: Session) -> tuple[str, ...]:
    """Where the calling thread is, in the session's kind of context: frame names, outermost first."""
    return contexts.python_path() if session.context == "python" else contexts.shadow_path()


places = Places()
