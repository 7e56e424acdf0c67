"""Samples of program counters: where warps of kernels are, and what they wait for, from libcupti's PC sampling API.

Every 2^n cycles each SM notes for one of its warps the instruction that it is at, and why it does not go on.
CUPTI adds these up by kernel, instruction and reason.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, c_char_p, c_uint32, c_void_p, cast, create_string_buffer, pointer, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CuptiError
from . import pc_structures as c
from .cupti import kernel_name
from .pc_buffer import PcBuffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Exponents of two that CUPTI takes as the number of cycles between samples.
PERIODS = range(5, 32)
#: Rows of instructions that a buffer holds; in serialized mode those of all kernels between two looks.
_PCS_AT_ONCE = 4096
_PCS_OF_KERNELS = 65_536
_HARDWARE_BYTES = 256 << 20
_SCRATCH_BYTES = 16 << 20
_MOST_ROUNDS = 10_000
_CUDA_12_4 = 22  # as an API version: the first with CUpti_PCSamplingPCData.correlationId

_OUT_OF_MEMORY = 8
_NOT_SUPPORTED = {27, 33, 41, 42, 43, 45}  # by the device, as virtual, confidential, CMP, MIG, under WSL
_NOT_ALLOWED = {35, 40}
_TAKEN = {26, 36, 39}  # hardware busy, the older profiler API, another subscriber

_REASON = "_issue_stalled_"
_NOT_ISSUED = "_not_issued"


#: What CUPTI calls back for events; none are asked for.
_UNCALLED = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_uint32, c_void_p)(lambda *_: None)


#: Whether CUPTI has sampled in this process since it was attached.
_sampled = False


class BufferFull(CuptiError):
    """The hardware's buffer for samples overflowed, or there is no memory for it."""


@dataclass(frozen=True, slots=True)
class PcSamples:
    """Samples at one instruction of a kernel, ``offset`` bytes from its beginning, of the module whose cubin has the
    CRC ``module``.

    ``reasons``: samples by reason, as the metrics are called (``stalled_long_scoreboard``; ``stalled_selected`` is of
    warps that went on). ``stalled``: those of all reasons at which the scheduler had no warp to go on with.
    """

    kernel: str
    module: int
    offset: int
    reasons: dict[str, int]
    stalled: int

    @property
    def count(self) -> int:
        """All samples here."""
        return sum(self.reasons.values())


