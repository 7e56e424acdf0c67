"""From GPU records to profile nodes and spans of traces: join, group and add, in bulk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from .correlation import Correlations
from .device_metrics import CAPTURED_AT, Captured, DeviceMetrics
from .metrics import Awaited
from .sample_frames import add_samples
from .session import ProfileTarget
from .sources.cupti import kernel_name
from .sources.records import COPY_KINDS, KIND_MEMSET, Batch
from .timeline import GraphNode, Lane, Timeline
from .tree import METADATA_SCOPE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


#: What tells the runs of nodes of graphs apart: the fields of a record. A node in a loop of its graph runs again.
RUN = ["correlationId", "graphNodeId", "start"]
Told = Mapping[tuple[int, ...], Mapping[str, Awaited]]


class _Capture(NamedTuple):
    """The number of the place where a node of a graph was captured, and when, on ``perf_counter_ns``'s clock."""

    number: int = 0
    at_ns: int = 0


class Attribution:
    """Adds kernel records to the places their launches came from, or to the fallback where none is known."""

    def __init__(self, correlations: Correlations, metrics: DeviceMetrics) -> None:
        self.correlations = correlations
        self.metrics = metrics
        self.fallback: tuple[ProfileTarget, ...] = ()
        self._log = LaunchLog()
        self._names: dict[int, str] = {}
        # Nodes of graphs by id; graphs are launched as long as the program likes.
        self._captured: dict[int, _Capture] = {}
        self._strangers: set[int] = set()

    def take(self, batch: Batch) -> None:
        """Add the kernels of a batch; to traces its copies, memsets and calls, too."""
        self._log.add(batch.launches)
        if batch.nodes is not None:
            for id_, original, *capture in batch.nodes.tolist():
                self._captured[id_] = self._captured.get(original, _Capture()) if original else _Capture(*capture)
        self.metrics.arrived(batch.told)
        told = self._join_metrics(batch.kernels)
        for kernels in batch.kernels:
            self._add(kernels, self._log.numbers(kernels["correlationId"]), told, batch.epoch_offset_ns)
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

    def _join_metrics(self, batch: Sequence[NDArray[np.void]]) -> Told:
        """Bring the kernels that told metrics of captured nodes together with what they told."""
        ran: list[tuple[int, int, Captured, tuple[int, ...]]] = []
        for kernels in batch if self.metrics.captured else ():
            found = zip(
                kernels["start"].tolist(),
                self._log.numbers(kernels["correlationId"]).tolist(),
                self._captures(kernels).tolist(),
                kernels[RUN].tolist(),
                strict=True,
            )
            for start, number, capture, run in found:
                captured = self.metrics.captured.get(capture)
                if captured is not None and captured.tensor is not None:
                    ran.append((start, number, captured, run))
        told: dict[tuple[int, ...], Mapping[str, Awaited]] = {}
        for _, number, captured, run in sorted(ran, key=itemgetter(0)):
            awaited = self.metrics.ran(captured, self._targets_of(number))
            if captured.tensor is not None:
                told[run] = {captured.tensor.name: awaited}
        self.metrics.join()
        return told

    def _targets_of(self, number: int) -> list[ProfileTarget]:
        """Where launches with a number go: not to sessions of what kernels record."""
        known = self.correlations.targets_of(number)
        found = self.fallback if known is None else known
        return [target for target in found if not target.phase.in_kernels]

    def _add(self, kernels: NDArray[np.void], numbers: NDArray[np.uint32], told: Told, offset_ns: int) -> None:
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
                capture = _capture_in(target, captured)
                below = _below(target, capture, self._name(int(names[first])))
                shown = self.correlations.metrics_of(int(numbers[first])) if target.is_launch else None
                if given is not None and given.constants:
                    self.metrics.add_constants(given, target, end - first)
                    shown = given.constants
                # Metrics go with the name from the same metadata; another session may have the kernel under its own.
                self._add_group(target, below, kernels[first:end])
                if target.phase.timeline is not None:
                    own = {} if capture is None else told
                    spans = _Spans(target.phase.timeline, (*target.path, *below), shown or {}, own, offset_ns)
                    self._add_spans(spans, target, capture, kernels[first:end])

    def _captures(self, kernels: NDArray[np.void]) -> NDArray[np.uint32]:
        """For each kernel the number of the place where a graph captured it; 0 for others."""
        import numpy as np

        ids, first, places = np.unique(kernels["graphNodeId"], return_index=True, return_inverse=True)
        for id_, graph in zip(ids.tolist(), kernels["graphId"][first].tolist(), strict=True):
            if graph and id_ not in self._captured:
                self._warn_of_stranger(graph)
        return np.array([self._captured.get(id_, _Capture()).number for id_ in ids.tolist()], np.uint32)[places]

    def _warn_of_stranger(self, graph: int) -> None:
        """Say once of a graph that it was made before anybody looked."""
        if graph not in self._strangers:
            self._strangers.add(graph)
            print(
                f"proton: Cannot find graph for graphExecId: {graph}. Its kernels have no {CAPTURED_AT}; "
                "start profiling before the graph is created.",
                file=sys.stderr,
            )

    def _add_group(self, target: ProfileTarget, below: tuple[str, ...], group: NDArray[np.void]) -> None:
        profile = target.phase.profile
        timed = group[_is_timed(group)]
        profile.add_launches(
            profile.descend(target.node, below) if below else target.node,
            count=len(group),
            time_ns=int((timed["end"] - timed["start"]).sum()),
            device_type="CUDA",
            device_id=int(group["deviceId"][0]),
        )

    def _add_spans(
        self, spans: _Spans, target: ProfileTarget, capture: ProfileTarget | None, group: NDArray[np.void]
    ) -> None:
        timed = group[_is_timed(group)]
        spans.timeline.without_times += len(group) - len(timed)
        for kernel in timed:
            node = None
            if capture is not None:
                at_ns = self._captured[int(kernel["graphNodeId"])].at_ns
                node = _graph_node(target, capture, at_ns, kernel)
            metrics = spans.told.get(kernel[RUN].item(), spans.metrics) if spans.told else spans.metrics
            _add_span(spans.timeline, spans.path, kernel, spans.offset_ns, metrics=metrics, node=node)

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


