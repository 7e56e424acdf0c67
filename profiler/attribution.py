"""From GPU records to profile nodes: join, group and add, in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .correlation import Correlations
from .session import ProfileTarget
from .sources.cupti import kernel_name
from .sources.records import Batch

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
        for run in self._runs:
            at = np.minimum(np.searchsorted(run[:, 0], ids), len(run) - 1)
            found = np.where(run[at, 0] == ids, run[at, 1], found)
        return found

    def clear(self) -> None:
        """Forget all launches."""
        self._runs.clear()


def _by_id(launches: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return launches[launches[:, 0].argsort(kind="stable")]


class Attribution:
    """Adds kernel records to the places their launches came from, or to the fallback where none is known."""

    def __init__(self, correlations: Correlations) -> None:
        self.correlations = correlations
        self.fallback: tuple[ProfileTarget, ...] = ()
        self._log = LaunchLog()
        self._names: dict[int, str] = {}

    def take(self, batch: Batch) -> None:
        """Add the kernels of a batch."""
        self._log.add(batch.launches)
        for kernels in batch.kernels:
            self._add(kernels, self._log.numbers(kernels["correlationId"]), batch.epoch_offset_ns)

    def settle(self) -> None:
        """After a full flush, when no launch has records to come: forget launches and addresses of names."""
        self._log.clear()
        self._names.clear()

    def _add(self, kernels: NDArray[np.void], numbers: NDArray[np.uint32], offset_ns: int) -> None:
        """Sum the kernels of equal place, name and device, and add each sum once."""
        import numpy as np

        if not len(kernels):
            return
        order = np.lexsort((kernels["deviceId"], kernels["name"], numbers))
        kernels, numbers = kernels[order], numbers[order]
        names, devices = kernels["name"], kernels["deviceId"]
        changes = (numbers[1:] != numbers[:-1]) | (names[1:] != names[:-1]) | (devices[1:] != devices[:-1])
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(kernels)]
        for first, end in zip(bounds, bounds[1:], strict=False):
            targets = self.correlations.targets_of(int(numbers[first])) or self.fallback
            for target in targets:
                self._add_group(target, kernels[first:end], self._name(int(names[first])), offset_ns)

    def _add_group(self, target: ProfileTarget, group: NDArray[np.void], name: str, offset_ns: int) -> None:
        profile = target.phase.profile
        node, path = target.node, target.path
        if not target.is_launch:
            node, path = profile.descend(node, (name,)), (*path, name)
        device = int(group["deviceId"][0])
        profile.add_launches(
            node,
            count=len(group),
            time_ns=int((group["end"] - group["start"]).sum()),
            device_type="CUDA",
            device_id=device,
        )
        timeline = target.phase.timeline
        if timeline is not None:
            starts, ends = group["start"].tolist(), group["end"].tolist()
            for start, end, stream in zip(starts, ends, group["streamId"].tolist(), strict=True):
                timeline.add_device_span(path, start + offset_ns, end + offset_ns, lane=f"GPU {device} Stream {stream}")

    def _name(self, address: int) -> str:
        name = self._names.get(address)
        if name is None:
            name = self._names[address] = kernel_name(address)
        return name
