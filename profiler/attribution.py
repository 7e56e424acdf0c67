"""From GPU records to profile nodes and spans of traces: join, group and add, in bulk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from .correlation import Correlations
from .device_metrics import CAPTURED_AT, Captured, DeviceMetrics
from .sampled import add_samples
from .session import ProfileTarget
from .sources.cupti import kernel_name
from .sources.records import COPY_KINDS, KIND_MEMSET, Batch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .timeline import Timeline


class LaunchLog:
    """The numbers of launches by correlation id.

    One launch of a graph has many kernels, whose records may come at different times; so launches are kept until
    :meth:`clear`. They are held in sorted runs, of which neighbours of like size are merged: adding stays cheap however
    many there are.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint32]] = []
        self._before: list[NDArray[np.uint32]] = []

    def add(self, launches: NDArray[np.uint32]) -> None:
        """Add an array (launches, 2) of correlation ids and numbers."""
        import numpy as np

        if len(launches):
            self._runs.append(_by_id(launches))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs[-2:] = [_by_id(np.concatenate(self._runs[-2:]))]

    def numbers(self, ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The numbers of launches, 0 for those that are not here."""
        import numpy as np

        found = np.zeros(len(ids), np.uint32)
        for run in (*self._before, *self._runs):
            at = np.minimum(np.searchsorted(run[:, 0], ids), len(run) - 1)
            found = np.where(run[at, 0] == ids, run[at, 1], found)
        return found

    def begin_flush(self) -> None:
        """Launches so far will have all of their records at :meth:`clear`; others may come meanwhile."""
        self._before, self._runs = [*self._before, *self._runs], []

    def clear(self) -> None:
        """Forget the launches from before the flush."""
        self._before.clear()


def _by_id(launches: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return launches[launches[:, 0].argsort(kind="stable")]


class Attribution:
    """Adds kernel records to the places their launches came from, or to the fallback where none is known."""

    def __init__(self, correlations: Correlations, metrics: DeviceMetrics) -> None:
        self.correlations = correlations
        self.metrics = metrics
        self.fallback: tuple[ProfileTarget, ...] = ()
        self._log = LaunchLog()
        self._names: dict[int, str] = {}
        # Numbers of the places where nodes of graphs were captured; graphs are launched as long as the program likes.
        self._captured: dict[int, int] = {}
        self._strangers: set[int] = set()

    def take(self, batch: Batch) -> None:
        """Add the kernels of a batch; to traces its copies, memsets and calls, too."""
        self._log.add(batch.launches)
        if batch.nodes is not None:
            for id_, original, number in batch.nodes.tolist():
                self._captured[id_] = self._captured.get(original, 0) if original else number
        self.metrics.arrived(batch.told)
        self._join_metrics(batch.kernels)
        for kernels in batch.kernels:
            self._add(kernels, self._log.numbers(kernels["correlationId"]), batch.epoch_offset_ns)
        for copies in batch.copies:
            self._add_copies(copies, batch.epoch_offset_ns)
        if batch.calls is not None:
            self._add_calls(batch.calls, batch.call_names)
        if batch.samples is not None:
            numbers = self._log.numbers(batch.samples.rows["launch"])
            add_samples(batch.samples, numbers, self._targets_of, self._name)

    def begin_flush(self) -> None:
        """All launches so far are waited for; other threads may launch meanwhile."""
        self._log.begin_flush()

    def settle(self) -> None:
        """After a flush, when no launch from before it has records to come: forget these, and addresses of names."""
        self._log.clear()
        self._names.clear()

    def _join_metrics(self, batch: Sequence[NDArray[np.void]]) -> None:
        """Bring the kernels that told metrics of captured nodes together with what they told."""
        ran: list[tuple[int, int, Captured]] = []
        for kernels in batch if self.metrics.captured else ():
            found = zip(
                kernels["start"].tolist(),
                self._log.numbers(kernels["correlationId"]).tolist(),
                self._captures(kernels).tolist(),
                strict=True,
            )
            for start, number, capture in found:
                captured = self.metrics.captured.get(capture)
                if captured is not None and captured.tensor is not None:
                    ran.append((start, number, captured))
        for _, number, captured in sorted(ran, key=itemgetter(0)):
            self.metrics.ran(captured, self._targets_of(number))
        self.metrics.join()

    def _targets_of(self, number: int) -> list[ProfileTarget]:
        """Where launches with a number go: not to sessions of what kernels record."""
        known = self.correlations.targets_of(number)
        found = self.fallback if known is None else known
        return [target for target in found if not target.phase.in_kernels]

    def _add(self, kernels: NDArray[np.void], numbers: NDArray[np.uint32], offset_ns: int) -> None:
        """Sum the kernels of equal place, name and device, and add each sum once."""
        import numpy as np

        if not len(kernels):
            return
        keys = (kernels["deviceId"], kernels["name"], self._captures(kernels), numbers)
        order = np.lexsort(keys)
        kernels, (devices, names, captures, numbers) = kernels[order], (key[order] for key in keys)
        changes = np.zeros(len(kernels) - 1, bool)
        for key in (devices, names, captures, numbers):
            changes |= key[1:] != key[:-1]
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(kernels)]
        for first, end in zip(bounds, bounds[1:], strict=False):
            captured = self.correlations.targets_of(int(captures[first])) or ()
            given = self.metrics.captured.get(int(captures[first]))
            for target in self._targets_of(int(numbers[first])):
                below = _below(target, captured, self._name(int(names[first])))
                shown = self.correlations.metrics_of(int(numbers[first])) if target.is_launch else None
                if given is not None and given.constants:
                    self.metrics.add_constants(given, target, end - first)
                    shown = given.constants
                # Metrics go with the name from the same metadata; another session may have the kernel under its own.
                self._add_group(target, below, kernels[first:end], shown, offset_ns)

    def _captures(self, kernels: NDArray[np.void]) -> NDArray[np.uint32]:
        """For each kernel the number of the place where a graph captured it; 0 for others."""
        import numpy as np

        ids, first, places = np.unique(kernels["graphNodeId"], return_index=True, return_inverse=True)
        for id_, graph in zip(ids.tolist(), kernels["graphId"][first].tolist(), strict=True):
            if graph and id_ not in self._captured:
                self._warn_of_stranger(graph)
        return np.array([self._captured.get(id_, 0) for id_ in ids.tolist()], np.uint32)[places]

    def _warn_of_stranger(self, graph: int) -> None:
        """Say once of a graph that it was made before anybody looked."""
        if graph not in self._strangers:
            self._strangers.add(graph)
            print(
                f"proton: Cannot find graph for graphExecId: {graph}. Its kernels have no {CAPTURED_AT}; "
                "start profiling before the graph is created.",
                file=sys.stderr,
            )

    def _add_group(
        self,
        target: ProfileTarget,
        below: tuple[str, ...],
        group: NDArray[np.void],
        metrics: Mapping[str, object] | None,
        offset_ns: int,
    ) -> None:
        profile = target.phase.profile
        node, path = target.node, (*target.path, *below)
        if below:
            node = profile.descend(node, below)
        timed = group[_is_timed(group)]
        profile.add_launches(
            node,
            count=len(group),
            time_ns=int((timed["end"] - timed["start"]).sum()),
            device_type="CUDA",
            device_id=int(group["deviceId"][0]),
        )
        timeline = target.phase.timeline
        if timeline is not None:
            timeline.without_times += len(group) - len(timed)
            for kernel in timed:
                _add_span(timeline, path, kernel, offset_ns, metrics=metrics)

    def _add_copies(self, copies: NDArray[np.void], offset_ns: int) -> None:
        timed = copies[_is_timed(copies)]
        for copy, number in zip(timed, self._log.numbers(timed["correlationId"]).tolist(), strict=True):
            category = "memset" if copy["kind"] == KIND_MEMSET else "memcpy"
            name = "memset" if category == "memset" else f"memcpy {_direction(int(copy['copyKind']))}"
            for target in self._targets_of(number):
                if target.phase.timeline is not None:
                    path, metrics = (*target.path, name), {"bytes": int(copy["bytes"])}
                    _add_span(target.phase.timeline, path, copy, offset_ns, category, metrics)

    def _add_calls(self, calls: NDArray[np.void], names: Mapping[int, str]) -> None:
        for id_, number, thread, call, begin, end in calls.tolist():
            name = names.get(call, f"driver call {call}")
            for target in self._targets_of(number):
                if target.phase.timeline is not None:
                    path = (*target.path, name)
                    target.phase.timeline.add_call(path, begin, end, thread=thread, correlation=id_)

    def _name(self, address: int) -> str:
        name = self._names.get(address)
        if name is None:
            name = self._names[address] = kernel_name(address)
        return name


def _below(target: ProfileTarget, captured: Sequence[ProfileTarget], name: str) -> tuple[str, ...]:
    """The frames of a kernel below its launch's place: those of its capture in the same session, if a graph launched
    it, and its name; none where the place is a launch of its own."""
    for capture in captured:
        if capture.phase.session == target.phase.session:
            return (CAPTURED_AT, *capture.path, *(() if capture.is_launch else (name,)))
    return () if target.is_launch else (name,)


def _is_timed(records: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which records have times: CUPTI writes zeros where it had no memory for them."""
    timed: NDArray[np.bool_] = (records["start"] > 0) & (records["end"] >= records["start"])
    return timed


def _add_span(
    timeline: Timeline,
    path: tuple[str, ...],
    record: np.void,
    offset_ns: int,
    category: str = "kernel",
    metrics: Mapping[str, object] | None = None,
) -> None:
    """Add a record to its lane: of its stream, and of a graph if it was launched by one; copies have lanes beside."""
    lane = f"GPU {record['deviceId']} Stream {record['streamId']}"
    if record["graphId"]:
        lane = f"GPU {record['deviceId']} Graph {record['graphId']} Stream {record['streamId']}"
    timeline.add_device_span(
        path,
        int(record["start"]) + offset_ns,
        int(record["end"]) + offset_ns,
        lane=lane if category == "kernel" else f"{lane} {category}",
        category=category,
        metrics=metrics,
        correlation=int(record["correlationId"]),
    )


def _direction(kind: int) -> str:
    return COPY_KINDS[kind] if kind < len(COPY_KINDS) else COPY_KINDS[0]
