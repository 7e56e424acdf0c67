"""The recorder: brings scopes, launches and GPU records into the sessions that are active."""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from deuteron.compiler import knobs
from deuteron.compiler.runtime.launch import lines
from deuteron.compiler.runtime.launch.hooks import LaunchHook, add_launch_hook, remove_launch_hook
from deuteron.compiler.runtime.launch.recording import recording

from . import open_scopes
from .errors import CuptiError, MetricError, UsageError
from .gpu import GpuProfiler, Source
from .launches import Launches
from .metrics import split
from .open_scopes import SWITCHING, here
from .place import OpenScope
from .places import make_frames, places
from .session import ProfileTarget, Session, registry
from .sources.cupti import CuptiSource
from .sources.driver import device_count
from .tree import METADATA_OF, METADATA_SCOPE

_PLAIN = frozenset({int, float, str, bool})


class _Range:
    """Owns the scope of a range of NVTX."""


class Recorder:
    """Process-wide: what happens on scope entry, on launches, and when the set of active sessions changes."""

    def __init__(self) -> None:
        self.gpu: GpuProfiler | None = None
        self.places = places
        self._launches = Launches(self)
        self._hooked = False
        # Hooks of users, by the number of their session, and those of active ones.
        self._custom: dict[int, LaunchHook] = {}
        self._custom_called: dict[int, LaunchHook] = {}
        self._warned = False

    # ---- scopes ------------------------------------------------------------------------------------------------

    def open_scope(
        self, name: str, metrics: Mapping[str, object] | None, owner: object, frame: FrameType
    ) -> OpenScope | None:
        """Enter a scope in the context of ``frame``; None when nothing is profiled. Raises MetricError, and is then not
        entered."""
        if not registry.sessions:
            return None
        if type(name) is not str or not name:
            name = open_scopes.plain_name(name, "scope")
        scope = open_scopes.enter(name, owner, frame)
        place = self.places.entered(scope)
        scope.entered = place
        if place.timed:
            scope.start_ns = time.perf_counter_ns()  # before the kernels that tell its metrics
        if metrics:
            try:
                self.add_metrics(scope, metrics)
            except BaseException:
                self.close_scope(scope, strict=False)
                raise
        if not place.framed:
            make_frames(place)
        if place.settled and not frame.f_code.co_flags & SWITCHING:
            place.caller = frame.f_code
        _begin_spans(scope)
        if self.gpu is not None:
            self.gpu.mark(here(), place)
        return scope

    def begin_in_child(self) -> None:
        """In a forked child: have the scopes that its thread was in begin there, without what they had in the parent.
        What they are given from now on belongs to the child's data."""
        for scope in reversed(list(open_scopes.opened())):
            scope.entered = self.places.in_child(scope.entered)
            scope.metrics = None
            if scope.start_ns:
                scope.start_ns = time.perf_counter_ns()
            _begin_spans(scope)

    def add_metrics(self, scope: OpenScope, metrics: Mapping[str, object]) -> None:
        """Add metrics to an open scope, in the sessions that are active: tensors on a GPU when they are known; while a
        graph is captured, whenever it is launched. GPU work that this causes is booked as metadata. Raises MetricError.
        """
        if not isinstance(metrics, Mapping):
            raise MetricError(f"the metrics of {scope.name!r} are {metrics!r}", hint="give values by name")
        active = [session.number for session in registry.active]
        targets = [target for target in scope.entered.targets if target.phase.session in active]
        if not targets:
            return
        shown: Mapping[str, object] = metrics
        captured = self.gpu is not None and self.gpu.metrics.source.is_capturing()
        if captured or any(type(value) not in _PLAIN for value in metrics.values()):
            metrics, shown = self._asked(metrics, targets, captured)
        for target in targets:
            if metrics:
                target.add(metrics)
            if target.phase.timeline is not None:
                scope.metrics = {**(scope.metrics or {}), **shown}

    def _asked(
        self, metrics: Mapping[str, object], owners: Sequence[ProfileTarget], captured: bool
    ) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Have GPUs tell what only they know; the metrics to be added now, and those that a time line shows."""
        with self.metadata_state(""):
            tensors, known = split(metrics, tells=self.gpu is not None)
            if self.gpu is None:
                return known, known
            around, mark = self.places.of_caller(), functools.partial(self.gpu.mark_number, here())
            asked = self.gpu.metrics.ask(tensors, owners, around, mark, stream=None, captured=captured)
            if not captured:
                return known, {**known, **asked}
            if known:
                self.gpu.metrics.capture(known, owners, around, mark, stream=None)
            return {}, {}

    def close_scope(self, scope: OpenScope, *, strict: bool = True) -> None:
        """Leave a scope. Raises UsageError if other scopes were entered and not left, unless not ``strict``."""
        if scope.closed or scope.generation != open_scopes.shared.generation:
            return
        balanced = open_scopes.pop(scope)
        if scope.entered.timed:
            for target in scope.entered.timed:
                if target.phase.timeline is not None:
                    target.phase.timeline.end(scope)
        if self.gpu is not None:
            thread = here()
            around = self.places.around(scope, thread) if balanced else None
            if around is None:
                self.follow()
            else:
                self.gpu.mark(thread, around)
        if strict and not balanced:
            raise UsageError(
                f"scope {scope.name!r} is left while other scopes are open, or was left already",
                hint="leave scopes in the reverse order they were entered; `with` does it by itself",
            )

    def enter_range(self, name: str) -> None:
        """Enter a range of NVTX: a scope of the calling thread."""
        self.open_scope(name, None, _Range(), sys._getframe(0))

    def leave_range(self) -> None:
        """Leave the innermost range, if it was entered while somebody looked; scopes inside are left, too."""
        opened = next((opened for opened in open_scopes.opened() if isinstance(opened.owner, _Range)), None)
        if opened is not None:
            self.close_scope(opened, strict=False)

    def follow(self) -> None:
        """Tell the GPU source where the calling thread is."""
        if self.gpu is not None:
            self.gpu.mark(here(), None if open_scopes.follows_main() else self.places.of_caller())

    @contextmanager
    def metadata_state(self, kernel: str) -> Iterator[None]:
        """Book launches of the block under ``__proton_launch_metadata``, and there under the kernel's name."""
        thread = here()
        state = f"{METADATA_OF}{kernel}" if kernel else METADATA_SCOPE
        token = open_scopes.states.set((*open_scopes.states.get(), state))
        evaluating, thread.evaluating = thread.evaluating, True
        self.follow()
        try:
            yield
        finally:
            thread.evaluating = evaluating
            open_scopes.states.reset(token)
            self.follow()

    # ---- sessions ----------------------------------------------------------------------------------------------

    def sessions_changed(self) -> None:
        """Install or remove the launch hook and tell the GPU source which sessions are active now."""
        registry.refresh()
        self.places.forget()
        wanted = bool(registry.active)
        settings = (session.mode.records for session in registry.active)
        recording.set(next((found for found in settings if found is not None), None))
        lines.wanted.set(any(session.mode.period is not None for session in registry.active))
        if wanted != self._hooked:
            (add_launch_hook if wanted else remove_launch_hook)(self._launches)
            self._hooked = wanted
        self._call_custom_hooks()
        if self.gpu is not None:
            self.gpu.use_root(registry.active)
            self.gpu.trace(places.of_trace)
            self.gpu.mark_again(self.places.of_main(), self.places.now)
            self.follow()

    def add_custom_hook(self, session: Session, hook: LaunchHook) -> None:
        """Call a user's launch hook while its session is active, from the next change of the sessions on."""
        self._custom[session.number] = hook

    def _call_custom_hooks(self) -> None:
        """As Proton, which takes the hooks of a session away while it is deactivated."""
        active = {session.number for session in registry.active}
        wanted = {number: hook for number, hook in self._custom.items() if number in active}
        for number in self._custom_called.keys() - wanted.keys():
            remove_launch_hook(self._custom_called[number])
        for number in wanted.keys() - self._custom_called.keys():
            add_launch_hook(wanted[number])
        self._custom_called = wanted

    def session_removed(self, session: Session) -> None:
        """Undo what belongs to one session; after the last one, everything."""
        self._custom.pop(session.number, None)
        self.sessions_changed()
        if registry.sessions:
            return
        if self.gpu is not None:
            gpu, self.gpu = self.gpu, None
            gpu.stop(here())
        open_scopes.reset()

    def start_gpu(self, *, required: bool, source: Source | None = None) -> None:
        """Begin to collect GPU records if there is a GPU. Raises CuptiError only if ``required``."""
        if self.gpu is not None:
            return
        if source is None and not device_count():
            if required:
                raise CuptiError(
                    "backend='cupti' needs an NVIDIA GPU and its driver; none was found",
                    hint="leave backend out: CPU launches are timed, and GPUs where there are any",
                )
            return
        try:
            if source is None:
                source = CuptiSource()
            self.gpu = GpuProfiler(source)
            if knobs.nvtx_ranges.get():
                source.follow_ranges(self.enter_range, self.leave_range)
        except CuptiError as error:
            if required:
                raise
            if not self._warned:
                warnings.warn(f"GPU kernels are not timed: {error}", RuntimeWarning, stacklevel=4)
                self._warned = True

    def flush(self) -> dict[int, Exception]:
        """Wait for the GPUs, add all records, mark phases that can get no more data as complete, and write those of
        sessions that are written by phases. Returns why a session could not be written, by its number: it keeps its
        data, and the others go on."""
        if self.gpu is not None:
            self.gpu.flush()
        failures: dict[int, Exception] = {}
        for session in list(registry.sessions.values()):
            for number, phase in list(session.phases.items()):
                if number < session.phase:
                    phase.complete = True
            try:
                _write_complete_phases(session)
            except Exception as error:
                failures[session.number] = error
        return failures

    def phase_advanced(self, session: Session) -> None:
        """Without a GPU nothing is in flight, so earlier phases are complete at once. Raises why this session could not
        be written, if it is written by phases."""
        if self.gpu is None or session.mode.name:
            failure = self.flush().get(session.number)
            if failure is not None:
                raise failure


def _begin_spans(scope: OpenScope) -> None:
    for target in scope.entered.timed:
        if target.phase.timeline is not None:
            target.phase.timeline.begin(target.path, scope)


def _write_complete_phases(session: Session) -> None:
    if session.mode.name != "periodic_flushing":
        return
    suffix = session.suffix(session.mode.format)
    for number, phase in list(session.phases.items()):
        if phase.complete:
            session.write_phase(number, suffix)
            del session.phases[number]


recorder = Recorder()
