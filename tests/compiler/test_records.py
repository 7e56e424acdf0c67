"""Scopes inside kernels: what programs record on the CPU and on the simulator, and what is left where nobody asks."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from scoped_kernels import LONG, ScopedKernel, gpu_programs, make_kernel, recorded_events

import deuteron.compiler.targets.cpu.records as cpu_records
import deuteron.compiler.targets.simt.records as simt_records
from deuteron.compiler.errors import CompilationError, LaunchError
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.record_buffer import (
    COUNT,
    FIRST_CLOCK,
    HEAD_WORDS,
    LAST_CLOCK,
    TRACK_WORDS,
    RecordForm,
    record_tag,
)
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.compiler.runtime.launch.recording import recording
from deuteron.compiler.runtime.launch.records import LaunchRecords, RecordSettings, read_buffer
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.targets.nvptx import RULES
from deuteron.compiler.tile.records import Record
from simulator import SimulationError, empty_buffer, shuffled, simulate_recorded

PROGRAMS = 4
ROOMY = RecordSettings(1 << 18)
FORMS = {"long": LONG, "short": RecordForm(short=True), "measured": RecordForm(short=True, measured=True)}


def on_cpu(kernel: ScopedKernel, n: int, listener: Any, settings: RecordSettings = ROOMY) -> LaunchRecords:
    recording.set(settings)
    function = JITFunction(KernelSource.from_text(kernel.text(), "kernel", f"<seed {kernel.seed}>"))
    function[(PROGRAMS,)](np.ones(64 * PROGRAMS, np.float32), n)
    assert listener.records is not None
    return listener.records


def simulated(kernel: ScopedKernel, n: int, settings: RecordSettings = ROOMY, target: str = "90a") -> LaunchRecords:
    compiled, recipe = gpu_programs(kernel.variant(f"cuda:{target}", records=settings.form))
    x = np.ones(64 * PROGRAMS, np.float32)
    return simulate_recorded(compiled, recipe, (PROGRAMS,), [x, n], settings, shuffled(kernel.seed))


def expected(kernel: ScopedKernel, n: int, warps: int) -> dict[tuple[int, int], list[object]]:
    every = {program: kernel.events(program, n) for program in range(PROGRAMS)}
    return {(program, warp): list(events) for program, events in every.items() for warp in range(warps) if events}


# Agreement with a plain account -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(6))
def test_programs_on_the_cpu_record_what_the_kernel_says(seed, form, listener) -> None:
    kernel = make_kernel(seed)
    records = on_cpu(kernel, seed % 4, listener, replace(ROOMY, form=FORMS[form]))
    assert recorded_events(records) == expected(kernel, seed % 4, 1)
    assert bool(records.record_ticks) == FORMS[form].measured and not records.doubtful


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(6, 10))
def test_warps_record_what_the_kernel_says(seed, form) -> None:
    kernel = make_kernel(seed)
    records = simulated(kernel, seed % 4, replace(ROOMY, form=FORMS[form]))
    assert recorded_events(records) == expected(kernel, seed % 4, 2)
    assert bool(records.record_ticks) == FORMS[form].measured and not records.doubtful


def test_records_of_32_bits_tell_the_same_times() -> None:
    """The simulator's clock counts the steps of a warp, of which a record has as many in both forms."""
    kernel = make_kernel(6)
    long, short = (simulated(kernel, 3, replace(ROOMY, form=form)) for form in (LONG, RecordForm(short=True)))
    first, second = ([[mark.clock for mark in track.marks] for track in made.tracks] for made in (long, short))
    assert [[b - a for a, b in pairwise(clocks)] for clocks in first] == [
        [b - a for a, b in pairwise(clocks)] for clocks in second
    ]


def test_the_clock_of_the_simulator_is_the_same_every_time() -> None:
    kernel = make_kernel(8)
    assert simulated(kernel, 2) == simulated(kernel, 2)


