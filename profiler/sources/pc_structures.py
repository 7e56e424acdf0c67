"""CUPTI's structures for sampling program counters, as ``cupti_pcsampling.h`` of CUDA 12.4 to 13.5 has them.

``tests/profiler/test_pc_structures.py`` holds them against what a C compiler makes of that header.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, Union, c_uint8, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any, ClassVar

c_size = ctypes.c_size_t

#: CUPTI_STALL_REASON_STRING_SIZE.
REASON_NAME_BYTES = 128

# CUpti_PCSamplingConfigurationAttributeType.
SAMPLING_PERIOD = 1
STALL_REASON = 2
SCRATCH_BUFFER_SIZE = 3
HARDWARE_BUFFER_SIZE = 4
COLLECTION_MODE = 5
START_STOP_CONTROL = 6
OUTPUT_DATA_FORMAT = 7
SAMPLING_DATA_BUFFER = 8
# CUpti_PCSamplingCollectionMode, CUpti_PCSamplingOutputDataFormat.
CONTINUOUS = 1
KERNEL_SERIALIZED = 2
PARSED = 1


class StallReason(Structure):
    """CUpti_PCSamplingStallReason: how often a PC was sampled for one reason."""

    _fields_ = (("pcSamplingStallReasonIndex", c_uint32), ("samples", c_uint32))


class PcData(Structure):
    """CUpti_PCSamplingPCData: one PC of one kernel. The name's memory is malloc's, and may be shared by records."""

    _fields_ = (
        ("size", c_size),
        ("cubinCrc", c_uint64),
        ("pcOffset", c_uint64),
        ("functionIndex", c_uint32),
        ("pad", c_uint32),
        ("functionName", c_void_p),
        ("stallReasonCount", c_size),
        ("stallReason", POINTER(StallReason)),
        ("correlationId", c_uint32),
    )


class SamplingData(Structure):
    """CUpti_PCSamplingData: a buffer of PCs, with how many samples the hardware took and dropped."""

    _fields_ = (
        ("size", c_size),
        ("collectNumPcs", c_size),
        ("totalSamples", c_uint64),
        ("droppedSamples", c_uint64),
        ("totalNumPcs", c_size),
        ("remainingNumPcs", c_size),
        ("rangeId", c_uint64),
        ("pPcData", POINTER(PcData)),
        ("nonUsrKernelsTotalSamples", c_uint64),
        ("hardwareBufferFull", c_uint8),
    )


class StallReasonList(Structure):
    """The value of the attribute STALL_REASON."""

    _fields_ = (("stallReasonCount", c_size), ("pStallReasonIndex", POINTER(c_uint32)))


class AttributeData(Union):
    """The value of an attribute: ``number`` (32 bits), ``bytes``, ``reasons`` or ``buffer``."""

    _fields_ = (
        ("data", c_uint64 * 3),
        ("number", c_uint32),
        ("bytes", c_size),
        ("reasons", StallReasonList),
        ("buffer", c_void_p),
    )


class Configuration(Structure):
    """CUpti_PCSamplingConfigurationInfo: one attribute, and what CUPTI said of it."""

    _fields_ = (("attributeType", c_uint32), ("attributeStatus", c_uint32), ("attributeData", AttributeData))


class _Parameters(Structure):
    """What the parameters of all calls begin with."""

    _fields_: ClassVar[Sequence[tuple[str, type[Any]]]] = (("size", c_size), ("pPriv", c_void_p), ("ctx", c_void_p))

    def __init__(self, context: int, *more: object) -> None:
        super().__init__(sizeof(type(self)), None, context, *more)


class ContextParameters(_Parameters):
    """Of Enable, Disable, Start and Stop."""


class ConfigurationParameters(_Parameters):
    """CUpti_PCSamplingConfigurationInfoParams."""

    _fields_ = (("numAttributes", c_size), ("pPCSamplingConfigurationInfo", POINTER(Configuration)))


class DataParameters(_Parameters):
    """CUpti_PCSamplingGetDataParams."""

    _fields_ = (("pcSamplingData", c_void_p),)


class ReasonCountParameters(_Parameters):
    """CUpti_PCSamplingGetNumStallReasonsParams."""

    _fields_ = (("numStallReasons", POINTER(c_size)),)


class ReasonsParameters(_Parameters):
    """CUpti_PCSamplingGetStallReasonsParams."""

    _fields_ = (
        ("numStallReasons", c_size),
        ("stallReasonIndex", POINTER(c_uint32)),
        ("stallReasons", POINTER(c_void_p)),
    )


class CrcParameters(Structure):
    """CUpti_GetCubinCrcParams."""

    _fields_ = (("size", c_size), ("cubinSize", c_size), ("cubin", c_void_p), ("cubinCrc", c_uint64))
