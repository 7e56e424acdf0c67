"""Measurements: what is computed from a time and a compiler's report, what bounds a variant, and the words for it."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.evaluate.compilation import code_facts, compile_variant
from deuteron.tuner.measure.bounds import bound_of, explain
from deuteron.tuner.measure.gauge import Gauge, Peaks
from deuteron.tuner.measure.instructions import InstructionMix, instruction_mix
from deuteron.tuner.measure.measurement import Bound, CodeFacts, Measurement, TimingProtocol
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.workloads import Problem, builtin_workload

H200 = DeviceProperties(
    "NVIDIA H200",
    "cuda",
    sm_count=132,
    compute_capability=(9, 0),
    clock_khz=1_980_000,
    memory_clock_khz=3_201_000,
    memory_bus_bits=6144,
    shared_bytes_per_block=232_448,
)
COLD = TimingProtocol("device", True, "first look")
GPU = CodeFacts(
    1000,
    threads=128,
    registers=40,
    spill_bytes=0,
    shared_bytes=1024,
    slots=0,
    resident_programs=8,
    resident_warps=32,
    most_warps=64,
    limiter="registers",
    instructions=InstructionMix(arithmetic=10),
)


def gauge(flops: float = 1e9, bytes: float = 1e6) -> Gauge:  # noqa: A002 -- as the field is called
    return Gauge(flops, bytes, Peaks(tensor=1e15, plain=1e14, bytes=1e12), 100)


def measured(us: float, code: CodeFacts | None = GPU, **problem: float) -> Measurement:
    return gauge(**problem).measurement(Interval(us * 1e3, us * 1e3, us * 1e3, 9), COLD, code)


def test_instructions_are_counted_by_class() -> None:
    ptx = """
    .version 8.6 // ld.global in a comment is none
    .visible .entry k(.param .u64 p) {
    .reg .b32 %r<4>;
    $L__BB0_1:
        ld.param.u64 %rd1, [p];
        @%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
        { wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1}, %rd1, %rd2, 1, 1; }
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};
        fma.rn.f32 %f1, %f2, %f3, %f4; add.s32 %r1, %r2, %r3;
        ex2.approx.ftz.f32 %f1, %f2;
        cp.async.cg.shared.global [%r1], [%rd1], 16;
        cp.async.wait_group 0;
        bar.sync 0;
        st.shared.b32 [%r1], %r2;
        shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;
        st.global.b32 [%rd1], %r1;
        @!%p2 bra $L__BB0_1;
        ret;
    }
    """
    mix = instruction_mix(ptx)
    assert mix == InstructionMix(
        tensor=2, arithmetic=2, special=1, global_memory=3, shared_memory=2, synchronisation=2, other=3
    )
    assert mix.total == 15


def test_figures_follow_from_time_and_formulas() -> None:
    found = measured(10.0)
    assert (found.flop_s, found.byte_s) == pytest.approx((1e14, 1e11))
    assert (found.compute_share, found.memory_share) == pytest.approx((1.0, 0.1))
    assert found.roofline_share == pytest.approx(1.0)
    assert found.waves == pytest.approx(1000 / 800) and found.tail == pytest.approx(1 - 1000 / 800 / 2)
    full = measured(10.0, replace(GPU, programs=1600))
    assert (full.waves, full.tail) == (2.0, 0.0)
    tensor = measured(10.0, replace(GPU, instructions=InstructionMix(tensor=1)))
    assert tensor.compute_share == pytest.approx(0.1)


def test_what_is_not_known_is_not_invented() -> None:
    unknown = measured(10.0, None)
    assert (unknown.compute_share, unknown.waves, unknown.tail, unknown.roofline_share) == (None,) * 4
    cpu = Gauge(1e9, 1e6, Peaks(), 2).measurement(Interval(1e6, 1e6, 1e6, 9), COLD, CodeFacts(3, vector_bytes=32))
    assert (cpu.waves, cpu.tail, cpu.memory_share) == (1.5, 0.25, None)
    assert measured(10.0, replace(GPU, resident_programs=None)).waves is None


def test_peaks_are_those_of_the_papers() -> None:
    """Dense f16 on an H100 SXM at 1.98 GHz, its data sheet's 989 TFLOP/s; HBM3e of an H200 4.8 to 4.9 TB/s; f32 128
    fused multiply-adds a clock and multiprocessor, f64 half as many."""
    peaks = Peaks.of(H200, 16)
    assert peaks.tensor == pytest.approx(989e12, rel=0.01)
    assert peaks.plain == pytest.approx(132 * 256 * 1.98e9)
    assert peaks.bytes == pytest.approx(4.9e12, rel=0.02)
    assert Peaks.of(H200, 64).plain == pytest.approx(peaks.plain / 2)
    assert Peaks.of(DeviceProperties("EPYC", "cpu", sm_count=2), 32) == Peaks()


@pytest.mark.parametrize(
    ("found", "bound", "words"),
    [
        (measured(1.2, flops=1e7), "memory", "bound by memory; 83% of the peak memory bandwidth"),
        (measured(12.0), "compute", "bound by arithmetic; 8% of the peak memory bandwidth; 83% of the peak arithmetic"),
        (measured(40.0, replace(GPU, spill_bytes=24)), "spills", "spills 24 bytes"),
        (measured(40.0, replace(GPU, programs=80)), "parallelism", "80 programs fill 10% of the device"),
        (measured(40.0), "tail", "1.25 waves leave 38% of the device's time idle"),
        (
            measured(40.0, replace(GPU, programs=8000, resident_warps=12, registers=168)),
            "registers",
            "registers leave 12 of 64 warps a multiprocessor (168 registers a thread)",
        ),
        (
            measured(40.0, replace(GPU, programs=8000, resident_warps=8, limiter="shared memory", shared_bytes=98304)),
            "shared memory",
            "leave 8 of 64 warps a multiprocessor (96 KiB a program)",
        ),
        (measured(40.0, replace(GPU, programs=8000, resident_warps=12, slots=4)), "latency", "waits"),
        (measured(40.0, replace(GPU, programs=8000)), "latency", "waits"),
    ],
)
def test_what_bounds_a_variant(found: Measurement, bound: Bound, words: str) -> None:
    assert found.bound == bound
    assert words in (explain(found) or "")


@pytest.mark.parametrize("fact", ["programs", "registers", "code_bytes"])
def test_facts_that_no_code_has_are_refused(fact: str) -> None:
    """Searches take their logarithms, and files and workers may say anything."""
    with pytest.raises(SchemaError, match=f"code facts.{fact}"):
        CodeFacts.from_json({**GPU.to_json(), fact: -1})


def test_nothing_known_means_no_words() -> None:
    cpu = Gauge(1e9, 1e6, Peaks(), None).measurement(Interval(1e6, 1e6, 1e6, 9), COLD, CodeFacts(3))
    assert cpu.bound is None and explain(cpu) is None


counts = st.none() | st.integers(0, 1 << 20)


@given(
    st.builds(
        CodeFacts,
        programs=st.integers(1, 1 << 31),
        threads=st.none() | st.integers(1, 1024),
        registers=counts,
        spill_bytes=counts,
        shared_bytes=counts,
        slots=counts,
        resident_programs=st.none() | st.integers(1, 32),
        resident_warps=st.none() | st.integers(1, 64),
        most_warps=st.none() | st.integers(32, 64),
        limiter=st.none() | st.sampled_from(["registers", "shared memory", "threads", "blocks"]),
    ),
    st.floats(1.0, 1e12),
    st.booleans(),
)
def test_any_facts_have_a_bound_words_and_json(code: CodeFacts, ns: float, peaks: bool) -> None:
    known = gauge() if peaks else Gauge(1.0, 1.0, Peaks(), None)
    found = known.measurement(Interval(ns, ns, ns, 3), COLD, code, sm_mhz=1500.0)
    assert found.bound is None or (found.bound in get_args(Bound) and explain(found))
    assert found.bound == bound_of(found)
    assert found.tail is None or 0 <= found.tail < 1
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_product_for_hopper_reports_what_its_assembler_said() -> None:
    """Producer and consumers, 384 threads, with rings that fill a multiprocessor: one program on each."""
    problem = Problem(builtin_workload("matmul"), {"M": 1024, "N": 1024, "K": 512}, "f16")
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4, "GROUP_M": 8}
    plan = problem.variant(config)
    kernel = compile_variant(problem, plan, "cuda:90a")
    facts = code_facts(kernel, plan)
    assert (facts.programs, facts.threads, facts.slots, facts.persistent) == (32, 384, 4, True)
    assert facts.resident_programs == 1
    assert facts.shared_bytes == kernel.metadata.shared_bytes and facts.instructions is not None
    assert facts.instructions.tensor > 0 and facts.instructions.synchronisation > 0
    assert facts.registers == kernel.metadata.registers
    if facts.registers is not None:  # an assembler is installed
        assert facts.occupancy == 12 / 64


def test_a_cpu_kernel_reports_its_vectors_and_size() -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 10_000}, "f32")
    plan = problem.variant({"BLOCK_SIZE": 1024})
    facts = code_facts(compile_variant(problem, plan, "cpu"), plan)
    assert facts.programs == 10 and facts.vector_bytes in (16, 32, 64) and (facts.code_bytes or 0) > 100
    assert (facts.registers, facts.occupancy, facts.instructions) == (None, None, None)
