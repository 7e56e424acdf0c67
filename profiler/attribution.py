"""From GPU records to profile nodes: join, group and add, in bulk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .correlation import Correlations
from .session import Target
from .sources.cupti import kernel_name
from .sources.records import EXTERNAL_KIND_CUSTOM0, Records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Attribution:
    """Adds kernel records to the places their launches came from.

    A join of launch to place may reach us before or after its kernel, and one launch of a graph has many kernels.
    So joins are kept until :meth:`settle`, and kernels without one wait for it.
    """

    def __init__(self, correlations: Correlations) -> None:
        import numpy as np

        self.correlations = correlations
        self.fallback: tuple[Target, ...] = ()
        self._launches: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._numbers: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._waiting: list[NDArray[np.void]] = []
        self._names: dict[int, str] = {}

    def take(self, batches: Iterable[Records]) -> None:
        """Add the kernels of these buffers whose launches are known; keep the rest."""
        import numpy as np

        kernels = self._waiting
        launches, numbers = [self._launches], [self._numbers]
        for batch in batches:
            ours = batch.correlations[batch.correlations["externalKind"] == EXTERNAL_KIND_CUSTOM0]
            launches.append(ours["correlationId"])
            numbers.append(ours["externalId"])
            if len(batch.kernels):
                kernels.append(batch.kernels)
        if len(launches) > 1:
            joined = np.concatenate(launches)
            order = np.argsort(joined, kind="stable")
            self._launches = joined[order]
            self._numbers = np.concatenate(numbers)[order]
        self._waiting = []
        for batch_kernels in kernels:
            found, known = self._join(batch_kernels)
            self._add(batch_kernels[known], found[known])
            if not known.all():
                self._waiting.append(batch_kernels[~known])

    def settle(self) -> None:
        """After a full flush: what still has no join was launched outside; it goes to the fallback."""
        import numpy as np

        for kernels in self._waiting:
            self._add(kernels, np.zeros(len(kernels), np.uint64))
        self._waiting = []
        self._launches = self._launches[:0]
        self._numbers = self._numbers[:0]
        self._names.clear()

    def _join(self, kernels: NDArray[np.void]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        import numpy as np

        wanted = kernels["correlationId"]
        if not len(self._launches):
            return np.zeros(len(kernels), np.uint64), np.zeros(len(kernels), bool)
        at = np.minimum(np.searchsorted(self._launches, wanted), len(self._launches) - 1)
        known = self._launches[at] == wanted
        return np.where(known, self._numbers[at], 0).astype(np.uint64), known

    def _add(self, kernels: NDArray[np.void], numbers: NDArray[np.uint64]) -> None:
        """Sum the kernels of equal place, name and device, and add each sum once."""
        import numpy as np

        if not len(kernels):
            return
        order = np.lexsort((kernels["deviceId"], kernels["name"], numbers))
        kernels, numbers = kernels[order], numbers[order]
        names, devices = kernels["name"], kernels["deviceId"]
        changes = (
            (numbers[1:] != numbers[:-1])
            | (names[1:] != names[:-1])
            | (devices[1:] != devices[:-1])
        )
        bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(kernels)]
        for first, end in zip(bounds, bounds[1:], strict=False):
            targets = self.correlations.targets_of(int(numbers[first])) or self.fallback
            group = kernels[first:end]
            for target in targets:
                self._add_group(target, group, self._name(int(names[first])))

    def _add_group(self, target: Target, group: NDArray[np.void], name: str) -> None:
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
            for start, end, stream in zip(
                group["start"].tolist(),
                group["end"].tolist(),
                group["streamId"].tolist(),
                strict=True,
            ):
                timeline.add_device_span(path, start, end, lane=f"GPU {device} Stream {stream}")

    def _name(self, address: int) -> str:
        name = self._names.get(address)
        if name is None:
            name = self._names[address] = kernel_name(address)
        return name
