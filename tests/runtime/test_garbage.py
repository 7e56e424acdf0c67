"""Python looks for no garbage while a kernel is made, and does again afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError
from deuteron.compiler.garbage import garbage_kept


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


@pytest.fixture
def another_inside() -> Iterator[Callable[[], None]]:
    """Another thread is inside until it is told to leave."""
    come, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with garbage_kept():
            come.set()
            leave.wait()

    thread = threading.Thread(target=stay)

    def let_go() -> None:
        leave.set()
        thread.join()

    try:
        with garbage_kept():
            thread.start()
            come.wait()
        yield let_go
    finally:
        let_go()
        gc.enable()


def test_the_last_thread_to_leave_lets_python_look_again(another_inside: Callable[[], None]) -> None:
    assert not gc.isenabled()
    another_inside()
    assert gc.isenabled()
    with garbage_kept(), garbage_kept():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.usefixtures("another_inside")
def test_a_child_looks_for_garbage_whoever_was_inside(inside: bool) -> None:
    with garbage_kept() if inside else nullcontext():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() and enters_and_leaves() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def enters_and_leaves() -> bool:
    with garbage_kept():
        kept = not gc.isenabled()
    return kept and gc.isenabled()
