"""Scopes around what CUDA graphs launch: ranges over the kernels of a stream, for the lane above its own.

A kernel of a graph was captured in scopes that have been left long before it runs. In each launch of the graph, and on
each stream, kernels that run one after the other and were captured in the same entry of a scope are one range of it,
from the first one's beginning to the last one's end, within the ranges of the scopes around. Where other kernels run in
between, as branches of a graph that share a stream, there is a range on either side of them: a range has no kernels but
those of its scope.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .timeline import Event, GraphNode, Lane, Timeline


def graph_scopes(events: Iterable[Event]) -> list[Event]:
    """The ranges around those of ``events`` that have a node, scopes before the scopes inside them."""
    launches: defaultdict[tuple[Lane, int], list[tuple[GraphNode, Event]]] = defaultdict(list)
    for event in events:
        if event.node is not None:
            launches[event.node.lane, event.correlation].append((event.node, event))
    entries = _Entries()
    ranges: list[Event] = []
    for launched in launches.values():
        # Kernels that take no time may begin at once: then they are in the order of the capture.
        launched.sort(key=lambda ran: (ran[1].start_ns, ran[0].captured_ns))
        ranges += _ranges(launched, entries)
    return ranges


class _Entries:
    """When scopes were entered: it tells those of one path apart."""

    def __init__(self) -> None:
        self._starts: dict[Timeline, defaultdict[tuple[str, ...], list[int]]] = {}

    def around(self, node: GraphNode, path: tuple[str, ...]) -> list[tuple[str, int]]:
        """The frames that were open at the capture, outermost first: of each the name, and its entry among those of its
        path. All entries are one where they are not in the time line, as those of Python's functions."""
        starts = self._starts.get(node.captured_in)
        if starts is None:
            starts = self._starts[node.captured_in] = _starts_of(node.captured_in)
        inside = node.launch + 1
        return [
            (path[at], bisect_right(starts.get(path[inside : at + 1], ()), node.captured_ns))
            for at in range(node.launch, node.end)
        ]


def _starts_of(timeline: Timeline) -> defaultdict[tuple[str, ...], list[int]]:
    starts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for event in timeline.all_events():
        if event.category == "scope":
            starts[event.path].append(event.start_ns)
    for entered in starts.values():
        entered.sort()
    return starts


def _ranges(launched: Sequence[tuple[GraphNode, Event]], entries: _Entries) -> list[Event]:
    """The ranges of one launch on one stream, whose kernels are in the order in which they ran."""
    ranges: list[Event] = []
    opened: list[tuple[tuple[str, int], Event]] = []
    for node, event in launched:
        around = entries.around(node, event.path)
        common = 0
        while common < min(len(opened), len(around)) and opened[common][0] == around[common]:
            common += 1
        del opened[common:]
        for depth, frame in enumerate(around[common:], node.launch + common + 1):
            begun = Event(event.path[:depth], event.start_ns, 0, node.lane, "scope", {}, event.correlation, node)
            opened.append((frame, begun))
            ranges.append(begun)
        end = event.start_ns + event.duration_ns
        for _, range_ in opened:
            range_.duration_ns = max(range_.duration_ns, end - range_.start_ns)
        if len(event.path) == node.end + 2:  # it told metrics of the scope, and is no kernel of a launch's metadata
            innermost = opened[-1][1]
            innermost.metrics = {**innermost.metrics, **event.metrics}
    return ranges
