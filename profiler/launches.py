"""What the profiler does around every launch: book CPU launches with their time, mark GPU launches with their place."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .gpu import GpuProfiler
from .hooks import LaunchMetadata, metrics_of
from .kernel_scopes import add_to_trace, add_to_tree, warn_of_losses
from .metrics import split
from .open_scopes import follows_main, here, shared
from .place import Place
from .places import Places
from .session import ProfileTarget, Session, registry

if TYPE_CHECKING:
    from deuteron.compiler.runtime.launch.hooks import LaunchEvent
    from deuteron.compiler.runtime.launch.records import LaunchRecords


class _Pending(threading.local):
    """Launches of one thread between enter and exit: the event, where it is booked, and what its metadata gave."""

    def __init__(self) -> None:
        self.stack: list[tuple[LaunchEvent, Place, _Metadata]] = []


class _Metadata(NamedTuple):
    """The name and the metrics that a ``launch_metadata`` gave; no name if nobody asked for them."""

    name: str | None = None
    metrics: Mapping[str, object] = MappingProxyType({})


class LaunchRecorder(Protocol):
    """The part of the recorder that launches need."""

    places: Places
    gpu: GpuProfiler | None

    def metadata_state(self, kernel: str) -> AbstractContextManager[None]:
        """Book launches of the block as work for a kernel's metadata."""


class Launches:
    """The profiler's launch hook (``deuteron.compiler.runtime.launch.hooks.LaunchHook``)."""

    def __init__(self, recorder: LaunchRecorder) -> None:
        self._recorder = recorder
        self._pending = _Pending()

    def enter(self, event: LaunchEvent) -> None:
        """Find the launch's place in every active session; evaluates ``launch_metadata`` where a session wants it."""
        places = self._recorder.places
        on_cpu = event.device.name == "cpu"
        if not (on_cpu or places.of_launches or shared.interleaved):
            return  # marked when its scope was entered
        thread = here()
        given = _Metadata()
        if places.wants_metadata and not thread.evaluating and _any_wants(event.name):
            given = self._metadata(event)
        place, name = places.of_caller(), given.name
        launch = place.launches.get((event.name, name))
        if launch is None:
            targets = _launch_targets(place, event.name, name, on_cpu)
            launch = place.launches[event.name, name] = Place(place, targets, (*place.path, name or event.name))
        gpu = None if on_cpu else self._recorder.gpu
        number = None
        if given.metrics and name is not None:
            number, given = self._add_metrics(event, launch, given._replace(name=name), gpu)
        if gpu is not None:
            if number is None:
                gpu.mark_launch(thread, launch, given.metrics if places.of_trace else {})
            else:
                gpu.mark_number(thread, number)
        self._pending.stack.append((event, launch, given))

    def exit(self, event: LaunchEvent) -> None:
        """Book a CPU launch that has ended; take a GPU launch's mark back."""
        stack = self._pending.stack
        if not stack or stack[-1][0] is not event:
            return
        _, launch, given = stack.pop()
        if event.records is not None:
            _book_records(launch, event, event.records)
        if event.start_ns is not None and event.end_ns is not None:
            _book(launch, event.start_ns, event.end_ns, given)
        elif self._recorder.gpu is not None and launch.parent is not None:
            self._recorder.gpu.mark(here(), None if follows_main() else launch.parent)

    def _metadata(self, event: LaunchEvent) -> _Metadata:
        """Name and metrics from ``launch_metadata``. Launches it makes are booked under the metadata state."""
        with self._recorder.metadata_state(event.name):
            metadata = event.metadata()
            metrics = metrics_of(metadata) if metadata else {}
        name = metadata.get("name")
        return _Metadata(name if isinstance(name, str) and name else event.name, metrics)

    def _add_metrics(
        self, event: LaunchEvent, launch: Place, given: _Metadata, gpu: GpuProfiler | None
    ) -> tuple[int | None, _Metadata]:
        """Add a launch's metrics in the sessions that want them, tensors on a GPU when they are known. While a graph is
        captured they count whenever that is launched: then the number to mark the launch with comes first.

        Raises:
            MetricError: a name or a value cannot be one.
        """
        owners = [
            target
            for session, target in zip(registry.active, launch.targets, strict=False)
            if _wants(session, event.name, given.name or event.name)
        ]
        captured = gpu is not None and gpu.metrics.source.is_capturing(event.stream)
        with self._recorder.metadata_state(event.name):
            tensors, known = split(given.metrics, tells=gpu is not None)
            asked: Mapping[str, object] = {}
            if gpu is not None:
                around, mark = self._recorder.places.of_caller(), partial(gpu.mark_number, here())
                asked = gpu.metrics.ask(tensors, owners, around, mark, stream=event.stream, captured=captured)
        if gpu is not None and captured:
            return gpu.metrics.number_of_captured(launch.targets, owners, known), given._replace(metrics={})
        for owner in owners:
            owner.phase.profile.add_to(owner.node, known)
        return None, given._replace(metrics={**known, **asked})


def _book_records(launch: Place, event: LaunchEvent, records: LaunchRecords) -> None:
    name, _, index = event.device.name.partition(":")
    for target in launch.targets:
        phase = target.phase
        if phase.in_kernels and phase.timeline is not None:
            add_to_trace(phase.timeline, target, records, event.name, event.start_ns)
        elif phase.in_kernels:
            add_to_tree(target, records, name.upper(), int(index or 0))
    warn_of_losses(event.name, records)


def _book(launch: Place, start_ns: int, end_ns: int, given: _Metadata) -> None:
    for target in launch.targets:
        if target.phase.in_kernels:
            continue
        target.phase.profile.add_launches(
            target.node, count=1, time_ns=end_ns - start_ns, device_type="CPU", device_id=0
        )
        if target.phase.timeline is not None:
            # Sessions that did not ask for metadata have the kernel under its own name.
            metrics = given.metrics if target.path[-1] == given.name else None
            target.phase.timeline.add_span(target.path, start_ns, end_ns, category="kernel", metrics=metrics)


def _launch_targets(place: Place, kernel: str, name: str | None, on_cpu: bool) -> list[ProfileTarget]:
    """Where a launch goes: under the name from its metadata, its own name, or (on a GPU) the name CUPTI will report."""
    targets = []
    for session, here_ in zip(registry.active, place.targets, strict=False):
        if name is not None and _wants(session, kernel, name):
            targets.append(ProfileTarget(here_.phase, (*here_.path, name), is_launch=True))
        elif on_cpu or here_.phase.in_kernels:
            targets.append(ProfileTarget(here_.phase, (*here_.path, kernel), is_launch=True))
        else:
            targets.append(here_)
    return targets


def _any_wants(name: str) -> bool:
    return any(_wants(session, name) for session in registry.active)


def _wants(session: Session, *names: str) -> bool:
    hook = session.metadata_hook
    return isinstance(hook, LaunchMetadata) and all(hook.wants(name) for name in names)
