"""Grids whose programs wait for each other: on the CPU, in both interpreters, and what reaches the CUDA driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from fake_driver import COOPERATIVE, FakeDriver
from test_direct_launch import Tensor

import deuteron
import deuteron.language as tl
from deuteron.compiler import KernelSource, knobs
from deuteron.compiler.errors import IllegalSchedule, KernelAssertionError, LaunchError, MemoryAccessError
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.targets.cpu import pool
from deuteron.compiler.targets.cpu.pool import ENTRY, GridLaunch, thread_pool
from deuteron.compiler.targets.together import MOST_AT_ONCE
from deuteron.tools.c_launcher import CLauncher

ROUNDS = 3


@deuteron.jit
def neighbours(x, out, arrived, N, ROUNDS: tl.constexpr):
    """In each round every program reads what the next one has written in it; ``arrived`` counts at the barriers."""
    me = tl.program_id(0)
    for i in range(ROUNDS):
        tl.store(x + me, 100 * i + me)
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < (2 * i + 1) * N:
            pass
        tl.store(out + i * N + me, tl.load(x + (me + 1) % N))
        tl.atomic_add(arrived, 1)
        while tl.load(arrived, volatile=True) < (2 * i + 2) * N:
            pass


def run(kernel: Any, programs: int) -> np.ndarray:
    x, out, arrived = np.zeros(programs, np.int32), np.zeros((ROUNDS, programs), np.int32), np.zeros(1, np.int32)
    kernel[(programs,)](x, out, arrived, programs, ROUNDS=ROUNDS, launch_cooperative_grid=True)
    return out


def expected(programs: int) -> np.ndarray:
    return 100 * np.arange(ROUNDS)[:, None] + (np.arange(programs) + 1) % programs


@pytest.fixture(params=["cpu", "python", "tile ir"])
def somewhere(request: pytest.FixtureRequest) -> Any:
    """Runs a kernel in one of the ways that need no GPU: ``somewhere(kernel)`` is launched like it."""

    def chosen(kernel: Any) -> Any:
        if request.param != "tile ir":
            return kernel
        return deuteron.JITFunction(KernelSource.from_function(kernel.fn))  # text is not executed as Python

    with knobs.interpret.scope(request.param != "cpu"):
        yield chosen


@pytest.mark.parametrize("programs", [1, 2, 33])
def test_programs_wait_for_each_other(somewhere: Callable[[Any], Any], programs: int) -> None:
    """More of them than any machine has cores for a run of tests; without the option the first one waits for ever."""
    np.testing.assert_array_equal(run(somewhere(neighbours), programs), expected(programs))


def test_the_grid_may_have_three_sizes(somewhere: Callable[[Any], Any]) -> None:
    @deuteron.jit
    def places(out, arrived, N):
        x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < N:
            pass
        tl.store(out + (z * 3 + y) * 2 + x, 100 * z + 10 * y + x)

    out = np.zeros((4, 3, 2), np.int32)
    somewhere(places)[(2, 3, 4)](out, np.zeros(1, np.int32), 24, launch_cooperative_grid=True)
    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, 100 * z + 10 * y + x)


def test_what_has_no_room_is_said_before_anything_runs(somewhere: Callable[[Any], Any]) -> None:
    @deuteron.jit
    def touch(x):
        tl.store(x, 1)

    x = np.zeros(1, np.int32)
    with pytest.raises(LaunchError, match=f"has {MOST_AT_ONCE + 1}, and .* has threads for {MOST_AT_ONCE}") as raised:
        somewhere(touch)[(MOST_AT_ONCE + 1,)](x, launch_cooperative_grid=True)
    assert f"launch {MOST_AT_ONCE} programs or fewer" in str(raised.value.hint) and not x[0]


def test_threads_that_the_system_refuses(somewhere: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(pool, "thread_pool", pool.ThreadPool)
    monkeypatch.setattr("deuteron.compiler.targets.cpu.launch.thread_pool", pool.ThreadPool)
    with pytest.raises(LaunchError, match="needs .* threads, and the system gives this process"):
        run(somewhere(neighbours), 9)


def test_a_program_that_fails_ends_the_launch_of_an_interpreter() -> None:
    @deuteron.jit
    def waits(x, arrived, N):
        tl.atomic_add(arrived, 1)
        if tl.program_id(0) == 2:
            tl.store(x + 1000, 1)
        while tl.atomic_add(arrived, 0) < 2 * N:
            pass

    for kernel in (waits, deuteron.JITFunction(KernelSource.from_function(waits.fn))):
        with knobs.interpret.scope(True), pytest.raises(MemoryAccessError, match=r"program \(2, 0, 0\)"):
            kernel[(4,)](np.zeros(1, np.int32), np.zeros(1, np.int32), 4, launch_cooperative_grid=True)


def test_an_assertion_that_fails_stops_no_other_program() -> None:
    """They may be waited for."""

    @deuteron.jit
    def last(arrived, N):
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < N:
            pass
        tl.device_assert(tl.program_id(0) != 0, "the first one")

    arrived = np.zeros(1, np.int32)
    with pytest.raises(KernelAssertionError, match="the first one"):
        last[(20,)](arrived, 20, launch_cooperative_grid=True, debug=True)
    assert arrived[0] == 20


def test_the_pool_runs_usual_launches_afterwards() -> None:
    ended: list[tuple[int, int]] = []
    launch = GridLaunch(ENTRY(lambda arguments, first, last, sizes, scratch, status: ended.append((first, last))))
    thread_pool().execute_together(5, launch)
    thread_pool().execute(4, 2, launch)
    assert sorted(ended[:5]) == [(i, i + 1) for i in range(5)]
    assert sum(last - first for first, last in ended[5:]) == 4


# ---- GPUs ----------------------------------------------------------------------------------------------------------


@deuteron.jit
def counted(x):
    tl.atomic_add(x, 1.0)


def test_the_driver_is_asked_for_it(driver: FakeDriver) -> None:
    driver.sizes = [8]
    counted[(264,)](Tensor(), launch_cooperative_grid=True)
    counted[(1000,)](Tensor())
    counted.bound((4,), Tensor(), launch_cooperative_grid=True)()
    assert [made.attributes for made in driver.launches] == [{COOPERATIVE: (1, 0, 0)}, {}, {COOPERATIVE: (1, 0, 0)}]
    assert int(bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE) == COOPERATIVE


def test_a_grid_that_does_not_fit(driver: FakeDriver) -> None:
    driver.sizes = [8]
    for launch in (
        lambda: counted[(133, 2)](Tensor(), launch_cooperative_grid=True),
        counted.bound((133, 2), Tensor(), launch_cooperative_grid=True),
        lambda: counted.warmup(Tensor(), launch_cooperative_grid=True).run((133, 2), Tensor()),
    ):
        with pytest.raises(
            LaunchError, match=r"grid \(133, 2, 1\) has 266, and cuda:0 has room for 264: 2 on each"
        ) as raised:
            launch()
        assert "launch 264 programs or fewer" in str(raised.value.hint)
    code = bindings.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    assert int(code) == cuda.COOPERATIVE_LAUNCH_TOO_LARGE


def test_persistent_programs_run_in_turn() -> None:
    signature = {"x": "*f32:16"}
    with pytest.raises(IllegalSchedule, match="persistent = True is not possible with launch_cooperative_grid = True"):
        deuteron.compile(
            counted, signature, None, "cuda:90a", stop_after="gpu", persistent=True, launch_cooperative_grid=True
        )


def test_functions_of_c_launch_it_so() -> None:
    made = deuteron.compile(counted, {"x": "*f32:16"}, None, "cuda:90a", stop_after="ptx")
    for cooperative in (False, True):
        metadata = replace(made.metadata, recipe=replace(made.metadata.recipe, cooperative=cooperative))
        kernel = type(made)(metadata, made.signature, {"cubin": b"code"}, None)
        text = CLauncher("counted", [kernel], {"x": "CUdeviceptr"}, ("1", "1", "1"), [], []).source()
        assert ("cuLaunchCooperativeKernel(" in text) == cooperative == ("cuLaunchKernel(" not in text)
