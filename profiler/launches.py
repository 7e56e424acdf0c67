"""What the profiler does around every launch: book CPU launches with their time, mark GPU launches with their place."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .contexts import here
from .hooks import LaunchMetadata, metrics_of
from .session import Session, Target, registry

if TYPE_CHECKING:
    from deuteron.compiler.runtime.hooks import LaunchEvent

    from .recorder import Recorder


@dataclass(slots=True)
class _Launch:
    event: LaunchEvent
    targets: list[Target]
    marked: bool


class _Pending(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Launch] = []


class Launches:
    """The profiler's launch hook (``deuteron.compiler.runtime.hooks.LaunchHook``)."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pending = _Pending()

    def enter(self, event: LaunchEvent) -> None:
        """Find the launch's place in every active session; evaluates ``launch_metadata`` where a session wants it."""
        sessions = registry.active
        on_cpu = event.device.name == "cpu"
        if not on_cpu and not any(_needs_place(session) for session in sessions):
            return
        found = self._metadata(event, sessions)
        name, metrics = found if found is not None else (event.name, {})
        targets = []
        for session in sessions:
            if found is not None and _wants(session, event.name, name):
                target = session.target((*session.path(), name), is_launch=True)
                target.phase.profile.add_to(target.node, metrics)
            elif on_cpu:
                target = session.target((*session.path(), event.name), is_launch=True)
            else:
                target = session.target(session.path())
            targets.append(target)
        gpu = self._recorder.gpu
        marked = gpu is not None and not on_cpu
        if gpu is not None and marked:
            gpu.mark_launch(here(), targets)
        self._pending.stack.append(_Launch(event, targets, marked))

    def exit(self, event: LaunchEvent) -> None:
        """Book a CPU launch that has ended; take a GPU launch's mark back."""
        stack = self._pending.stack
        if not stack or stack[-1].event is not event:
            return
        launch = stack.pop()
        if launch.marked:
            self._recorder.follow()
        if event.start_ns is None or event.end_ns is None:
            return
        for target in launch.targets:
            target.phase.profile.add_launches(
                target.node,
                count=1,
                time_ns=event.end_ns - event.start_ns,
                device_type="CPU",
                device_id=0,
            )
            if target.phase.timeline is not None:
                target.phase.timeline.add_span(
                    target.path, event.start_ns, event.end_ns, category="kernel"
                )

    def _metadata(
        self, event: LaunchEvent, sessions: tuple[Session, ...]
    ) -> tuple[str, dict[str, object]] | None:
        """Name and metrics from ``launch_metadata``, or None when no session wants them for this launch."""
        if here().evaluating or not any(_wants(session, event.name) for session in sessions):
            return None
        with self._recorder.metadata_state(event.name):
            metadata = event.metadata()
            metrics = metrics_of(metadata)
            for key, value in metrics.items():
                if hasattr(value, "tolist"):
                    metrics[key] = value.tolist()
        name = metadata.get("name")
        return (name if isinstance(name, str) and name else event.name), metrics


def _needs_place(session: Session) -> bool:
    """GPU launches are marked when a scope is entered, unless they have places of their own."""
    return session.metadata_hook is not None or session.context == "python"


def _wants(session: Session, *names: str) -> bool:
    hook = session.metadata_hook
    return isinstance(hook, LaunchMetadata) and all(hook.wants(name) for name in names)
