"""The runtime on a real GPU: arrays, streams, contexts, launches, limits, device errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeviceError, LaunchError, OutOfResources
from deuteron.compiler.runtime.tuning.benchmark import benchmark_device

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> Any:
    return deuteron.get_device("cuda:0")


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)


@deuteron.jit
def scalars(out, a, b: tl.float64, c: tl.bfloat16, d: tl.int8, e, f: tl.int64):
    tl.store(out + 0, a.to(tl.float64))
    tl.store(out + 1, b)
    tl.store(out + 2, c.to(tl.float64))
    tl.store(out + 3, d.to(tl.float64))
    tl.store(out + 4, e.to(tl.float64))
    tl.store(out + 5, f.to(tl.float64))


def grid(meta: Any) -> tuple[int, ...]:
    return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)


@pytest.mark.parametrize("dtype", ["i1", "i8", "u32", "i64", "f16", "bf16", "f32", "f64", "f8e5m2"])
def test_arrays_round_trip(gpu: Any, dtype: str) -> None:
    host = deuteron.get_device("cpu").empty((7, 3), dtype)
    host.copy_from((np.arange(21).reshape(7, 3) % 2).astype(host.to_numpy().dtype))
    array = gpu.array(host.to_numpy())
    assert (array.shape, array.dtype, array.nbytes) == ((7, 3), dtype, host.nbytes)
    np.testing.assert_array_equal(array.to_numpy(), host.to_numpy())
    array.zero_()
    assert not array.to_numpy().astype(bool).any()
    array.fill(host.to_numpy().reshape(-1)[1:3])
    np.testing.assert_array_equal(array.to_numpy(), np.resize(host.to_numpy().reshape(-1)[1:3], (7, 3)))
    assert gpu.empty((0,), dtype).to_numpy().size == 0


def test_parts_of_arrays_share_their_memory(gpu: Any) -> None:
    whole = gpu.array(np.arange(64, dtype=np.uint8))
    part = whole.part(16, (2, 3), "f32")
    part.copy_from(np.ones((2, 3), np.float32))
    expected = np.arange(64, dtype=np.uint8)
    expected[16:40] = np.ones(6, np.float32).view(np.uint8)
    np.testing.assert_array_equal(whole.to_numpy(), expected)
    del whole
    np.testing.assert_array_equal(part.to_numpy(), np.ones((2, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32])
@pytest.mark.parametrize("n", [1, 63, 64, 1000, 12345])
def test_vector_add(gpu: Any, dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = ((rng.standard_normal(n) * 8).astype(dtype) for _ in range(2))
    guard = gpu.array(np.full(n + 16, 3).astype(dtype))
    kernel = add[grid](gpu.array(x), gpu.array(y), guard, n, BLOCK=256)
    found = guard.to_numpy()
    np.testing.assert_array_equal(found[:n], x + y)
    assert (found[n:] == 3).all()
    assert kernel.target == gpu.target


def test_scalars_of_every_width(gpu: Any) -> None:
    out = gpu.empty((6,), "f64")
    scalars[(1,)](out, 2.5, 1e300, 1.00390625, -7, 2**63, 48)
    assert out.to_numpy().tolist() == [2.5, 1e300, 1.0, -7.0, 2.0**63, 48.0]


def test_properties(gpu: Any) -> None:
    p = gpu.properties
    assert p.kind == "cuda" and p.name.isprintable() and len(p.name) < 64
    assert p.compute_capability[0] >= 8
    assert gpu.target.startswith(f"cuda:{p.compute_capability[0]}")
    assert p.sm_count > 0 and p.memory_bytes > 1 << 30 and p.l2_bytes > 1 << 20
    assert p.shared_bytes_per_block >= 99 * 1024 and p.threads_per_block == 1024
    assert p.uuid.startswith("GPU-") and len(p.uuid) == 40
    assert p.pci_device_id.count(":") == 2
    clocks = gpu.clocks()
    if clocks is not None:
        assert 100 < clocks.sm_mhz < 5000
        assert 0 < clocks.temperature_c < 120
        assert p.driver and p.power_cap_watts > 50
    assert deuteron.list_devices()[1] is gpu
    assert benchmark_device() is gpu


def test_do_bench_times_bandwidth(gpu: Any) -> None:
    n = 1 << 26
    x = gpu.empty((n,), "f32")
    x.zero_()
    ms = deuteron.testing.do_bench(lambda: add[grid](x, x, x, n, BLOCK=1024), return_mode="median")
    bytes_per_second = 3 * 4 * n / (float(ms) * 1e-3)
    assert 1e11 < bytes_per_second < 2e13  # a wrong unit or an untimed launch is outside


def test_autotune_resets_arrays_on_the_device(gpu: Any) -> None:
    n = 100_000

    def tuned(**options: Any) -> Any:
        configs = [
            deuteron.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((128, 4), (1024, 4), (1024, 8))
        ]
        return deuteron.autotune(configs, ["n"], warmup=1, rep=5, **options)(deuteron.JITFunction(add.fn))

    x = gpu.array(np.full(n, 5, np.float32))
    kernel = tuned(restore_value=["out"])
    kernel[grid](x, x, x, n)
    assert set(x.to_numpy()) == {10.0}
    assert all(0 < low <= high < 10 for _, low, high in kernel.configs_timings.values())
    tuned(reset_to_zero=["out"])[grid](x, x, x, n)
    assert set(x.to_numpy()) == {0.0}


def test_autotune_bounds_the_launches_of_tiny_kernels(gpu: Any) -> None:
    launches: list[int] = []
    configs = [deuteron.Config({"BLOCK": b}, pre_hook=lambda a: launches.append(a["BLOCK"])) for b in (64, 128, 256)]
    x = gpu.array(np.zeros(1000, np.float32))
    kernel = deuteron.autotune(configs, ["n"])(deuteron.JITFunction(add.fn))
    kernel[grid](x, x, x, 1000)
    assert set(launches) == {64, 128, 256}
    assert len(launches) <= 3 * (2_000 + 1_000)
    assert all(0 < low <= median <= high < 1 for median, low, high in kernel.configs_timings.values())


def test_too_many_resources_are_refused_before_the_launch(gpu: Any) -> None:
    kernel = deuteron.compile(
        add, {"x": "*f32", "y": "*f32", "out": "*f32", "n": "i32"}, {"BLOCK": 64}, target=gpu.target
    )
    limit = gpu.properties.shared_bytes_per_block
    kernel.metadata = replace(kernel.metadata, shared_bytes=limit + 1)
    x = gpu.empty((10,), "f32")
    with pytest.raises(OutOfResources, match=f"shared memory, Required: {limit + 1}"):
        kernel.run((1,), x, x, x, 10)


def test_threads_share_kernels(gpu: Any) -> None:
    n = 5000
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = np.full(n, seed, np.float32)
            a, out = gpu.array(x), gpu.empty((n,), "f32")
            for _ in range(50):
                add[grid](a, a, out, n, BLOCK=128)
                np.testing.assert_array_equal(out.to_numpy(), 2 * x)
        except BaseException as error:  # noqa: BLE001 -- shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_devices_do_not_mix(gpu: Any) -> None:
    x = np.zeros(10, np.float32)
    with pytest.raises(LaunchError, match="argument 'y' .* is on cpu, but 'x' is on cuda:0"):
        add[grid](gpu.array(x), x, x, 10, BLOCK=16)


def test_code_for_another_gpu_is_refused(gpu: Any) -> None:
    other = "cuda:80" if gpu.properties.compute_capability[0] != 8 else "cuda:90a"
    kernel = deuteron.compile(add, {"x": "*f32", "y": "*f32", "out": "*f32", "n": "i32"}, {"BLOCK": 64}, target=other)
    x = gpu.empty((10,), "f32")
    with pytest.raises(DeviceError, match=f"compiled for {other}; cuda:0"):
        kernel.run((1,), x, x, x, 10)


def test_hooks_leave_gpu_times_open(gpu: Any, watch_launches: Any) -> None:
    with watch_launches() as events:
        x = gpu.array(np.zeros(10, np.float32))
        add[grid](x, x, x, 10, BLOCK=16)
    assert [(e.name, e.device.name, e.start_ns) for e in events] == [("add", "cuda:0", None)]


def test_ptx_is_launched_where_no_assembler_is_installed(gpu: Any, tmp_path: Any) -> None:
    from deuteron.compiler import knobs

    with knobs.ptxas_path.scope(tmp_path / "absent"), knobs.cache_bytes.scope(0):
        kernel = deuteron.compile(
            add,
            {"x": "*f32", "y": "*f32", "out": "*f32", "n": "i32"},
            {"BLOCK": 64},
            target=gpu.target,
        )
        x = gpu.array(np.ones(10, np.float32))
        kernel.run((1,), x, x, x, 10)
    assert x.to_numpy().tolist() == [2.0] * 10


PROGRAM = """
import numpy as np
import deuteron, deuteron.language as tl

