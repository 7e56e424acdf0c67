"""Python looks for no garbage while a kernel is made, and does again afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError


def total(x, y, N: tl.constexpr):
    tl.static_assert(N < 64, "N is too large")
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, N)), 0))


@pytest.fixture
def looks() -> Iterator[list[int]]:
    """The generations that Python looked through."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    before = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def compile_to_ptx(n: int) -> None:
    with knobs.always_compile.scope(True):
        deuteron.compile(
            deuteron.JITFunction(total),
            signature={"x": "*f32", "y": "*f32"},
            constexprs={"N": n},
            target="cuda:90a",
            stop_after="ptx",
        )


def test_no_garbage_is_looked_for_while_a_kernel_is_made(looks: list[int]) -> None:
    compile_to_ptx(16)
    looks.clear()
    compile_to_ptx(32)
    assert len(looks) < 20  # 35 where the compiler's own objects count
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_what_holds_before_holds_after_errors_too(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(CompilationError, match="N is too large"):
            compile_to_ptx(128)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
