"""The memory in which CUPTI hands over samples of program counters, read as NumPy arrays: a kernel of a hundred
microseconds has tens of thousands of samples, in a row for each of its instructions and a column for each reason."""

from __future__ import annotations

from ctypes import POINTER, addressof, cast, sizeof
from typing import TYPE_CHECKING

from . import pc_structures as c
from .records import record_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: (name, format, offset in bytes) of a row: samples at one instruction for one reason. ``launch``: the correlation id
#: of the kernel's launch, 0 where the mode does not tell; ``module``: CRC of its cubin; ``offset``: bytes from the
#: kernel's beginning; ``name``: where the kernel's name is; ``reason``: CUPTI's number of it.
ROW_FIELDS = (
    ("launch", "<u4", 0),
    ("module", "<u8", 8),
    ("offset", "<u8", 16),
    ("name", "<u8", 24),
    ("reason", "<u4", 32),
    ("samples", "<u8", 40),
)
ROW_BYTES = 48

_PC_FIELDS = (
    ("size", "<u8", c.PcData.size.offset),
    ("module", "<u8", c.PcData.cubinCrc.offset),
    ("offset", "<u8", c.PcData.pcOffset.offset),
    ("name", "<u8", c.PcData.functionName.offset),
    ("count", "<u8", c.PcData.stallReasonCount.offset),
    ("reasons", "<u8", c.PcData.stallReason.offset),
    ("launch", "<u4", c.PcData.correlationId.offset),
)
_COUNT_FIELDS = (
    ("reason", "<u4", c.StallReason.pcSamplingStallReasonIndex.offset),
    ("samples", "<u4", c.StallReason.samples.offset),
)


class PcBuffer:
    """Room for ``pcs`` instructions with ``reasons`` reasons each."""

    def __init__(self, pcs: int, reasons: int) -> None:
        import numpy as np

        self._reasons = reasons
        self._counts = np.zeros((pcs, reasons), record_dtype(_COUNT_FIELDS, sizeof(c.StallReason)))
        self._pcs = np.zeros(pcs, record_dtype(_PC_FIELDS, sizeof(c.PcData)))
        begin, step = self._counts.ctypes.data, self._counts.strides[0]
        self._pcs["size"] = sizeof(c.PcData)
        self._pcs["reasons"] = begin + step * np.arange(pcs, dtype=np.uint64)
        self._pcs["count"] = reasons
        first = cast(self._pcs.ctypes.data, POINTER(c.PcData))
        self.data = c.SamplingData(size=sizeof(c.SamplingData), collectNumPcs=pcs, pPcData=first)

    @property
    def address(self) -> int:
        """Where CUPTI finds it."""
        return addressof(self.data)

    def take(self) -> NDArray[np.void]:
        """What is in it, as a structured array of ROW_FIELDS; it is empty then."""
        import numpy as np

        filled, self.data.totalNumPcs = min(self.data.totalNumPcs, len(self._pcs)), 0
        pcs = self._pcs[:filled]
        held = (np.arange(self._reasons) < pcs["count"][:, None]) & (self._counts[:filled]["samples"] > 0)
        counts, of = self._counts[:filled][held], np.nonzero(held)[0]
        rows = np.zeros(len(of), record_dtype(ROW_FIELDS, ROW_BYTES))
        for field in ("launch", "module", "offset", "name"):
            rows[field] = pcs[field][of]
        rows["reason"], rows["samples"] = counts["reason"], counts["samples"]
        pcs["count"] = self._reasons  # libraries may read how much room there is
        return rows