#: Mistakes of the code generator: what is patched, and with what.
MISTAKES = {
    "an end is dropped": (RULES.rules, Record, lambda state, op: simt_records._record(state, op) if op.enter else None),
    "the warp's number is wrong": (simt_records.__dict__, "LANE_BITS", 4),
    "another ring": (simt_records.__dict__, "TRACK_WORDS", TRACK_WORDS + 1),
    "a block too short by one": (simt_records.__dict__, "LANES", 31),
    "scopes are counted from one": (simt_records.__dict__, "record_tag", lambda s, *rest: record_tag(s + 1, *rest)),
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
    monkeypatch.setattr(cpu_records, "record_tag", lambda scope, enter, bits: record_tag(scope, not enter, bits))
    kernel = replace(make_kernel(3), seed=-3)  # a text of its own: what is wrong must not come from the cache
    assert recorded_events(on_cpu(kernel, 1, listener)) != expected(kernel, 1, 1)


# Nobody asks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "stage"), [("cpu", "llvm"), ("cuda:90a", "ptx"), ("cuda:80", "ptx")])
def test_without_instrumentation_the_code_is_that_of_a_kernel_without_scopes(target, stage) -> None:
    for seed in (1, 2):
        kernel = make_kernel(seed)
        with_scopes = build(kernel.variant(target, records=None), stop_after=stage)
        without = build(kernel.variant(target, records=None, scopes=False), stop_after=stage)
        assert with_scopes.artifacts[stage] == without.artifacts[stage]
        assert with_scopes.metadata().recipe.scopes == ()
        instrumented = build(kernel.variant(target), stop_after=stage)
        assert instrumented.artifacts[stage] != without.artifacts[stage]


def test_instrumentation_is_part_of_the_key() -> None:
    kernel = make_kernel(1)
    assert len({kernel.variant("cpu", records=form).key for form in (None, *FORMS.values())}) == 4


def test_a_kernel_without_scopes_is_launched_as_ever(listener) -> None:
    recording.set(ROOMY)
    text = make_kernel(1).text(scopes=False)
    x = np.ones(64 * PROGRAMS, np.float32)
    JITFunction(KernelSource.from_text(text, "kernel"))[(PROGRAMS,)](x, 1)
    assert listener.records is None


def test_records_begin_and_end_between_launches_of_one_kernel(listener) -> None:
    kernel = make_kernel(1)
    function = JITFunction(KernelSource.from_text(kernel.text(), "kernel"))
    x = np.ones(64 * PROGRAMS, np.float32)
    seen = []
    for settings in (None, ROOMY, RecordSettings(64), None):
        recording.set(settings)
        function[(PROGRAMS,)](x, 17)
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
    text = str(build(replace(variant, records=LONG), stop_after="llvm").artifacts["llvm"])
    _, text = text.split("define void @kernel")
    order = re.findall(r"(counter\(\)|load <\d+ x float>|fmul)", text.split("define i64")[0])
    begin, entered, loaded, left, _, product, end = (word.split()[0] for word in order)
    assert {begin, entered, left, end} == {"counter()"}
    assert (loaded, product) == ("load", "fmul")


# Rings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["cpu", "90a"])
def test_a_full_ring_keeps_the_newest_records_and_counts_the_others(target, form, listener) -> None:
    kernel, n = make_kernel(16), 9
    warps = 1 if target == "cpu" else 2
    for length in (32, 64, 128):
        settings = RecordSettings(FORMS[form].record_bytes * length * warps, form=FORMS[form])
        records = on_cpu(kernel, n, listener, settings) if target == "cpu" else simulated(kernel, n, settings)
        whole, found = expected(kernel, n, warps), recorded_events(records)
        assert found == {place: events[-length:] for place, events in whole.items()}
        assert {(t.program, t.warp): t.lost for t in records.tracks} == {
            place: max(0, len(events) - length) for place, events in whole.items()
        }
    assert 128 > max(map(len, whole.values())) > 64, "this would show less"


COUNTED = """
import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def kernel(x, n):
    for i in range(n + tl.program_id(0)):
        with pl.scope("a"):
            tl.store(x + tl.arange(0, 64), 1.0)
"""


SUMMED = """
import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def kernel(x, n):
    i = tl.arange(0, 64)
    total = tl.zeros((64,), tl.float32)
    for _ in range({}):
        with pl.scope("a"):
            total += tl.load(x + i)
    tl.store(x + 64 + i, total)
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [0, 14, 29, 62])
def test_any_number_of_records_arrives(form, n) -> None:
    """Blocks that are full, by a record or all but one; rings of one block and of two."""
    source = KernelSource.from_text(COUNTED, "kernel")
    plain = make_variant(source, {"x": "*fp32", "n": "i32"}, {}, "cuda:90a", {"num_warps": 2})
    compiled, recipe = gpu_programs(replace(plain, records=FORMS[form]))
    for length in (32, 64):
        settings = RecordSettings(FORMS[form].record_bytes * length * 2)
        records = simulate_recorded(compiled, recipe, (PROGRAMS,), [np.zeros(64, np.float32), n], settings)
        found = {(track.program, track.warp): track for track in records.tracks}
        assert set(found) == {(p, w) for p in range(PROGRAMS) for w in range(2) if n + p}
        for (program, _), track in found.items():
            made = 2 * (n + program)
            assert track.lost == max(0, made - length)
            assert [mark.enter for mark in track.marks] == [True, False] * (min(made, length) // 2)
            clocks = [mark.clock for mark in track.marks]
            assert clocks == sorted(clocks) and clocks[0] > 0 and clocks[-1] < track.last_clock - track.first_clock


def test_chosen_warps_record_alone() -> None:
    kernel = make_kernel(6)
    every, some = (recorded_events(simulated(kernel, 1, RecordSettings(1 << 16, w))) for w in (None, (1, 7)))
    assert some == {place: events for place, events in every.items() if place[1] == 1}
    assert some


def test_rings_are_powers_of_two_within_the_memory_that_is_allowed() -> None:
    short = RecordForm(short=True)
    assert RecordSettings(8 * 100).ring(1, 1, LONG) == 64
    assert RecordSettings(8 * 100).ring(1, 1, short) == 128
    assert RecordSettings(8).ring(1, 4, LONG) == 32
    assert RecordSettings().ring(1, 4, LONG) == 256
    assert RecordSettings().ring(1, 4, short) == 512
    assert RecordSettings().ring(1 << 15, 8, LONG) == 32
    assert RecordSettings().ring(1 << 18, 8, LONG) == 32
    with pytest.raises(LaunchError, match="take .* bytes, .* are allowed\nhint: profile a smaller grid"):
        RecordSettings(1 << 20).ring(1 << 16, 8, LONG)


def read_track(
    form: RecordForm, scopes: int, first: int, marks: list[tuple[int, bool, int]], last: int
) -> LaunchRecords:
    """What is read of a ring of 32 records in which a program made ``marks`` (scope, whether it begins, clock)."""
    recipe = LaunchRecipe(32, scopes=tuple((str(n),) for n in range(scopes)), records=form)
    words = empty_buffer(RecordSettings(), form, 1, 1)
    track, bits = words[HEAD_WORDS:], form.clock_bits(scopes)
    track[[FIRST_CLOCK, LAST_CLOCK, COUNT]] = first, last, len(marks)
    ring = track[TRACK_WORDS:].view(np.uint32 if form.short else np.uint64)
    for number, (scope, enter, clock) in enumerate(marks):
        ring[number % len(ring)] = record_tag(scope, enter, bits) | clock % (1 << bits)
    return read_buffer(words, recipe, 1)


@pytest.mark.parametrize(("form", "scopes"), [("long", 1), ("long", 1 << 15), *(("short", 1 << n) for n in range(8))])
def test_clocks_that_wrap_go_on(form, scopes) -> None:
    """By almost a whole turn from record to record, and more than a ring of them."""
    bits = FORMS[form].clock_bits(scopes)
    assert bits == (48 if form == "long" else 31 - (scopes - 1).bit_length())
    draw, turn = random.Random(bits), 1 << bits
    length = RecordSettings().ring(1, 1, FORMS[form])
    for count in (1, 2, 31, length, length + 70):
        gaps = [draw.choice([0, 1, turn - 1, turn // 2, draw.randrange(turn)]) for _ in range(count + 1)]
        clocks = list(accumulate(gaps))
        made = [(draw.randrange(scopes), draw.random() < 0.5, clock) for clock in clocks[:-1]]
        first = draw.randrange(1 << 50)
        wanted = [(scope, enter, clock) for scope, enter, clock in made[-length:]]
        records = read_track(FORMS[form], scopes, first, [(s, e, first + c) for s, e, c in made], first + clocks[-1])
        (track,) = records.tracks
        assert [(mark.scope, mark.enter, mark.clock) for mark in track.marks] == wanted
        assert (track.lost, records.doubtful) == (max(0, count - length), 0)


@pytest.mark.parametrize("place", range(1, 4))
def test_more_time_than_a_clock_has_is_noticed(place) -> None:
    clocks = [5 + (1 << 30) * (number >= place) for number in range(4)]
    marks = [(0, not number % 2, clock) for number, clock in enumerate(clocks)]
    assert read_track(RecordForm(short=True), 2, 0, marks, (1 << 30) + 9).doubtful == 1
    assert read_track(RecordForm(short=True), 1, 0, marks, (1 << 30) + 9).doubtful == 0
    assert read_track(LONG, 2, 0, marks, (1 << 30) + 9).doubtful == 0


@pytest.mark.parametrize("form", [LONG, RecordForm(short=True)], ids=["long", "short"])
def test_scopes_that_records_cannot_tell_apart_are_refused(form) -> None:
    most = form.most_scopes()
    assert most == (128 if form.short else 1 << 15)
    (track,) = read_track(form, most, 0, [(most - 1, False, 0)], 1).tracks
    assert (track.marks[0].scope, track.marks[0].enter) == (most - 1, False)
    with pytest.raises(CompilationError, match=f"{most + 1} scopes are in the kernel"):
        form.clock_bits(most + 1)


def test_a_kernel_with_too_many_scopes_is_not_compiled_for_short_records() -> None:
    lines = "".join(f'    with pl.scope("{n}"):\n        tl.store(x, 1.0)\n' for n in range(129))
    source = KernelSource.from_text(COUNTED.split("    for")[0] + lines, "kernel")
    variant = make_variant(source, {"x": "*fp32", "n": "i32"}, {}, "cpu", {})
    build(replace(variant, records=LONG), stop_after="tile")
    with pytest.raises(CompilationError, match="129 scopes .* 128 apart\nhint: leave optimizations=clock32 out"):
        build(replace(variant, records=RecordForm(short=True)), stop_after="tile")


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


@pytest.mark.parametrize("bound", ["n", "7"])
def test_iterations_that_do_not_exist_record_nothing(bound) -> None:
    """Of a loop that only loads four iterations are done at once if it does not record; a short one leaves no loop."""
    source = KernelSource.from_text(SUMMED.format(bound), "kernel")
    plain = make_variant(source, {"x": "*fp32", "n": "i32"}, {}, "cuda:90a", {"num_warps": 2})
    compiled, recipe = gpu_programs(replace(plain, records=LONG))
    x = np.ones(128, np.float32)
    for track in simulate_recorded(compiled, recipe, (1,), [x, 7]).tracks:
        assert [mark.enter for mark in track.marks] == [True, False] * 7
    assert x[64:].tolist() == [7] * 64
    texts = [str(build(v, stop_after="ptx").artifacts["ptx"]) for v in (plain, replace(plain, records=LONG))]
    assert [" bra " in re.sub(r"\s+", " ", text) for text in texts] == [bound == "n"] * 2


@pytest.mark.parametrize("arch", ["80", "90a", "100a", "120"])
def test_what_records_add_to_a_kernel(arch) -> None:
    """Of two records in a loop: their clocks and the stores of blocks; beside them two clocks and stores of pairs, one
    more pair at the end, and the last block. Measuring makes eight records more, between two clocks."""
    source = KernelSource.from_text(COUNTED, "kernel")
    plain = make_variant(source, {"x": "*fp32", "n": "i32"}, {}, f"cuda:{arch}", {"num_warps": 2})
    for form in FORMS.values():
        text = str(build(replace(plain, records=form), stop_after="ptx").artifacts["ptx"])
        records, notes = (10, 4) if form.measured else (2, 2)
        assert len(re.findall(r"%clock\b", text)) == (records if form.short else 0)
        assert text.count("%clock64") == notes + (0 if form.short else records)
        assert text.count("st.global.cs.v2.b64") == 3
        assert text.count(f"st.global.cs.b{8 * form.record_bytes}") == records + 1
        assert not re.search(r"\b(div|rem)\.", text)


@pytest.mark.parametrize(
    ("arch", "warps", "groups"), [("90a", 8, 9), ("90a", 4, 5), ("80", 4, 4)], ids=["groups", "one group", "sm_80"]
)
@pytest.mark.parametrize("form", ["long", "measured"])
def test_warps_of_a_product_record_in_their_roles(arch, warps, groups, form) -> None:
    """Producers, consumers and persistent programs; the code is otherwise that of the plain kernel."""
    source = KernelSource.from_text(MATMUL, "matmul")
    types = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16", "s": "i32:16"}
    block = {"BM": 64 * (warps // 4), "BN": 64, "BK": 32}
    plain = make_variant(source, types, block, f"cuda:{arch}", {"num_warps": warps})
    compiled, recipe = gpu_programs(replace(plain, records=FORMS[form]))
    a, b = (np.random.default_rng(seed).integers(-3, 4, (256, 256)).astype(np.float16) for seed in (0, 1))
    c = np.zeros((256, 256), np.float32)
    programs, rounds = 256 // block["BM"], 128 // block["BK"]
    records = simulate_recorded(compiled, recipe, (programs,), [a, b, c, 128, 256])
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
