"""What is checked beyond the corpus: kinds of launches, memory without contents, order of programs, shadow memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.sanitizer import EndlessWait, FindingKind, Report, sanitized
from deuteron.compiler.sanitizer.shadow import regions_of
from deuteron.compiler.targets.interpreter import Memory
from deuteron.tuner.evaluate.check import run_once
from deuteron.tuner.workloads import BUILTINS, Problem, builtin_workload


@deuteron.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@deuteron.jit
def copy_all(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i))


def kinds(report: Report) -> list[FindingKind]:
    return [finding.kind for finding in report.findings]


# ---- launches --------------------------------------------------------------------------------------------------


def test_results_are_those_of_an_unchecked_launch() -> None:
    x = np.random.default_rng(0).random(100, np.float32)
    y = np.zeros_like(x)
    with sanitized() as report:
        copy[(2,)](x, y, 100, B=64)
    assert (report.launches, report.programs, report.findings) == (1, 2, [])
    np.testing.assert_array_equal(x, y)


def test_what_must_not_happen_does_not() -> None:
    base = np.zeros(32, np.float32)
    with sanitized() as report:
        copy_all[(1,)](np.ones(16, np.float32), base[8:16], B=16)
    assert kinds(report) == [FindingKind.WRITE_OUTSIDE]
    assert report.findings[0].count == 8
    np.testing.assert_array_equal(base, np.repeat([0, 1, 0], [8, 8, 16]))


@pytest.mark.parametrize("interpret", [False, True])
def test_launches_are_compiled_again_afterwards(interpret: bool) -> None:
    x, y = np.ones(16, np.float32), np.zeros(16, np.float32)
    with knobs.interpret.scope(interpret):
        for _ in range(2):
            assert (copy[(1,)](x, y, 16, B=16) is None) == interpret
            with sanitized() as report:
                assert copy[(1,)](x, y, 16, B=16) is None
            assert report.launches == 1


def test_bound_and_compiled_launches_are_checked() -> None:
    x, y = np.ones(16, np.float32), np.zeros(8, np.float32)
    compiled = deuteron.compile(copy_all, {"x": "*f32", "y": "*f32"}, {"B": 16})
    with sanitized() as report:
        copy_all.bound((1,), x, y, B=16)()
        compiled[(1,)](x, y)
    assert report.launches == 2
    assert report.findings[0].count == 16


def test_device_arrays_and_an_autotuned_kernel() -> None:
    tuned = deuteron.autotune([deuteron.Config({"B": 16}), deuteron.Config({"B": 32})], key=[])(copy_all)
    cpu = deuteron.get_device("cpu")
    with sanitized() as report:
        tuned[(1,)](cpu.array(np.ones(16, np.float32)), cpu.array(np.zeros(12, np.float32)))
    assert report.launches == 1
    assert [(f.array, f.count) for f in report.findings] == [("y", 4)]


def test_one_array_under_two_names_and_leaves_of_tuples() -> None:
    @deuteron.jit
    def pair(arrays, y, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(y + i, tl.load(arrays[0] + i) + tl.load(arrays[1] + i + 1))

    x = np.ones(16, np.float32)
    with sanitized() as report:
        pair[(1,)]((x, x), np.zeros_like(x), B=16)
    assert [(f.kind, f.array) for f in report.findings] == [(FindingKind.READ_OUTSIDE, "arrays.1")]


def test_a_place_is_reported_once_with_its_count() -> None:
    x, y = np.ones(16, np.float32), np.zeros(64, np.float32)
    with sanitized() as report:
        for _ in range(3):
            copy_all[(4,)](x, y, B=16)
    (finding,) = report.findings
    assert (finding.kind, finding.count) == (FindingKind.READ_OUTSIDE, 3 * 48)
    assert (finding.program, finding.index) == ((1, 0, 0), (0,))
    assert finding.to_json()["line"] == finding.place.location.line
    assert "tl.load(x + i)" in str(finding)


def test_a_kernel_that_does_not_compile_says_so() -> None:
    @deuteron.jit
    def broken(x):
        tl.store(x, nothing)  # noqa: F821

    with sanitized(), pytest.raises(deuteron.CompilationError, match="nothing"):
        broken[(1,)](np.zeros(1, np.float32))
    with sanitized(), pytest.raises(LaunchError, match="missing"):
        copy[(1,)](np.zeros(1, np.float32))


@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_built_in_workloads_are_clean(name: str, dtype: str) -> None:
    spec = builtin_workload(name)
    problem = Problem(spec, dict(zip(spec.dims, (70, 45, 83), strict=False)), dtype)
    config = spec.default_for("cpu")
    cpu = deuteron.get_device("cpu")
    with sanitized() as report:
        run_once(problem, cpu, config, 0)
    assert report.launches == 1
    assert not report.findings, "\n".join(map(str, report.findings))


# ---- memory without contents -----------------------------------------------------------------------------------


def undefined(make, *, use=copy_all, block: int = 16) -> int:
    """Elements of ``make()`` that a launch uses and that nobody has written."""
    with sanitized() as report:
        x = make()
        use[(x.size // block,)](x, np.zeros(x.shape, x.dtype), B=block)
    assert set(kinds(report)) <= {FindingKind.NEVER_WRITTEN}
    return sum(finding.count for finding in report.findings)


def half(x: np.ndarray) -> np.ndarray:
    x[: x.size // 2] = 0
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, np.uint16])
def test_what_the_host_has_written_counts_as_written(dtype) -> None:
    assert undefined(lambda: np.empty(64, dtype)) == 64
    assert undefined(lambda: half(np.empty(64, dtype))) == 32
    assert undefined(lambda: np.zeros(64, dtype)) == 0
    assert undefined(lambda: np.empty_like(np.zeros(64, dtype))) == 64
    assert undefined(lambda: np.empty(128, dtype)[32:96]) == 64


def test_eight_bytes_count_as_one() -> None:
    def one_element() -> np.ndarray:
        x = np.empty(64, np.int8)
        x[9] = 0
        return x

    assert undefined(one_element) == 56


def test_what_kernels_have_written_counts_to_the_byte() -> None:
    def one_element() -> np.ndarray:
        x = np.empty(64, np.int8)
        copy[(1,)](np.ones(16, np.int8), x, 9, B=16)
        return x

    assert undefined(one_element) == 55


def test_memory_that_is_used_again_is_not_remembered() -> None:
    with sanitized() as report:
        for _ in range(50):
            np.empty(1 << 16, np.float32)
            copy_all[(1,)](np.ones(1 << 16, np.float32), np.zeros(1 << 16, np.float32), B=16)
    assert not report.findings


def test_arrays_without_numbers_and_other_makers_are_left_alone() -> None:
    with sanitized():
        assert np.empty(3, object).tolist() == [None, None, None]
        assert np.empty(3, bool).dtype == bool
        assert np.empty((2, 0)).size == 0
        assert np.empty(3, [("a", np.int32)]).shape == (3,)
        assert np.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert np.empty.__module__ == "numpy"


# ---- order -----------------------------------------------------------------------------------------------------


@deuteron.jit
def counts_then_stores(x, counter, B: tl.constexpr):
    tl.atomic_add(counter, 1)
    tl.store(x, tl.program_id(0))
    tl.atomic_add(counter, 1)


def test_an_atomic_whose_result_nobody_reads_orders_nothing() -> None:
    with sanitized() as report:
        counts_then_stores[(3,)](np.zeros(1, np.int32), np.zeros(1, np.int32), B=16)
    assert kinds(report) == [FindingKind.RACE]


@deuteron.jit
def turns(x, turn):
    pid = tl.program_id(0)
    while tl.atomic_add(turn, 0) != pid:
        pass
    tl.store(x, tl.load(x) + pid)
    tl.atomic_add(turn, 1)


def test_programs_that_take_turns_do_not_race() -> None:
    x = np.zeros(1, np.int32)
    with sanitized() as report:
        turns[(5,)](x, np.zeros(1, np.int32))
    assert not report.findings
    assert x[0] == 10


@deuteron.jit
def looks_relaxed(x, turn):
    pid = tl.program_id(0)
    while tl.atomic_add(turn, 0, sem="relaxed") != pid:
        pass
    tl.store(x, pid)
    tl.atomic_add(turn, 1)


def test_looking_with_a_relaxed_atomic_orders_nothing() -> None:
    with sanitized() as report:
        looks_relaxed[(3,)](np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert kinds(report) == [FindingKind.RACE]


@deuteron.jit
def reads_or_writes(x, y):
    if tl.program_id(0) == 0:
        tl.store(y, tl.load(x))
    else:
        tl.store(x, 1)


def test_a_read_by_one_program_and_a_write_by_a_later_one() -> None:
    with sanitized() as report:
        reads_or_writes[(2,)](np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert kinds(report) == [FindingKind.RACE]


def test_a_program_that_waits_for_a_later_one_is_not_waited_for() -> None:
    with sanitized(), pytest.raises(EndlessWait, match="still waits"):
        turns[(2,)](np.zeros(1, np.int32), np.full(1, 1, np.int32))


def test_reads_by_many_and_a_write_by_one_of_them() -> None:
    @deuteron.jit
    def kernel(x, y):
        pid = tl.program_id(0)
        tl.store(y + pid, tl.load(x))
        if pid == tl.num_programs(0) - 1:
            tl.store(x, 1)

    with sanitized() as report:
        kernel[(3,)](np.zeros(1, np.int32), np.zeros(3, np.int32))
    assert kinds(report) == [FindingKind.RACE]


def test_programs_of_two_launches_do_not_race() -> None:
    with sanitized() as report:
        for _ in range(2):
            copy_all[(1,)](np.ones(16, np.float32), np.zeros(16, np.float32), B=16)
    assert not report.findings


# ---- shadow memory ---------------------------------------------------------------------------------------------


def test_accesses_of_different_widths_meet_in_their_bytes() -> None:
    @deuteron.jit
    def kernel(words, halves):
        if tl.program_id(0) == 0:
            tl.store(words, 1)
        else:
            tl.store(halves + 2, tl.program_id(0).to(tl.int16))
            tl.store(halves + 1, tl.program_id(0).to(tl.int16))

    words = np.zeros(4, np.int32)
    with sanitized() as report:
        kernel[(2,)](words, words.view(np.int16))
    (finding,) = report.findings
    assert (finding.kind, finding.array, finding.count) == (FindingKind.RACE, "halves", 1)
    assert "element 1 of halves" in finding.message


def test_arrays_that_overlap_share_a_region() -> None:
    memory = Memory()
    base = np.zeros(64, np.int8)
    for part in (base[:20].view(np.int32), base[12:28].view(np.int16), base[40:44], base[50:50]):
        memory.register(part, "part")
    first, second = regions_of(memory.buffers)
    assert (first.start, first.size, first.granule) == (base.ctypes.data, 28, 2)
    assert (second.size, second.granule) == (4, 1)


def test_a_pointer_that_is_loaded_may_point_anywhere() -> None:
    @deuteron.jit
    def through(table, y, B: tl.constexpr):
        i = tl.arange(0, B)
        x = tl.load(table).to(tl.pointer_type(tl.float32))
        tl.store(y + i, tl.load(x + i))

    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    with sanitized() as report:
        through[(1,)](np.array([x.ctypes.data], np.int64), y, B=16)
    assert not report.findings
    np.testing.assert_array_equal(x, y)
    with sanitized() as report:
        through[(1,)](np.array([64], np.int64), y, B=16)
    assert [(f.kind, f.count, f.array) for f in report.findings] == [(FindingKind.READ_OUTSIDE, 16, "")]


#: In a process of its own: threads that other tests leave behind take memory, too.
MEMORY_OF_A_SHADOW = """
import os
from pathlib import Path
from deuteron.compiler.sanitizer.shadow import NOBODY, Region

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

before = resident_bytes()
region = Region(0, 1 << 27, 1)
assert region.written[-1] == NOBODY == region.read_before[-1]
print(resident_bytes() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_shadow_of_elements_that_nobody_touches_takes_no_memory() -> None:
    command = [sys.executable, "-P", "-c", MEMORY_OF_A_SHADOW]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 100 << 20
