"""The profile: a tree of frames with metrics, and the devices they were measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import RLock

from .errors import MetricError
from .metrics import Value, inclusive, updates

ROOT = "ROOT"
#: The frame of what happens while metadata of launches are evaluated, as Proton calls it.
METADATA_SCOPE = "__proton_launch_metadata"
#: Before the name of a kernel: the state in which its metadata are evaluated.
METADATA_OF = f"{METADATA_SCOPE}:"
DeviceField = int | float | str


class Node:
    """One frame of a profile. ``children`` keeps the order in which frames were first seen."""

    __slots__ = ("children", "metrics", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: dict[str, Node] = {}
        self.metrics: dict[str, Value] = {}

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.metrics!r}, {len(self.children)} children)"


class ProfileTree:
    """A tree of frames with metrics, built while a program runs.

    Siblings of one name are one node. All methods may be called from several threads at once. Metric names and
    values follow :mod:`deuteron.profiler.metrics`. The writer puts metrics that count for the frames above as well,
    as zeros, on ROOT: a viewer sums over subtrees what ROOT has.
    """

    def __init__(self) -> None:
        self.root = Node(ROOT)
        self.devices: dict[str, dict[str, dict[str, DeviceField]]] = {}
        # A signal may come to the thread that holds it, and what ends the process then adds records.
        self._lock = RLock()
        self._inclusive: set[str] = set()

    def node(self, path: Sequence[str]) -> Node:
        """The node under ROOT at ``path`` (frame names, outermost first), created if it is not there."""
        return self.descend(self.root, path)

    def descend(self, node: Node, path: Sequence[str]) -> Node:
        """The node at ``path`` below ``node``, created if it is not there."""
        for name in path:
            child = node.children.get(name)
            # setdefault is atomic, so two threads that create one child get the same node.
            node = child if child is not None else node.children.setdefault(name, Node(name))
        return node

    def add(self, path: Sequence[str], metrics: Mapping[str, object]) -> Node:
        """Add ``metrics`` to the node at ``path``. Raises MetricError and changes nothing if a value does not fit."""
        if not self._has(path):
            updates({}, metrics)  # which raises before there is a node
        node = self.node(path)
        self.add_to(node, metrics)
        return node

    def _has(self, path: Sequence[str]) -> bool:
        node: Node | None = self.root
        for name in path:
            node = node.children.get(name) if node is not None else None
        return node is not None

    def add_to(self, node: Node, metrics: Mapping[str, object]) -> None:
        """Add ``metrics`` to a node of this profile; as :meth:`add`."""
        held = node.metrics
        with self._lock:
            changed, before = updates(held, metrics), len(held)
            held.update(changed)
            if len(held) > before:
                # The first value at a node says whether it counts for the frames above, as in Proton.
                first = set(islice(held, before, None))
                self._inclusive |= {name for name in inclusive(metrics, held) if name in first}

    def add_launches(self, node: Node, *, count: int, time_ns: int, device_type: str, device_id: int) -> None:
        """Add ``count`` kernel launches that together took ``time_ns`` nanoseconds on one device."""
        self.device(device_type, device_id)
        self.add_to(
            node,
            {
                "count": count,
                "time (ns)": time_ns,
                "device_id": str(device_id),
                "device_type": device_type,
            },
        )

    def device(self, kind: str, index: int, **metadata: DeviceField) -> None:
        """Describe a device ("CUDA", "HIP" or "CPU"); later fields are added to earlier ones.

        The fields that readers know: arch ("90"), bus_width (bits), clock_rate and memory_clock_rate (kHz), num_sms.
        """
        if index < 0:
            raise MetricError(f"device index {index} is negative", hint="devices count from 0")
        fields = self.devices.setdefault(kind, {}).setdefault(str(index), {})
        fields.update(metadata)

    def root_metrics(self) -> dict[str, Value]:
        """ROOT's metrics as they are written: its own, and zeros for those of the tree that count for the frames above
        as well."""
        with self._lock:
            return dict.fromkeys(sorted(self._inclusive), 0) | self.root.metrics

    def walk(self) -> Iterator[tuple[tuple[str, ...], Node]]:
        """All nodes with their paths (ROOT's path is empty), parents before children."""
        pending: list[tuple[tuple[str, ...], Node]] = [((), self.root)]
        while pending:
            path, node = pending.pop()
            yield path, node
            children = list(node.children.values())
            pending.extend(((*path, child.name), child) for child in reversed(children))
