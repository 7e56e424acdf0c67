"""Margins around the tensors that configurations are checked with: what is written there was written outside.

A configuration that stores one element behind its output gives the right result and may even be the fastest. In the
caller's memory that element belongs to something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import item_bytes

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceArray

#: Bytes before and behind a tensor. A page: what is timed lies as it would without them, in caches as well.
MARGIN = 4096
# No value that kernels often store has this byte anywhere.
_PATTERN = 0xA5


class Margins:
    """A tensor in the middle of an allocation of its own, and what is around it."""

    def __init__(self, device: Device, name: str, shape: Sequence[int], dtype: str) -> None:
        self._name, self._item = name, item_bytes(dtype)
        size = math.prod(shape) * self._item
        whole = device.empty((size + 2 * MARGIN,), "u8")
        #: The tensor, not initialised.
        self.array: DeviceArray = whole.part(MARGIN, shape, dtype)
        self._sides = (
            ("before", whole.part(0, (MARGIN,), "u8")),
            ("behind", whole.part(MARGIN + size, (MARGIN,), "u8")),
        )
        for _, side in self._sides:
            self._restore(side)

    def damage(self) -> str | None:
        """What was written around the tensor since the last time, in words; it is as before then. Waits for the
        device."""
        found = []
        for where, side in self._sides:
            written = self._written(side.to_numpy())
            if written:
                self._restore(side)
                more = " or more" if written == MARGIN else ""
                found.append(f"{written} bytes{more} {where} {self._name!r}")
        return f"wrote {' and '.join(found)}" if found else None

    def _written(self, side: np.ndarray) -> int:
        """Bytes of the elements that have changed: one of an element's may be what it was."""
        import numpy as np

        changed = (side != _PATTERN).reshape(-1, self._item).any(axis=1)
        return self._item * int(np.count_nonzero(changed))

    def _restore(self, side: DeviceArray) -> None:
        import numpy as np

        side.fill(np.full(MARGIN, _PATTERN, np.uint8))