class _Spans(NamedTuple):
    """What the spans of kernels share. ``told``: metrics of some alone."""

    timeline: Timeline
    path: tuple[str, ...]
    metrics: Mapping[str, object]
    told: Told
    offset_ns: int


def _capture_in(target: ProfileTarget, captured: Sequence[ProfileTarget]) -> ProfileTarget | None:
    """Where a kernel of a graph was captured, in the session of its launch."""
    return next((capture for capture in captured if capture.phase.session == target.phase.session), None)


def _below(target: ProfileTarget, capture: ProfileTarget | None, name: str) -> tuple[str, ...]:
    """The frames of a kernel below its launch's place: those of its capture, if a graph launched it, and its name; none
    where the place is a launch of its own."""
    if capture is not None:
        return (CAPTURED_AT, *capture.path, *(() if capture.is_launch else (name,)))
    return () if target.is_launch else (name,)


def _graph_node(target: ProfileTarget, capture: ProfileTarget, at_ns: int, kernel: np.void) -> GraphNode | None:
    """What a kernel ran as that was captured then. What tells metrics of a scope ran in the scope."""
    timeline = capture.phase.timeline
    if timeline is None:
        return None
    scopes = capture.path[:-1] if capture.is_launch else capture.path
    inside = scopes.index(METADATA_SCOPE) if METADATA_SCOPE in scopes else len(scopes)
    launch = len(target.path)
    name = f"Graph: Stream {kernel['streamId']} (GPU {kernel['deviceId']}, Graph {kernel['graphId']})"
    lane = Lane(name, above=_lane(kernel))
    return GraphNode(launch, launch + 1 + inside, at_ns + timeline.epoch_offset_ns, timeline, lane)


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
    node: GraphNode | None = None,
) -> None:
    """Add a record to its lane; copies have lanes beside."""
    timeline.add_device_span(
        path,
        int(record["start"]) + offset_ns,
        int(record["end"]) + offset_ns,
        lane=_lane(record) if category == "kernel" else f"{_lane(record)} {category}",
        category=category,
        metrics=metrics,
        correlation=int(record["correlationId"]),
        node=node,
    )


def _lane(record: np.void) -> str:
    """The name of a record's lane: of its stream, and of a graph if it was launched by one."""
    graph = f" Graph {record['graphId']}" if record["graphId"] else ""
    return f"GPU {record['deviceId']}{graph} Stream {record['streamId']}"


def _direction(kind: int) -> str:
    return COPY_KINDS[kind] if kind < len(COPY_KINDS) else COPY_KINDS[0]
