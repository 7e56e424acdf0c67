"""Sampling program counters with a stand-in for libcupti, which fills the structures as CUPTI does."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from deuteron.profiler import CuptiError
from deuteron.profiler.sources import pc_structures as c
from deuteron.profiler.sources.pc_sampling import PcSampler, cubin_crc

REASONS = {
    3: "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    4: "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    7: "smsp__pcsamp_warps_issue_stalled_selected",
    8: "smsp__pcsamp_warps_issue_stalled_not_selected",
    9: "smsp__pcsamp_warps_issue_stalled_not_selected_not_issued",
    11: "smsp__pcsamp_sample_buffer_full",
}
CONTEXT = 0x1234
Row = tuple[bytes, int, int, dict[int, int]]


class FakeCupti:
    """``ready`` is handed over by GetData, ``at_once`` PCs at a time; ``filled`` goes to the buffer of the
    configuration. ``fails``: codes by call; ``modules``: CRCs by kernel, 77 for others."""

    def __init__(self, fails: dict[str, int] | None = None) -> None:
        self.fails = fails or {}
        self.calls: list[str] = []
        self.ready: list[Row] = []
        self.at_once = 4096
        self.attributes: dict[int, Any] = {}
        self.names: dict[bytes, ctypes.Array] = {}
        self.modules: dict[bytes, int] = {}
        self.dropped = 0
        self.version = 22

    def cuptiGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = self.version
        return 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuptiPCSampling"):
            raise AttributeError(name)
        short = name.removeprefix("cuptiPCSampling")

        def call(reference: Any) -> int:
            parameters = reference._obj
            self.calls.append(short)
            assert parameters.size == ctypes.sizeof(parameters)
            assert parameters.ctx == CONTEXT and parameters.pPriv is None
            self._called(short)
            if short in self.fails:
                return self.fails[short]
            getattr(self, f"_{short}", lambda _: None)(parameters)
            return 0

        return call

    def _called(self, short: str) -> None:
        """Before every call."""

    def _GetNumStallReasons(self, parameters: c.ReasonCountParameters) -> None:  # noqa: N802
        parameters.numStallReasons[0] = len(REASONS)

    def _GetStallReasons(self, parameters: c.ReasonsParameters) -> None:  # noqa: N802
        assert parameters.numStallReasons == len(REASONS)
        for place, (number, name) in enumerate(REASONS.items()):
            parameters.stallReasonIndex[place] = number
            ctypes.memmove(parameters.stallReasons[place], name.encode() + b"\0", len(name) + 1)

    def _SetConfigurationAttribute(self, parameters: c.ConfigurationParameters) -> None:  # noqa: N802
        for info in parameters.pPCSamplingConfigurationInfo[: parameters.numAttributes]:
            data = info.attributeData
            if info.attributeType == c.STALL_REASON:
                count = data.reasons.stallReasonCount
                self.attributes[c.STALL_REASON] = list(data.reasons.pStallReasonIndex[:count])
            else:
                self.attributes[info.attributeType] = data.data[0]

    def fill(self, address: int, rows: list[Row]) -> None:
        """Write rows into a buffer of the sampler's."""
        data = c.SamplingData.from_address(address)
        assert data.size == ctypes.sizeof(c.SamplingData) and len(rows) <= data.collectNumPcs
        data.totalNumPcs = len(rows)
        for place, (name, offset, correlation, counts) in enumerate(rows):
            pc = data.pPcData[place]
            assert pc.size == ctypes.sizeof(c.PcData)
            pc.cubinCrc, pc.pcOffset, pc.correlationId = self.modules.get(name, 77), offset, correlation
            text = self.names.setdefault(name, ctypes.create_string_buffer(name))
            pc.functionName = ctypes.addressof(text)
            pc.stallReasonCount = len(counts)
            for number, (reason, samples) in enumerate(counts.items()):
                pc.stallReason[number].pcSamplingStallReasonIndex = reason
                pc.stallReason[number].samples = samples

    def _GetData(self, parameters: c.DataParameters) -> None:  # noqa: N802
        now, self.ready = self.ready[: self.at_once], self.ready[self.at_once :]
        self.fill(parameters.pcSamplingData, now)
        data = c.SamplingData.from_address(parameters.pcSamplingData)
        data.remainingNumPcs, data.droppedSamples, self.dropped = len(self.ready), self.dropped, 0

    def cuptiGetResultString(self, code: ctypes.c_uint32, text: Any) -> int:  # noqa: N802
        text._obj.value = b"CUPTI_ERROR_%d" % code.value
        return 0

    def cuptiGetCubinCrc(self, reference: Any) -> int:  # noqa: N802
        parameters = reference._obj
        assert parameters.size == ctypes.sizeof(parameters)
        parameters.cubinCrc = sum(ctypes.string_at(parameters.cubin, parameters.cubinSize))
        return self.fails.get("GetCubinCrc", 0)


def sampler(cupti: FakeCupti, **options: Any) -> PcSampler:
    made = PcSampler(cupti, CONTEXT, **{"period": 10, **options})  # type: ignore[arg-type]
    made.enable()
    return made


def test_samples_by_instruction_and_reason() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    cupti.ready = [
        (b"matmul", 0x40, 5, {3: 10, 4: 6, 7: 2}),
        (b"matmul", 0x50, 6, {8: 3, 9: 1, 3: 0}),
        (b"add", 0x40, 7, {}),
        (b"matmul", 0x40, 8, {3: 1}),
    ]
    first, second = made.take()
    assert (first.kernel, first.module, first.offset) == ("matmul", 77, 0x40)
    assert (first.count, first.stalled) == (13, 6)
    assert first.reasons == {"stalled_long_scoreboard": 11, "stalled_selected": 2}
    assert (second.count, second.stalled, second.reasons) == (3, 1, {"stalled_not_selected": 3})
    assert made.take() == []


