"""The layouts of CUPTI's structures for PC sampling are those that a C compiler makes of its header."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deuteron.profiler.sources import pc_structures as c

STRUCTURES = {
    "CUpti_PCSamplingStallReason": c.StallReason,
    "CUpti_PCSamplingPCData": c.PcData,
    "CUpti_PCSamplingData": c.SamplingData,
    "CUpti_PCSamplingConfigurationInfo": c.Configuration,
    "CUpti_PCSamplingConfigurationInfoParams": c.ConfigurationParameters,
    "CUpti_PCSamplingEnableParams": c.ContextParameters,
    "CUpti_PCSamplingDisableParams": c.ContextParameters,
    "CUpti_PCSamplingStartParams": c.ContextParameters,
    "CUpti_PCSamplingStopParams": c.ContextParameters,
    "CUpti_PCSamplingGetDataParams": c.DataParameters,
    "CUpti_PCSamplingGetNumStallReasonsParams": c.ReasonCountParameters,
    "CUpti_PCSamplingGetStallReasonsParams": c.ReasonsParameters,
    "CUpti_GetCubinCrcParams": c.CrcParameters,
}
ATTRIBUTES = {
    "samplingPeriodData.samplingPeriod": "number",
    "collectionModeData.collectionMode": "number",
    "outputDataFormatData.outputDataFormat": "number",
    "enableStartStopControlData.enableStartStopControl": "number",
    "scratchBufferSizeData.scratchBufferSize": "bytes",
    "hardwareBufferSizeData.hardwareBufferSize": "bytes",
    "samplingDataBufferData.samplingDataBuffer": "buffer",
}


def include() -> Path | None:
    """The folder of an installed wheel that has the headers of CUPTI and of the driver."""
    for entry in map(Path, sys.path):
        for header in entry.glob("nvidia/cu13/include/cupti_pcsampling.h"):
            if (header.parent / "cuda.h").exists():
                return header.parent
    return None


COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(not COMPILER or include() is None, reason="needs cc and CUPTI's headers")


def fields_of(kind: type[ctypes.Structure]) -> list[str]:
    own = [name for base in reversed(kind.__mro__) for name, *_ in getattr(base, "__dict__", {}).get("_fields_", ())]
    return [name for name in own if name]


def test_layouts(tmp_path: Path) -> None:
    asked, expected = [], []
    for name, kind in STRUCTURES.items():
        asked.append(f"sizeof({name})")
        expected.append(ctypes.sizeof(kind))
        for field in fields_of(kind):
            asked += [f"offsetof({name}, {field})", f"sizeof((({name}*)0)->{field})"]
            expected += [getattr(kind, field).offset, getattr(kind, field).size]
    info = "CUpti_PCSamplingConfigurationInfo"
    for path, field in ATTRIBUTES.items():
        member = getattr(c.AttributeData, field)
        asked += [f"offsetof({info}, attributeData.{path})", f"sizeof((({info}*)0)->attributeData.{path})"]
        expected += [c.Configuration.attributeData.offset + member.offset, member.size]
    for field, _ in c.StallReasonList._fields_:
        asked.append(f"offsetof({info}, attributeData.stallReasonData.{field})")
        expected.append(c.Configuration.attributeData.offset + getattr(c.StallReasonList, field).offset)
    asked += [
        f"CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_{name}"
        for name in ("SAMPLING_PERIOD", "STALL_REASON", "SCRATCH_BUFFER_SIZE", "HARDWARE_BUFFER_SIZE")
    ]
    expected += [c.SAMPLING_PERIOD, c.STALL_REASON, c.SCRATCH_BUFFER_SIZE, c.HARDWARE_BUFFER_SIZE]
    asked += [
        f"CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_{name}"
        for name in (
            "COLLECTION_MODE",
            "ENABLE_START_STOP_CONTROL",
            "OUTPUT_DATA_FORMAT",
            "SAMPLING_DATA_BUFFER",
        )
    ]
    expected += [c.COLLECTION_MODE, c.START_STOP_CONTROL, c.OUTPUT_DATA_FORMAT, c.SAMPLING_DATA_BUFFER]
    asked.append("CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS")
    expected.append(c.CONTINUOUS)
    asked += ["CUPTI_PC_SAMPLING_OUTPUT_DATA_FORMAT_PARSED", "CUPTI_STALL_REASON_STRING_SIZE"]
    expected += [c.PARSED, c.REASON_NAME_BYTES]

    lines = "\n".join(f'printf("%zu\\n", (size_t)({text}));' for text in asked)
    program = tmp_path / "layout.c"
    program.write_text(f"#include <stdio.h>\n#include <cupti_pcsampling.h>\nint main() {{ {lines} return 0; }}\n")
    subprocess.run([str(COMPILER), f"-I{include()}", str(program), "-o", str(tmp_path / "layout")], check=True)
    printed = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout
    found = dict(zip(asked, map(int, printed.split()), strict=True))
    assert found == dict(zip(asked, expected, strict=True))
