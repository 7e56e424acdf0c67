"""How programs begin: grids that wait for themselves, and kernels that begin before the one before them has ended. What
reaches the driver anywhere, what comes of it on a real GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from fake_driver import PROGRAMMATIC, FakeDriver
from test_direct_launch import Tensor

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import LaunchError

STEPS = 100
N = 1 << 16
BLOCK = 1024


@deuteron.jit
def exchanged(x, out, arrived, N, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """In each round every program writes a tile, waits for all, and reads that of the next one."""
    me, i = tl.program_id(0), tl.arange(0, BLOCK)
    for step in range(ROUNDS):
        tl.store(x + me * BLOCK + i, 1000 * step + me + i)
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < (2 * step + 1) * N:
            pass
        tl.store(out + (step * N + me) * BLOCK + i, tl.load(x + (me + 1) % N * BLOCK + i))
        tl.atomic_add(arrived, 1)
        while tl.atomic_add(arrived, 0) < (2 * step + 2) * N:
            pass


@deuteron.jit
def step(x, y, BLOCK: tl.constexpr):
    """y = x + 1, late: the next kernel begins at once, and would read what ``y`` held before."""
    tl.extra.cuda.gdc_launch_dependents()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    value = tl.load(x + i)
    end = tl.extra.cuda.globaltimer() + 3000
    while tl.extra.cuda.globaltimer() < end:
        pass
    tl.store(y + i, value + 1)


@deuteron.jit
def product(a, b, out, K, BLOCK: tl.constexpr):
    """``out`` (BLOCK, BLOCK) = ``a`` (BLOCK, K) times ``b`` (K, BLOCK), for f16; a producer group brings both."""
    tl.extra.cuda.gdc_launch_dependents()
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    tl.extra.cuda.gdc_wait()
    for k in range(0, K, BLOCK):
        sums = tl.dot(tl.load(a + rows * K + k + columns), tl.load(b + (k + rows) * BLOCK + columns), sums)
    tl.store(out + rows * BLOCK + columns, sums)


@deuteron.jit
def filled(x, value, BLOCK: tl.constexpr):
    """``x`` = ``value``, late."""
    tl.extra.cuda.gdc_launch_dependents()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    end = tl.extra.cuda.globaltimer() + 3000
    while tl.extra.cuda.globaltimer() < end:
        pass
    tl.store(x + i, (tl.zeros((BLOCK,), tl.float32) + value).to(tl.float16))


@deuteron.jit
def unaware(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


def test_the_driver_hears_of_kernels_that_begin_early(driver: FakeDriver) -> None:
    """Where they are asked to, and say where they wait."""
    driver.sizes = [8, 8]
    for kernel, options in ((step, {"launch_pdl": True}), (step, {}), (unaware, {"launch_pdl": True})):
        kernel[(4,)](Tensor(), Tensor(), BLOCK=128, **options)
    both = {"launch_pdl": True, "launch_cooperative_grid": True}
    step[(4,)](Tensor(), Tensor(), BLOCK=128, **both)
    early = {PROGRAMMATIC: (1, 0, 0)}
    assert [made.attributes for made in driver.launches] == [early, {}, {}, {2: (1, 0, 0), **early}]
    number = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert int(number) == PROGRAMMATIC


@pytest.mark.parametrize("options", [{}, {"launch_pdl": True}])
def test_on_the_cpu_a_kernel_begins_when_the_one_before_has_ended(options: dict[str, bool]) -> None:
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, np.int32)

    @deuteron.jit
    def plain(x, y, BLOCK: tl.constexpr):
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i) + 1)

    for _ in range(3):
        plain[(1,)](x, y, BLOCK=256, **options)
        plain[(1,)](y, x, BLOCK=256, **options)
    np.testing.assert_array_equal(x, np.arange(256) + 6)


# ---- on a GPU ------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu() -> Any:
    return deuteron.get_device("cuda:0")


@pytest.mark.gpu
@pytest.mark.parametrize("programs", [1, 7, 132])
def test_programs_of_a_grid_wait_for_each_other(gpu: Any, programs: int) -> None:
    rounds, block = 20, 256
    programs = min(programs, gpu.properties.sm_count)
    x = gpu.array(np.zeros((programs, block), np.int32))
    out, arrived = gpu.array(np.zeros((rounds, programs, block), np.int32)), gpu.array(np.zeros(1, np.int32))
    exchanged[(programs,)](x, out, arrived, programs, ROUNDS=rounds, BLOCK=block, launch_cooperative_grid=True)
    following = (np.arange(programs) + 1) % programs
    expected = 1000 * np.arange(rounds)[:, None, None] + following[None, :, None] + np.arange(block)
    np.testing.assert_array_equal(out.to_numpy(), expected)


@pytest.mark.gpu
def test_a_grid_for_which_there_is_no_room(gpu: Any) -> None:
    x = gpu.array(np.zeros(BLOCK, np.float32))
    y = gpu.array(np.zeros(BLOCK, np.float32))
    options = {"BLOCK": BLOCK, "launch_cooperative_grid": True}
    with pytest.raises(
        LaunchError, match=r"has 1000000, and cuda:0 has room for \d+: \d+ on each multiprocessor"
    ) as said:
        unaware[(1_000_000,)](x, y, **options)
    most = int(str(said.value).partition("has room for ")[2].partition(":")[0])
    assert most >= gpu.properties.sm_count and f"launch {most} programs or fewer" in str(said.value.hint)
    big = gpu.array(np.arange(most * BLOCK, dtype=np.float32))
    found = gpu.array(np.zeros(most * BLOCK, np.float32))
    unaware[(most,)](big, found, **options)  # the number that is said does fit, and the device goes on
    np.testing.assert_array_equal(found.to_numpy(), big.to_numpy())
    with pytest.raises(LaunchError, match=f"has {most + 1}, and"):
        unaware[(most + 1,)](big, found, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("early", [False, True])
def test_kernels_that_begin_early_see_what_came_before(gpu: Any, early: bool) -> None:
    x, y = gpu.array(np.arange(N, dtype=np.int32)), gpu.array(np.zeros(N, np.int32))
    for _ in range(STEPS // 2):
        step[(N // BLOCK,)](x, y, BLOCK=BLOCK, launch_pdl=early)
        step[(N // BLOCK,)](y, x, BLOCK=BLOCK, launch_pdl=early)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(N) + STEPS)


@pytest.mark.gpu
def test_a_producer_group_waits_for_the_kernel_before(gpu: Any) -> None:
    side, depth = 64, 512
    a, b = gpu.array(np.zeros((side, depth), np.float16)), gpu.array(np.ones((depth, side), np.float16))
    outs = [gpu.array(np.zeros((side, side), np.float32)) for _ in range(STEPS)]
    for number, out in enumerate(outs):
        filled[(side * depth // BLOCK,)](a, float(number), BLOCK=BLOCK, launch_pdl=True)
        product[(1,)](a, b, out, depth, BLOCK=side, launch_pdl=True)
    for number, out in enumerate(outs):
        assert (out.to_numpy() == number * depth).all()


@pytest.mark.gpu
def test_both_options_in_a_graph(torch: Any) -> None:
    x = torch.arange(N, device="cuda", dtype=torch.int32)
    y = torch.zeros_like(x)
    programs, rounds, block = 16, 3, 256
    tiles = torch.zeros(programs, block, device="cuda", dtype=torch.int32)
    out = torch.zeros(rounds, programs, block, device="cuda", dtype=torch.int32)
    arrived = torch.zeros(1, device="cuda", dtype=torch.int32)

    def run() -> None:
        for _ in range(STEPS // 2):
            step[(N // BLOCK,)](x, y, BLOCK=BLOCK, launch_pdl=True)
            step[(N // BLOCK,)](y, x, BLOCK=BLOCK, launch_pdl=True)
        arrived.zero_()
        sizes = {"ROUNDS": rounds, "BLOCK": block}
        exchanged[(programs,)](tiles, out, arrived, programs, **sizes, launch_cooperative_grid=True)

    run()  # loads the kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    out.zero_()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x.cpu(), torch.arange(N, dtype=torch.int32) + 4 * STEPS)
    following = (torch.arange(programs) + 1) % programs
    expected = 1000 * torch.arange(rounds)[:, None, None] + following[None, :, None] + torch.arange(block)
    assert torch.equal(out.cpu(), expected.int())