def test_what_is_configured() -> None:
    cupti = FakeCupti()
    sampler(cupti, period=12)
    assert cupti.calls == ["Enable", "GetNumStallReasons", "GetStallReasons", "SetConfigurationAttribute"]
    found = cupti.attributes
    assert found[c.STALL_REASON] == [3, 4, 7, 8, 9]
    assert (found[c.COLLECTION_MODE], found[c.START_STOP_CONTROL]) == (c.CONTINUOUS, 1)
    assert (found[c.SAMPLING_PERIOD], found[c.OUTPUT_DATA_FORMAT]) == (12, c.PARSED)


def test_data_come_from_both_buffers_until_there_are_none() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    cupti.at_once = 2
    cupti.ready = [(b"k", 16 * number, 0, {3: 1}) for number in range(7)]
    cupti.fill(cupti.attributes[c.SAMPLING_DATA_BUFFER], [(b"k", 0x1000, 0, {3: 9})])
    cupti.dropped = 5
    assert [row.offset for row in made.take()] == [0x1000, *range(0, 112, 16)]
    assert made.dropped == 5
    assert cupti.calls.count("GetData") == 4
    assert made.take() == []


def test_serialized_kernels_are_sampled_without_start_and_stop() -> None:
    cupti = FakeCupti()
    made = sampler(cupti, period=5, serialized=True)
    found = cupti.attributes
    assert (found[c.COLLECTION_MODE], found[c.START_STOP_CONTROL]) == (c.KERNEL_SERIALIZED, 0)
    cupti.ready = [(b"k", 0x40, 5, {3: 10, 4: 6}), (b"k", 0x40, 6, {3: 2, 7: 0})]
    assert [row[0] for row in made.rows().tolist()] == [5, 5, 6]
    assert made.rows().tolist() == []


def test_a_serialized_buffer_is_emptied_by_get_data_alone() -> None:
    """A kernel that ends meanwhile writes into the other one."""
    cupti = FakeCupti()
    made = sampler(cupti, serialized=True)
    cupti.fill(cupti.attributes[c.SAMPLING_DATA_BUFFER], [(b"k", 0x1000, 4, {3: 9})])
    cupti.at_once = 2
    cupti.ready = [(b"k", 16 * number, number + 1, {3: 1}) for number in range(3)]
    assert made.rows()["launch"].tolist() == [1, 2, 3]
    assert cupti.calls.count("GetData") == 3  # until there is nothing, whatever it says of more to come


def test_counts_and_sizes_are_given_anew_for_every_call() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    seen = []

    def look(parameters: c.DataParameters) -> None:
        data = c.SamplingData.from_address(parameters.pcSamplingData)
        seen.append((data.totalNumPcs, data.pPcData[0].size, data.pPcData[0].stallReasonCount))
        FakeCupti._GetData(cupti, parameters)

    cupti._GetData = look  # type: ignore[method-assign]
    for _ in range(2):
        cupti.ready = [(b"k", 0, 0, {3: 1})]
        made.take()
    assert seen == [(0, ctypes.sizeof(c.PcData), 5)] * 2


def test_what_was_in_a_buffer_is_gone() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    cupti.ready = [(b"k", 0, 0, {3: 5, 4: 2})]
    made.take()
    cupti.ready = [(b"k", 0, 0, {7: 1})]
    assert [(found.reasons, found.stalled) for found in made.take()] == [({"stalled_selected": 1}, 0)]


def test_an_old_library_is_refused() -> None:
    cupti = FakeCupti()
    cupti.version = 21
    with pytest.raises(CuptiError, match="another format"):
        sampler(cupti)
    assert cupti.calls == []


def test_start_stop_and_disable() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    del cupti.calls[:]
    made.start()
    made.stop()
    made.disable()
    assert cupti.calls == ["Start", "Stop", "Disable"]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (35, "NVreg_RestrictProfilingToAdminUsers=0"),
        (40, "its host must allow profiling"),
        (27, "has no PC sampling"),
        (43, "has no PC sampling"),
        (39, "the hardware serves one client"),
        (8, "take samples less often"),
        (999, "as new as the driver"),
    ],
)
def test_errors_say_what_helps(code: int, hint: str) -> None:
    with pytest.raises(CuptiError, match=rf"cuptiPCSamplingEnable: CUPTI_ERROR_{code}") as caught:
        sampler(FakeCupti({"Enable": code}))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("call", ["GetNumStallReasons", "GetStallReasons", "SetConfigurationAttribute"])
def test_a_failure_on_the_way_leaves_nothing_enabled(call: str) -> None:
    cupti = FakeCupti({call: 7})
    with pytest.raises(CuptiError, match=f"cuptiPCSampling{call}"):
        sampler(cupti)
    assert cupti.calls[-1] == "Disable"


def test_a_failure_of_get_data_is_an_error() -> None:
    cupti = FakeCupti()
    made = sampler(cupti)
    cupti.fails["GetData"] = 8
    with pytest.raises(CuptiError, match="cuptiPCSamplingGetData"):
        made.take()


def test_crc_of_a_cubin() -> None:
    assert cubin_crc(FakeCupti(), b"\1\0\2") == 3  # type: ignore[arg-type]
    with pytest.raises(CuptiError, match="cuptiGetCubinCrc"):
        cubin_crc(FakeCupti({"GetCubinCrc": 1}), b"")  # type: ignore[arg-type]
