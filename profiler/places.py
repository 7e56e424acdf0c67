"""Places: where a program is in the trees of all active sessions, looked up once and then remembered.

Entering a scope a second time must cost next to nothing, so there is a tree of the places that there have been. It is
forgotten when the sessions change: a new epoch begins.
"""

from __future__ import annotations

from . import open_scopes
from .open_scopes import ThreadState, shared, states
from .place import Epoch, OpenScope, Place
from .session import ProfileTarget, Session, registry


class Places:
    """Finds the place the program is at."""

    def __init__(self) -> None:
        self.epoch = Epoch(shared.generation)
        # Python frames differ with every call: nothing to remember while a session records them.
        self._frames = False
        # Does any session evaluate launch metadata? Do GPU launches have places other than their thread's?
        self.wants_metadata = False
        self.of_launches = False
        # Does any session record a time line of launches?
        self.of_trace = False

    def forget(self) -> None:
        """Begin a new epoch: sessions, phases or the GPU profiler changed."""
        self._frames = any(session.context == "python" for session in registry.active)
        self.wants_metadata = any(session.metadata_hook is not None for session in registry.active)
        in_kernels = any(session.mode.records is not None for session in registry.active)
        self.of_launches = self._frames or self.wants_metadata or in_kernels
        self.of_trace = any(session.data == "trace" and session.mode.records is None for session in registry.active)
        self.epoch = Epoch(shared.generation)
        shared.ordinary = self.epoch if registry.sessions and not self._frames else None
        if shared.interleaved:  # asked last: another thread may just have found out
            shared.ordinary = None

    def entered(self, scope: OpenScope) -> Place:
        """The place of a scope that is being entered."""
        outer = scope.outer
        if self._frames or states.get():
            return self.of_caller()
        around = self.epoch.root if outer is None else outer.place if outer.epoch is self.epoch else None
        found = None if around is None else around.children.get(scope.name)
        if found is None:
            return self._of_scope(scope)
        scope.place, scope.epoch = found, self.epoch  # it has been here before, nearly always
        return found

    def around(self, scope: OpenScope, thread: ThreadState) -> Place | None:
        """The place that a scope of this thread which was just left was entered from, where it is known without
        looking: nothing else may have moved the thread since."""
        if self._frames or shared.interleaved or states.get():
            return None
        outer = scope.below
        if outer is None:
            return self.epoch.root if thread.is_main else None
        if outer is not scope.outer or outer.closed or outer.epoch is not self.epoch:
            return None
        return outer.place

    def of_caller(self) -> Place:
        """The place where the caller is, states included."""
        if self._frames:
            return self._frames_now()
        scope = open_scopes.innermost()
        place = self._of_scope(scope)
        entered = states.get()
        if not entered:
            return place
        inside = place.states.get(entered[-1])
        if inside is None:
            path = open_scopes.shadow_path()
            inside = place.states[entered[-1]] = Place(place, _targets(path), path)
        return inside

    def now(self, place: Place) -> Place:
        """A place as the sessions are now, found for a thread that cannot be asked."""
        known = {target.phase.session: target.path for target in place.targets}
        targets = [session.target(known.get(session.number, place.path)) for session in registry.active]
        return Place(None, targets, place.path)

    def in_child(self, place: Place) -> Place:
        """A place of a forked child's parent in the data with which the same sessions begin there."""
        inherited = [(registry.sessions.get(target.phase.session), target.path) for target in place.targets]
        return Place(None, [session.target(path) for session, path in inherited if session is not None], place.path)

    def of_main(self) -> Place:
        """The place of the main thread's scopes."""
        return self._of_scope(open_scopes.of_main())

    def _frames_now(self) -> Place:
        return Place(None, [session.target(path_in(session)) for session in registry.active], open_scopes.shadow_path())

    def _of_scope(self, scope: OpenScope | None) -> Place:
        """The place of a scope, made together with those around it where this epoch does not have it yet."""
        known = self.epoch.root if scope is None else scope.place if scope.epoch is self.epoch else None
        if known is not None:  # nearly always
            return known
        missing: list[OpenScope] = []
        while scope is not None and scope.epoch is not self.epoch:
            missing.append(scope)
            scope = scope.outer
        place = scope.place if scope is not None else None
        if place is None:
            place = self.epoch.root = self.epoch.root or Place(None, _targets(()), ())
        for inner in reversed(missing):
            child = place.children.get(inner.name)
            if child is None:
                path = (*place.path, inner.name)
                child = place.children.setdefault(inner.name, Place(place, _targets(path), path))
            place = inner.place = child
            inner.epoch = self.epoch
        return place


def _targets(path: tuple[str, ...]) -> list[ProfileTarget]:
    return [session.target(path) for session in registry.active]


def make_frames(place: Place) -> None:
    """A scope is a frame even if nothing happens in it."""
    for target in place.targets:
        _ = target.node
    place.framed = True
    place.settled = not place.timed


def path_in(session: Session) -> tuple[str, ...]:
    """Where the calling thread is, in the session's kind of context: frame names, outermost first."""
    return open_scopes.python_path() if session.context == "python" else open_scopes.shadow_path()


places = Places()
