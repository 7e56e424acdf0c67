"""Scopes inside kernels: what programs record on the CPU and on the simulator, and what is left where nobody asks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scoped_kernels import ScopedKernel, gpu_programs, make_kernel, recorded_events

import deuteron.compiler.targets.cpu.records as cpu_records
import deuteron.compiler.targets.simt.records as simt_records
from deuteron.compiler.errors import CompilationError, DeuteronError, LaunchError
from deuteron.compiler.ir import Builder, Function, Tile, parse_function, print_function
from deuteron.compiler.ir.types import I32
from deuteron.compiler.record_buffer import COUNT, HEAD_WORDS, TRACK_WORDS, record_tag
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.compiler.runtime.launch.recorded import record_launches
from deuteron.compiler.runtime.launch.records import LaunchRecords, RecordSettings, empty_buffer, read_buffer
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.targets.nvptx import RULES
from deuteron.compiler.tile.records import Record
from simulator import SimulationError, shuffled, simulate_recorded

PROGRAMS = 4
ROOMY = RecordSettings(1 << 18)


def on_cpu(kernel: ScopedKernel, n: int, listener: Any, settings: RecordSettings = ROOMY) -> LaunchRecords:
    record_launches(settings)
    function = JITFunction(KernelSource.from_text(kernel.text(), "kernel", f"<seed {kernel.seed}>"))
    function[(PROGRAMS,)](np.ones(64 * PROGRAMS, np.float32), n)
    assert listener.records is not None
    return listener.records


def simulated(kernel: ScopedKernel, n: int, settings: RecordSettings = ROOMY, target: str = "90a") -> LaunchRecords:
    compiled, scopes = gpu_programs(kernel.variant(f"cuda:{target}"))
    x = np.ones(64 * PROGRAMS, np.float32)
    return simulate_recorded(compiled, scopes, (PROGRAMS,), [x, n], settings, shuffled(kernel.seed))


def expected(kernel: ScopedKernel, n: int, warps: int) -> dict[tuple[int, int], list[object]]:
    every = {program: kernel.events(program, n) for program in range(PROGRAMS)}
    return {(program, warp): list(events) for program, events in every.items() for warp in range(warps) if events}


# Agreement with a plain account -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_programs_on_the_cpu_record_what_the_kernel_says(seed, listener) -> None:
    kernel = make_kernel(seed)
    assert recorded_events(on_cpu(kernel, seed % 4, listener)) == expected(kernel, seed % 4, 1)


@pytest.mark.parametrize("seed", range(6, 10))
def test_warps_record_what_the_kernel_says(seed) -> None:
    kernel = make_kernel(seed)
    assert recorded_events(simulated(kernel, seed % 4)) == expected(kernel, seed % 4, 2)


def test_the_clock_of_the_simulator_is_the_same_every_time() -> None:
    kernel = make_kernel(8)
    assert simulated(kernel, 2) == simulated(kernel, 2)


#: Mistakes of the code generator: what is patched, and with what.
MISTAKES = {
    "an end is dropped": (RULES.rules, Record, lambda state, op: simt_records._record(state, op) if op.enter else None),
    "the warp's number is wrong": (simt_records.__dict__, "LANE_BITS", 4),
    "another ring": (simt_records.__dict__, "TRACK_WORDS", TRACK_WORDS + 1),
    "a ring too short by one": (simt_records.__dict__, "MASK", COUNT + 2),
    "scopes are counted from one": (simt_records.__dict__, "record_tag", lambda s, enter: record_tag(s + 1, enter)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_gpu_code_is_noticed(mistake, monkeypatch) -> None:
    table, key, wrong = MISTAKES[mistake]
    monkeypatch.setitem(table, key, wrong)
    kernel = make_kernel(6)
    try:
        found = recorded_events(simulated(kernel, 2, RecordSettings(1 << 14)))
    except (SimulationError, IndexError, AssertionError):
        return
    assert found != expected(kernel, 2, 2)


def test_a_mistake_in_cpu_code_is_noticed(monkeypatch, listener) -> None:
    monkeypatch.setattr(cpu_records, "record_tag", lambda scope, enter: record_tag(scope, not enter))
    kernel = replace(make_kernel(3), seed=-3)  # a text of its own: what is wrong must not come from the cache
    assert recorded_events(on_cpu(kernel, 1, listener)) != expected(kernel, 1, 1)


# Nobody asks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "stage"), [("cpu", "llvm"), ("cuda:90a", "ptx"), ("cuda:80", "ptx")])
def test_without_instrumentation_the_code_is_that_of_a_kernel_without_scopes(target, stage) -> None:
    for seed in (1, 2):
        kernel = make_kernel(seed)
        with_scopes = build(kernel.variant(target, instrumented=False), stop_after=stage)
        without = build(kernel.variant(target, instrumented=False, scopes=False), stop_after=stage)
        assert with_scopes.artifacts[stage] == without.artifacts[stage]
        assert with_scopes.metadata().recipe.scopes == ()
        instrumented = build(kernel.variant(target), stop_after=stage)
        assert instrumented.artifacts[stage] != without.artifacts[stage]


def test_instrumentation_is_part_of_the_key() -> None:
    kernel = make_kernel(1)
    assert kernel.variant("cpu").key != kernel.variant("cpu", instrumented=False).key


def test_a_kernel_without_scopes_is_launched_as_ever(listener) -> None:
    record_launches(ROOMY)
    text = make_kernel(1).text(scopes=False)
    x = np.ones(64 * PROGRAMS, np.float32)
    JITFunction(KernelSource.from_text(text, "kernel"))[(PROGRAMS,)](x, 1)
    assert listener.records is None


def test_records_begin_and_end_between_launches_of_one_kernel(listener) -> None:
    kernel = make_kernel(1)
    function = JITFunction(KernelSource.from_text(kernel.text(), "kernel"))
    x = np.ones(64 * PROGRAMS, np.float32)
    seen = []
    for settings in (None, ROOMY, RecordSettings(32), None):
        record_launches(settings)
        function[(PROGRAMS,)](x, 1)
        seen.append(listener.records)
    assert seen[0] is None and seen[3] is None
    assert not seen[1].lost and seen[2].lost


LOADED = """
import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def kernel(x, y):
    i = tl.arange(0, 16)
    with pl.scope("load"):
        v = tl.load(x + i)
    tl.store(y + i, v * 2)
