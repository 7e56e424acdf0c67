"""The recorder: brings scopes, launches and GPU records into the sessions that are active."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError

from . import contexts
from .contexts import METADATA_SCOPE, current
from .errors import CuptiError, UsageError
from .gpu import GpuProfiler, Source
from .hooks import LaunchMetadata
from .launches import Launches
from .session import Session, Target, registry

if TYPE_CHECKING:
    from deuteron.compiler.runtime.hooks import LaunchHook


@dataclass(eq=False, slots=True)
class OpenScope:
    """A scope between its entry and its exit."""

    name: str
    depth: int
    generation: int
    targets: list[Target]
    metrics: dict[str, object]
    start_ns: int


class Recorder:
    """Process-wide: what happens on scope entry, on launches, and when the set of active sessions changes."""

    def __init__(self) -> None:
        self.gpu: GpuProfiler | None = None
        self.generation = 0
        self._launches = Launches(self)
        self._hooked = False
        self._custom: dict[int, list[LaunchHook]] = {}
        self._warned = False

    # ---- scopes ------------------------------------------------------------------------------------------------

    def open_scope(self, name: str, metrics: Mapping[str, object] | None) -> OpenScope | None:
        """Enter a scope on this thread; None when nothing is profiled. Raises MetricError, and is then not entered."""
        if not registry.sessions:
            return None
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"a scope cannot be called {name!r}", hint="give it a name, a non-empty string"
            )
        current.scopes.append(name)
        try:
            targets = [session.target(session.path()) for session in registry.active]
            scope = OpenScope(
                name, len(current.scopes), self.generation, targets, {}, time.perf_counter_ns()
            )
            if metrics:
                self.add_metrics(scope, metrics)
        except BaseException:
            current.scopes.pop()
            raise
        if self.gpu is not None:
            self.gpu.mark(targets)
        return scope

    def add_metrics(self, scope: OpenScope, metrics: Mapping[str, object]) -> None:
        """Add metrics to an open scope. GPU work that reading a tensor causes is booked as metadata."""
        with self.metadata_state("") if _has_arrays(metrics) else _nothing():
            values = {key: _read(value) for key, value in metrics.items()}
        for target in scope.targets:
            target.phase.profile.add_to(target.node, values)
        scope.metrics.update(values)

    def close_scope(self, scope: OpenScope, *, strict: bool = True) -> None:
        """Leave a scope. Raises UsageError if other scopes were entered and not left, unless not ``strict``."""
        if scope.generation != self.generation:
            return
        balanced = len(current.scopes) == scope.depth and current.scopes[-1] == scope.name
        del current.scopes[min(scope.depth - 1, len(current.scopes)) :]
        end_ns = time.perf_counter_ns()
        for target in scope.targets:
            if target.phase.timeline is not None:
                target.phase.timeline.add_span(
                    target.path, scope.start_ns, end_ns, category="scope", metrics=scope.metrics
                )
        self.follow()
        if strict and not balanced:
            raise UsageError(
                f"scope {scope.name!r} is left while other scopes are open, or was left already",
                hint="leave scopes in the reverse order they were entered; `with` does it by itself",
            )

    def follow(self) -> None:
        """Tell the GPU source where the calling thread is."""
        if self.gpu is not None:
            self.gpu.follow(registry.active)

    @contextmanager
    def metadata_state(self, kernel: str) -> Iterator[None]:
        """Book launches of the block under ``__proton_launch_metadata[:kernel]``."""
        current.states.append(f"{METADATA_SCOPE}:{kernel}" if kernel else METADATA_SCOPE)
        evaluating, current.evaluating = current.evaluating, True
        self.follow()
        try:
            yield
        finally:
            current.evaluating = evaluating
            current.states.pop()
            self.follow()

    # ---- sessions ----------------------------------------------------------------------------------------------

    def sessions_changed(self) -> None:
        """Install or remove the launch hook and tell the GPU source which sessions are active now."""
        registry.refresh()
        wanted = bool(registry.active)
        if wanted != self._hooked:
            from deuteron.compiler.runtime.hooks import add_launch_hook, remove_launch_hook

            (add_launch_hook if wanted else remove_launch_hook)(self._launches)
            self._hooked = wanted
        if self.gpu is not None:
            if wanted:
                self.gpu.use_root(registry.active)
            self.follow()

    def add_custom_hook(self, session: Session, hook: LaunchHook) -> None:
        """Call a user's launch hook until its session is finalized."""
        from deuteron.compiler.runtime.hooks import add_launch_hook

        add_launch_hook(hook)
        self._custom.setdefault(session.number, []).append(hook)

    def session_removed(self, session: Session) -> None:
        """Undo what belongs to one session; after the last one, everything."""
        for hook in self._custom.pop(session.number, []):
            from deuteron.compiler.runtime.hooks import remove_launch_hook

            remove_launch_hook(hook)
        self.sessions_changed()
        if registry.sessions:
            return
        self.generation += 1
        contexts.reset()
        if self.gpu is not None:
            gpu, self.gpu = self.gpu, None
            gpu.stop()

    def start_gpu(self, *, required: bool, source: Source | None = None) -> None:
        """Begin to collect GPU records if there is a GPU. Raises CuptiError only if ``required``."""
        from .sources.driver import device_count

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
                from .sources.cupti import CuptiSource

                source = CuptiSource()
            self.gpu = GpuProfiler(source)
        except CuptiError as error:
            if required:
                raise
            if not self._warned:
                warnings.warn(f"GPU kernels are not timed: {error}", RuntimeWarning, stacklevel=4)
                self._warned = True

    def flush(self) -> None:
        """Wait for the GPUs, add all records, and mark phases that can get no more data as complete."""
        if self.gpu is not None:
            self.gpu.flush()
        for session in registry.sessions.values():
            for number, phase in list(session.phases.items()):
                if number < session.phase:
                    phase.complete = True
            _write_complete_phases(session)

    def phase_advanced(self, session: Session) -> None:
        """Without a GPU nothing is in flight, so earlier phases are complete at once."""
        if self.gpu is None or session.mode.name:
            self.flush()


def _write_complete_phases(session: Session) -> None:
    if session.mode.name != "periodic_flushing":
        return
    suffix = session.suffix(session.mode.format)
    for number, phase in list(session.phases.items()):
        if phase.complete:
            session.write_phase(number, suffix)
            del session.phases[number]


def _has_arrays(metrics: Mapping[str, object]) -> bool:
    return any(hasattr(value, "tolist") for value in metrics.values())


def _read(value: object) -> object:
    return value.tolist() if hasattr(value, "tolist") else value


@contextmanager
def _nothing() -> Iterator[None]:
    yield


recorder = Recorder()

__all__ = ["DeuteronError", "LaunchMetadata", "OpenScope", "Recorder", "recorder"]