@deuteron.jit
def kernel(x, at):
    tl.device_assert(at < 100, "too far")
    tl.store(x + at, 1.0)

gpu = deuteron.get_device("cuda:0")
x = gpu.array(np.zeros(4, np.float32))
try:
    kernel[(1,)](x, {at}, debug={debug})
    gpu.synchronize()
except deuteron.DeuteronError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("at", "debug", "kind", "message"),
    [
        (1000, True, "KernelAssertionError", "a tl.device_assert failed on the GPU"),
        (1 << 45, False, "DeviceError", "touched memory that is not its own"),
    ],
)
def test_failures_on_the_device(tmp_path: Path, at: int, debug: bool, kind: str, message: str) -> None:
    """In a child process: the context is lost afterwards."""
    program = PROGRAM.replace("{at}", str(at)).replace("{debug}", str(debug))
    done = subprocess.run(
        [sys.executable, "-c", _with_source(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,  # not a checkout, whose deuteron/ folder would be found first
    )
    assert done.stdout.startswith(kind), done.stdout + done.stderr
    assert message in done.stdout
    assert "context is lost" in done.stdout


def _with_source(program: str) -> str:
    """A program given by -c has no file for its kernels' source; write one and run it."""
    return (
        "import pathlib, runpy, tempfile\n"
        f"path = pathlib.Path(tempfile.mkdtemp()) / 'program.py'\npath.write_text({program!r})\n"
        "runpy.run_path(str(path))"
    )


# ---- together with torch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64"])
def test_torch_tensors(torch: Any, dtype: str) -> None:
    x = torch.arange(1000, device="cuda").to(getattr(torch, dtype))
    y = torch.ones_like(x)
    out = torch.empty_like(x)
    add[grid](x, y, out, 1000, BLOCK=128)
    assert torch.equal(out, x + y)


def test_torch_streams_order_launches(torch: Any) -> None:
    n = 1 << 24
    x = torch.zeros(n, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(50):
            x.add_(1)
            add[grid](x, x, x, n, BLOCK=1024)
            x.mul_(0.5)
    stream.synchronize()
    assert torch.equal(x, torch.full_like(x, 50))


def test_launches_are_captured_and_replayed(torch: Any) -> None:
    """After one launch of the variant, on the capturing stream, whichever way it is launched."""
    n = 10_000
    x = torch.ones(n, device="cuda")
    again = add.bound(grid, x, x, x, n, BLOCK=256)
    again()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again()
        add[grid](x, x, x, n, BLOCK=256)
    assert torch.equal(x, torch.full_like(x, 2))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 2 * 4**3))


def test_bound_launches_follow_the_current_stream(torch: Any) -> None:
    n = 1 << 22
    x = torch.zeros(n, device="cuda")
    again = add.bound(grid, x, x, x, n, BLOCK=1024)
    for stream in [torch.cuda.Stream() for _ in range(3)]:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                x.add_(1)
                again()
                x.mul_(0.5)
        torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 60))


def test_torch_tensors_under_the_interpreter(torch: Any) -> None:
    from deuteron.compiler import knobs

    x = torch.arange(100, device="cuda", dtype=torch.bfloat16)
    out = torch.zeros_like(x)
    with knobs.interpret.scope(True):
        add[grid](x, x, out, 100, BLOCK=64)
    assert torch.equal(out, x + x)


def test_cuda_array_interface_both_ways(torch: Any, gpu: Any) -> None:
    array = gpu.array(np.arange(10, dtype=np.float32))
    tensor = torch.as_tensor(array, device="cuda")
    assert tensor.data_ptr() == array.address

    class Foreign:
        __cuda_array_interface__ = tensor.__cuda_array_interface__

    out = torch.empty_like(tensor)
    add[grid](Foreign(), tensor, out, 10, BLOCK=16)
    assert torch.equal(out, tensor * 2)
