"""Kernels that choose by what they are compiled for."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import KernelSource
from deuteron.compiler.errors import CompilationError
from deuteron.language.target_info import current_target, is_cuda, is_hip_gfx1250

TEXT = """
import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

@triton.jit
def choose(out):
    if tl.target_info.is_cuda():
        if cuda_capability_geq(9, 0):
            tl.store(out, 90)
        else:
            tl.store(out, 80 + tl.target_info.cuda_capability_geq(8, 9))
    elif tl.target_info.is_hip():
        tl.static_assert(False)
    else:
        tl.store(out, 1)
"""


@pytest.mark.parametrize(
    ("target", "stored"), [("cpu", 1), ("cuda:80", 80), ("cuda:89", 81), ("cuda:90", 90), ("cuda:120", 90)]
)
def test_text_chooses_by_the_target(target: str, stored: int) -> None:
    made = deuteron.compile(
        KernelSource.from_text(TEXT, "choose"), signature={"out": "*i32"}, target=target, stop_after="tile"
    )
    assert f"value = {stored}," in made.asm["tile"] and "cond" not in made.asm["tile"]


@deuteron.jit
def chosen(out):
    if is_cuda():
        tl.store(out, 2)
    elif tl.target_info.cuda_capability_geq(8):
        tl.store(out, 3)
    else:
        tl.store(out, 4)


@pytest.mark.parametrize(("target", "stored"), [("cpu", 4), ("cuda:90a", 2)])
def test_kernels_of_a_program_choose_by_the_target(target: str, stored: int) -> None:
    made = deuteron.compile(chosen, signature={"out": "*i32"}, target=target, stop_after="tile")
    assert f"value = {stored}," in made.asm["tile"]


@deuteron.constexpr_function
def generation():
    target = tl.target_info.current_target()
    if target is None or target.backend == "hip":
        return -1
    return target.arch // 10 if target.backend == "cuda" else 0


@deuteron.jit
def by_generation(out):
    tl.store(out, generation() + 2)


@pytest.mark.parametrize(("target", "stored"), [("cpu", 2), ("cuda:80", 10), ("cuda:90a", 11)])
def test_helpers_read_the_target_itself(target: str, stored: int) -> None:
    made = deuteron.compile(by_generation, signature={"out": "*i32"}, target=target, stop_after="tile")
    assert f"value = {stored}," in made.asm["tile"]
    assert deuteron.constexpr_function(generation.function)() in (0, *range(7, 13))


@deuteron.jit
def as_many_as_threads(out, COUNT: tl.constexpr):
    threads: tl.constexpr = COUNT()
    tl.store(out + tl.arange(0, threads), 1)


@pytest.mark.parametrize("warps", [1, 8])
def test_warps_and_threads_are_known_while_compiling(warps: int) -> None:
    for count, size in ((tl.extra.cuda.num_threads, 32 * warps), (tl.extra.cuda.num_warps, warps)):
        made = deuteron.compile(
            as_many_as_threads,
            signature={"out": "*i32"},
            constexprs={"COUNT": count},
            target="cuda:90a",
            stop_after="tile",
            num_warps=warps,
        )
        assert f"end = {size}}}" in made.asm["tile"] or size == 1
    with pytest.raises(CompilationError, match="on GPUs only"):
        as_many_as_threads[(1,)](np.zeros(32, np.int32), COUNT=tl.extra.cuda.num_threads)


@pytest.mark.parametrize("interpret", [False, True])
def test_launches_on_the_cpu(monkeypatch: pytest.MonkeyPatch, interpret: bool) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", str(int(interpret)))
    out = np.zeros(1, np.int32)
    deuteron.jit(chosen.fn)[(1,)](out)
    assert out[0] == 4 or (interpret and is_cuda())


def test_outside_of_kernels_it_is_the_machine() -> None:
    assert current_target().backend == ("cuda" if is_cuda() else "cpu")


def test_there_are_no_targets_of_amd() -> None:
    assert not (is_hip_gfx1250() or tl.target_info.is_hip_cdna4() or tl.target_info.is_hip())
    text = TEXT.replace("target_info.is_hip()", "target_info.is_hip_gfx1250()")
    source = KernelSource.from_text(text, "choose")
    made = deuteron.compile(source, signature={"out": "*i32"}, target="cpu", stop_after="tile")
    assert "value = 1," in made.asm["tile"]


def test_what_is_no_compile_time_value_is_refused() -> None:
    text = TEXT.replace("is_cuda()", "current_device()")
    with pytest.raises(CompilationError, match="has no 'current_device'"):
        deuteron.compile(
            KernelSource.from_text(text, "choose"), signature={"out": "*i32"}, target="cpu", stop_after="tile"
        )