"""


def test_on_the_cpu_a_load_is_done_in_its_scope() -> None:
    """Elsewhere tiles are loaded where they are used."""
    variant = make_variant(KernelSource.from_text(LOADED, "kernel"), {"x": "*fp32", "y": "*fp32"}, {}, "cpu", {})
    text = str(build(replace(variant, instrumented=True), stop_after="llvm").artifacts["llvm"])
    _, text = text.split("define void @kernel")
    order = re.findall(r"(counter\(\)|load <\d+ x float>|fmul)", text.split("define i64")[0])
    begin, entered, loaded, left, _, product, end = (word.split()[0] for word in order)
    assert {begin, entered, left, end} == {"counter()"}
    assert (loaded, product) == ("load", "fmul")


# Rings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "90a"])
def test_a_full_ring_keeps_the_newest_records_and_counts_the_others(target, listener) -> None:
    kernel, n = make_kernel(7), 2
    warps = 1 if target == "cpu" else 2
    for length in (2, 8, 64):
        settings = RecordSettings(8 * length * warps)
        records = on_cpu(kernel, n, listener, settings) if target == "cpu" else simulated(kernel, n, settings)
        whole, found = expected(kernel, n, warps), recorded_events(records)
        assert found == {place: events[-length:] for place, events in whole.items()}
        assert {(t.program, t.warp): t.lost for t in records.tracks} == {
            place: max(0, len(events) - length) for place, events in whole.items()
        }
    assert max(map(len, whole.values())) > 8, "this would show nothing"


def test_chosen_warps_record_alone() -> None:
    kernel = make_kernel(6)
    every, some = (recorded_events(simulated(kernel, 1, RecordSettings(1 << 16, w))) for w in (None, (1, 7)))
    assert some == {place: events for place, events in every.items() if place[1] == 1}
    assert some


def test_rings_are_powers_of_two_within_the_memory_that_is_allowed() -> None:
    assert RecordSettings(8 * 100).ring(1, 1) == 64
    assert RecordSettings().ring(1, 4) == 256
    assert RecordSettings().ring(1 << 16, 8) == 16
    assert RecordSettings().ring(1 << 20, 8) == 2
    with pytest.raises(LaunchError, match="take .* bytes, .* are allowed\nhint: profile a smaller grid"):
        RecordSettings(1 << 20).ring(1 << 16, 8)


def test_a_clock_that_wraps_goes_on() -> None:
    words = empty_buffer(RecordSettings(64), 1, 1)
    track = words[HEAD_WORDS:]
    track[COUNT], track[2] = 2, (5 << 48) - 10
    track[TRACK_WORDS : TRACK_WORDS + 2] = record_tag(0, True) | (1 << 48) - 10, record_tag(0, False) | 30
    (found,) = read_buffer(words, [("a",)], 1).tracks
    assert [(mark.enter, mark.clock) for mark in found.marks] == [(True, 0), (False, 40)]


def test_the_last_scope_has_a_record_too() -> None:
    words = empty_buffer(RecordSettings(64), 1, 1)
    words[HEAD_WORDS + COUNT] = 1
    words.view(np.uint64)[HEAD_WORDS + TRACK_WORDS] = record_tag((1 << 15) - 1, False)
    (found,) = read_buffer(words, [], 1).tracks
    assert (found.marks[0].scope, found.marks[0].enter) == ((1 << 15) - 1, False)


# Products -----------------------------------------------------------------------------------------------------

MATMUL = """
import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def matmul(a, b, c, K, s, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        with pl.scope("load"):
            x = tl.load(a + m[:, None] * s + k[None, :])
            y = tl.load(b + k[:, None] * s + n[None, :])
        with pl.scope("product"):
            total = tl.dot(x, y, total)
    with pl.scope("store"):
        tl.store(c + m[:, None] * s + n[None, :], total)
"""


@pytest.mark.parametrize(
    ("arch", "warps", "groups"), [("90a", 8, 9), ("90a", 4, 5), ("80", 4, 4)], ids=["groups", "one group", "sm_80"]
)
def test_warps_of_a_product_record_in_their_roles(arch, warps, groups) -> None:
    """Producers, consumers and persistent programs; the code is otherwise that of the plain kernel."""
    source = KernelSource.from_text(MATMUL, "matmul")
    types = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16", "s": "i32:16"}
    block = {"BM": 64 * (warps // 4), "BN": 64, "BK": 32}
    plain = make_variant(source, types, block, f"cuda:{arch}", {"num_warps": warps})
    compiled, scopes = gpu_programs(replace(plain, instrumented=True))
    a, b = (np.random.default_rng(seed).integers(-3, 4, (256, 256)).astype(np.float16) for seed in (0, 1))
    c = np.zeros((256, 256), np.float32)
    programs, rounds = 256 // block["BM"], 128 // block["BK"]
    records = simulate_recorded(compiled, scopes, (programs,), [a, b, c, 128, 256])
    wanted = a[:, :128].astype(np.float64) @ b[:128, :64].astype(np.float64)
    np.testing.assert_array_equal(c[:, :64], wanted)
    once = [((name,), enter) for name in ("load", "product") for enter in (True, False)] * rounds
    once += [(("store",), True), (("store",), False)]
    events = recorded_events(records)
    assert {warp for _, warp in events} == set(range(groups))
    for warp in range(groups):
        of_warp = [found for place, found in events.items() if place[1] == warp]
        assert Counter(map(tuple, of_warp)) <= Counter({tuple(once * turns): programs for turns in range(1, 9)})
        assert sum(map(len, of_warp)) == programs * len(once)
    made = [compiled(frozenset()), gpu_programs(plain)[0](frozenset())]
    assert made[0].recipe == made[1].recipe
    for instruction in ("wgmma.mma_async", "cp.async", "mma.sync"):
        assert made[0].llvm.count(instruction) == made[1].llvm.count(instruction)


# Misuse -------------------------------------------------------------------------------------------------------

BAD = {
    "an end without a beginning": (
        'pl.exit_scope("a")',
        "exit_scope('a'): no scope begins before it",
        'pl.exit_scope("a")',
    ),
    "a beginning without an end": (
        'pl.enter_scope("a")',
        "the scope 'a' is not ended in the branch or loop body in which it begins",
        'pl.enter_scope("a")',
    ),
    "scopes that overlap": (
        'pl.enter_scope("a"); pl.enter_scope("b"); pl.exit_scope("a"); pl.exit_scope("b")',
        "exit_scope('a'): the scope 'b', which begins in line 7, must end first",
        'pl.exit_scope("a")',
    ),
    "an end in a branch": (
        'pl.enter_scope("a")\n    if n > 1:\n        pl.exit_scope("a")',
        "exit_scope('a'): no scope begins before it in the same branch",
        'pl.exit_scope("a")',
    ),
    "a return inside": (
        'with pl.scope("a"):\n        if n > 1:\n            return',
        "a return, break or continue inside a scope leaves it open",
        'pl.scope("a")',
    ),
    "a name that is not known": (
        "pl.enter_scope(n)",
        "enter_scope takes a name that is known at compile time",
        "pl.enter_scope(n)",
    ),
    "a number as a name": ("pl.enter_scope(3)", "enter_scope takes a name", "pl.enter_scope(3)"),
    "no name": ('pl.enter_scope("")', "a scope needs a name", 'pl.enter_scope("")'),
    "another context": (
        "with n:\n        n = 1",
        "'with' is part of the kernel language for scopes of a profiler only",
        "with n",
    ),
    "a name for the context": ('with pl.scope("a") as b:\n        n = 1', "'with' is part of", "with pl"),
    "in a combining function": (
        "tl.store(x, tl.reduce(tl.load(x + tl.arange(0, 16)), 0, combine))",
        "the scope 'c' is in a function that reduce calls for elements",
        'pl.enter_scope("c")',
    ),
    "in a called function": ("helper(n)", "the scope 'h' is not ended", 'pl.enter_scope("h")'),
}
HEAD = """import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def kernel(x, n):
    tl.store(x, 1.0)
    {}

@deuteron.jit
def combine(a, b):
    pl.enter_scope("c")
    pl.exit_scope("c")
    return a + b

@deuteron.jit
def helper(n):
    pl.enter_scope("h")
"""


@pytest.mark.parametrize("mistake", BAD)
def test_misuse_is_an_error_with_its_place(mistake) -> None:
    text, message, under = BAD[mistake]
    source = KernelSource.from_text(HEAD.format(text), "kernel", "kernel.py")
    with pytest.raises(CompilationError) as raised:
        build(make_variant(source, {"x": "*fp32", "n": "i32"}, {}, "cpu", {}), stop_after="tile")
    shown = str(raised.value)
    assert message in shown
    place, line, caret, *_ = shown.splitlines()
    assert re.match(r"kernel\.py:\d+:\d+: ", place)
    assert line[caret.index("^") :].startswith(under)


def test_an_operation_as_text_is_read_back() -> None:
    function = Function("k")
    builder = Builder(function.body)
    for enter in (True, False):
        builder.emit(Record(None, 'a "b"', enter))
    text = print_function(function)
    assert print_function(parse_function(text)) == text
    assert [op.name for op in parse_function(text).walk()] == ['a "b"'] * 2


def test_a_buffer_is_a_pointer() -> None:
    function = Function("k")
    x = function.add_parameter("x", Tile(I32))
    with pytest.raises(DeuteronError, match="the buffer must be a scalar pointer to i64"):
        Record(x, "a", True)