class PcSampler:
    """Samples the kernels of one CUDA context between :meth:`start` and :meth:`stop`, for which :meth:`enable` prepares
    it; ``serialized``: all kernels from :meth:`enable` to :meth:`disable`, which run one at a time then, and each row
    of samples says which launch it is of.

    ``period``: cycles between samples are 2 to this power, one of PERIODS. All methods raise CuptiError.
    """

    def __init__(self, cupti: ctypes.CDLL, context: int, *, period: int, serialized: bool = False) -> None:
        self._cupti = cupti
        self._context = context
        self._period = period
        self._serialized = serialized
        #: Reasons by CUPTI's number: the name, and whether it is of samples at which no warp went on.
        self.reasons: dict[int, tuple[str, bool]] = {}
        self._names: dict[int, str] = {}
        self.dropped = 0

    def enable(self) -> None:
        """Prepare the context."""
        global _sampled
        version = c_uint32()
        self._cupti.cuptiGetVersion(byref(version))
        if version.value < _CUDA_12_4:
            raise CuptiError(
                f"CUPTI API version {version.value} samples program counters in another format",
                hint="install nvidia-cuda-cupti>=12.4",
            )
        self._simple("Enable")
        _sampled = True
        try:
            self.reasons = self._known_reasons()
            pcs = _PCS_OF_KERNELS if self._serialized else _PCS_AT_ONCE
            self._filled, self._taken = (PcBuffer(pcs, len(self.reasons)) for _ in range(2))
            self._configure()
        except CuptiError:
            self.disable()
            raise

    def start(self) -> None:
        """Begin to sample."""
        self._simple("Start")

    def stop(self) -> None:
        """Stop sampling. Wait for kernels first: what they do later is not sampled."""
        self._simple("Stop")

    def rows(self) -> NDArray[np.void]:
        """The samples that have arrived since the last call, as a structured array of ROW_FIELDS; never waits for the
        GPU."""
        import numpy as np

        # What is in the configured buffer comes by GetData, too, where kernels that end may be adding to it.
        found = [] if self._serialized else [self._filled.take()]
        for _ in range(_MOST_ROUNDS):
            self._call("GetData", c.DataParameters(self._context, self._taken.address))
            data = self._taken.data
            self.dropped += data.droppedSamples
            pcs, more = data.totalNumPcs, data.remainingNumPcs or self._serialized
            found.append(self._taken.take())
            if not (pcs and more):
                break
        return np.concatenate(found)

    def take(self) -> list[PcSamples]:
        """:meth:`rows`, those of one instruction together."""
        found: dict[tuple[int, int, int], dict[str, int]] = {}
        stalled: dict[tuple[int, int, int], int] = {}
        for _, module, offset, name, number, samples in self.rows().tolist():
            reason, not_issued = self.reasons[number]
            at = name, module, offset
            reasons = found.setdefault(at, {})
            if not_issued:
                stalled[at] = stalled.get(at, 0) + samples
            else:
                reasons[reason] = reasons.get(reason, 0) + samples
        return [PcSamples(self._name(at[0]), *at[1:], reasons, stalled.get(at, 0)) for at, reasons in found.items()]

    def disable(self) -> None:
        """End sampling; what has not been taken by now is lost."""
        self._simple("Disable")

    def _simple(self, name: str) -> None:
        self._call(name, c.ContextParameters(self._context))

    def _call(self, name: str, parameters: ctypes.Structure) -> None:
        code = int(getattr(self._cupti, f"cuptiPCSampling{name}")(byref(parameters)))
        if code:
            raise _error(self._cupti, f"cuptiPCSampling{name}", code)

    def _known_reasons(self) -> dict[int, tuple[str, bool]]:
        count = c.c_size()
        self._call("GetNumStallReasons", c.ReasonCountParameters(self._context, pointer(count)))
        texts = [create_string_buffer(c.REASON_NAME_BYTES) for _ in range(count.value)]
        addresses = (c_void_p * count.value)(*map(addressof, texts))
        numbers = (c_uint32 * count.value)()
        self._call("GetStallReasons", c.ReasonsParameters(self._context, count.value, numbers, addresses))
        found = {}
        for number, text in zip(numbers, texts, strict=True):
            _, known, reason = text.value.decode().partition(_REASON)
            if known:  # others count samples without a reason, or the buffer's state
                found[number] = f"stalled_{reason.removesuffix(_NOT_ISSUED)}", reason.endswith(_NOT_ISSUED)
        return found

    def _configure(self) -> None:
        chosen = (c_uint32 * len(self.reasons))(*self.reasons)
        values: list[tuple[int, str, object]] = [
            (c.COLLECTION_MODE, "number", c.KERNEL_SERIALIZED if self._serialized else c.CONTINUOUS),
            (c.SAMPLING_PERIOD, "number", self._period),
            (c.START_STOP_CONTROL, "number", int(not self._serialized)),
            (c.OUTPUT_DATA_FORMAT, "number", c.PARSED),
            (c.SCRATCH_BUFFER_SIZE, "bytes", _SCRATCH_BYTES),
            (c.HARDWARE_BUFFER_SIZE, "bytes", _HARDWARE_BYTES),
            (c.STALL_REASON, "reasons", c.StallReasonList(len(chosen), chosen)),
            (c.SAMPLING_DATA_BUFFER, "buffer", self._filled.address),
        ]
        attributes = (c.Configuration * len(values))()
        for attribute, (kind, field, value) in zip(attributes, values, strict=True):
            attribute.attributeType = kind
            setattr(attribute.attributeData, field, value)
        parameters = c.ConfigurationParameters(self._context, len(attributes), attributes)
        self._call("SetConfigurationAttribute", parameters)

    def _name(self, address: int) -> str:
        if address not in self._names:
            self._names[address] = kernel_name(address)
        return self._names[address]


def attach_anew(cupti: ctypes.CDLL) -> None:
    """Make CUPTI look at the process afresh if it sampled here before. No part of it may be in use; another profiler's
    is left alone.

    Once it has sampled a process, CUPTI knows the kernels that were loaded until then and those that are loaded while
    it collects anything. Of those that came in between it has no samples, whatever is enabled later.

    Raises:
        CuptiError: CUPTI could not be detached.
    """
    global _sampled
    subscriber = c_void_p()
    if not _sampled or cupti.cuptiSubscribe(byref(subscriber), _UNCALLED, c_void_p()):
        return
    cupti.cuptiUnsubscribe(subscriber)
    _sampled = False
    code = int(cupti.cuptiFinalize())
    if code:
        raise _error(cupti, "cuptiFinalize", code)


def cubin_crc(cupti: ctypes.CDLL, image: bytes) -> int:
    """The CRC by which samples name the module of a cubin. Raises CuptiError."""
    parameters = c.CrcParameters(sizeof(c.CrcParameters), len(image), cast(c_char_p(image), c_void_p))
    code = int(cupti.cuptiGetCubinCrc(byref(parameters)))
    if code:
        raise _error(cupti, "cuptiGetCubinCrc", code)
    return int(parameters.cubinCrc)


def _error(cupti: ctypes.CDLL, name: str, code: int) -> CuptiError:
    text = c_char_p()
    cupti.cuptiGetResultString(c_uint32(code), byref(text))
    reason = text.value.decode() if text.value else f"error {code}"
    if code in _NOT_ALLOWED:
        hint = (
            "run as root, or let the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0; in a "
            "virtual machine its host must allow profiling, too"
        )
    elif code in _NOT_SUPPORTED:
        hint = "this GPU, or the way it is shared, has no PC sampling: leave mode out for times of kernels"
    elif code in _TAKEN:
        hint = "stop Nsight Compute, DCGM's profiling, torch.profiler or Proton first: the hardware serves one client"
    elif code == _OUT_OF_MEMORY:
        hint = "the buffer for samples was full, or there is no memory for it: take samples less often"
        return BufferFull(f"{name}: {reason}", hint=hint)
    else:
        hint = "is libcupti as new as the driver's CUDA version?"
    return CuptiError(f"{name}: {reason}", hint=hint)
