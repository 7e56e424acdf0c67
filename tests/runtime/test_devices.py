"""Devices, their arrays, timers; timing; messages when a device is not there."""

from __future__ import annotations

import ctypes
import importlib.util
import time
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron
import deuteron.testing
from deuteron.compiler.errors import DeviceError, LaunchError
from deuteron.compiler.runtime.cuda import driver as cuda_driver
from deuteron.compiler.runtime.cuda.device import CudaDevice
from deuteron.compiler.runtime.cuda.packing import attribute_bytes, block_bytes, layout_of
from deuteron.compiler.runtime.tuning.benchmark import quantile
from deuteron.compiler.signature import parse_argument_type
from deuteron.compiler.tile.formats import bf16_bits

CPU = deuteron.get_device("cpu")


@pytest.mark.parametrize("dtype", ["i1", "i8", "u16", "i64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"])
def test_host_arrays(dtype: str) -> None:
    array = CPU.empty((3, 5), dtype)
    assert (array.shape, array.dtype) == ((3, 5), dtype)
    size = {"i1": 1, "i8": 1, "u16": 2, "i64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2}
    assert array.nbytes == 15 * size.get(dtype, 1)
    assert array.to_numpy().ctypes.data % 8 == 0
    assert array.__array_interface__["data"][0] % 64 == 0  # type: ignore[index]
    values = np.arange(15).reshape(3, 5).astype(array.to_numpy().dtype)
    array.copy_from(values)
    np.testing.assert_array_equal(array.to_numpy(), values)
    copied = CPU.array(values)
    values[:] = 0
    assert copied.to_numpy().astype(float).sum() > 0


def test_copies_must_fit() -> None:
    array = CPU.empty((4,), "f32")
    with pytest.raises(LaunchError, match=r"array of f64 \[4\] into one of f32 \[4\]"):
        array.copy_from(np.zeros(4))
    with pytest.raises(LaunchError, match=r"array of f32 \[5\] into one of f32 \[4\]"):
        array.copy_from(np.zeros(5, np.float32))
    with pytest.raises(LaunchError, match="dtype complex64 has no counterpart"):
        CPU.array(np.zeros(3, np.complex64))


@pytest.mark.parametrize(
    ("length", "size"), [(1, 1), (1, 70_001), (5, 3), (7, 100), (65_537, 400_000), (7, 200_000), (10, 0)]
)
def test_arrays_are_filled_with_a_row(length: int, size: int) -> None:
    row = np.arange(length, dtype=np.int32)
    array = CPU.empty((2, size), "i32")
    array.fill(row)
    np.testing.assert_array_equal(array.to_numpy(), np.resize(row, (2, size)))


@pytest.mark.parametrize("row", [np.zeros(3), np.zeros((1, 3), np.float32), np.zeros(0, np.float32)])
def test_a_row_must_fit(row: np.ndarray) -> None:
    with pytest.raises(LaunchError, match=r"cannot fill an array of f32 with one of f(32|64) \["):
        CPU.empty((4,), "f32").fill(row)


@pytest.mark.parametrize(("length", "size"), [(1, 1), (1, 1001), (5, 3), (7, 100), (64, 64)])
def test_a_gpu_copies_the_row_behind_itself(monkeypatch: pytest.MonkeyPatch, length: int, size: int) -> None:
    """By a driver whose device memory is the host's: no copy reads what it writes, or leaves the array."""
    memory = np.full(size + 1, -1, np.int32)
    first = memory.ctypes.data

    def call(name: str, to: int = 0, source: int = 0, count: int = 0, *_stream: int) -> None:
        if name in ("cuMemcpyHtoD", "cuMemcpyDtoDAsync"):
            assert first <= to and to + count <= first + 4 * size
            assert to >= source + count or name == "cuMemcpyHtoD"
            ctypes.memmove(to, source, count)

    monkeypatch.setattr(cuda_driver, "call", call)
    monkeypatch.setattr(cuda_driver, "integer", lambda *_: first)
    monkeypatch.setattr(cuda_driver, "make_current", lambda *_: None)
    monkeypatch.setattr(weakref, "finalize", lambda *_: None)
    row = np.arange(length, dtype=np.int32)
    CudaDevice(0).empty((size,), "i32").fill(row)
    np.testing.assert_array_equal(memory, [*np.resize(row, size), -1])


def test_cpu_device() -> None:
    assert deuteron.get_device("cpu") is CPU
    assert deuteron.list_devices()[0] is CPU
    assert (CPU.name, CPU.target, CPU.properties.kind) == ("cpu", "cpu", "cpu")
    assert CPU.properties.name
    assert (CPU.properties.sm_count or 0) >= 1
    assert (CPU.properties.memory_bytes or 0) > 1 << 28
    CPU.synchronize()
    CPU.flush_l2()
    timer = CPU.timer()
    timer.start()
    time.sleep(0.01)
    timer.stop()
    assert 10e6 <= timer.elapsed_ns() < 2e9


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:01", "CPU", "", "cpu:0", 3, None])
def test_unknown_devices(name: Any) -> None:
    with pytest.raises(DeviceError) as caught:
        deuteron.get_device(name)
    assert repr(name) in caught.value.message
    assert "devices here: cpu" in (caught.value.hint or "")


def test_absent_gpu() -> None:
    count = cuda_driver.cuda_device_count()
    with pytest.raises(DeviceError, match=f"device 'cuda:{count}' is not present: ") as caught:
        deuteron.get_device(f"cuda:{count}")
    assert "devices here: cpu" in (caught.value.hint or "")
    if count == 0:
        with pytest.raises(DeviceError, match="not present"):
            cuda_driver.primary_context(0)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (710, "KernelAssertionError", "device_assert failed on the GPU"),
        (700, "DeviceError", "touched memory that is not its own"),
        (2, "DeviceError", "no memory left"),
        (1, "LaunchError", "refused the call"),
        (999, "DeviceError", "reported an error"),
    ],
)
def test_driver_errors_say_what_they_mean(code: int, kind: str, message: str) -> None:
    with pytest.raises(deuteron.DeuteronError, match=message) as caught:
        cuda_driver.raise_error(code, "cuLaunchKernel")
    assert type(caught.value).__name__ == kind
    assert "cuLaunchKernel" in caught.value.message
    if code in (700, 710):
        assert "context is lost" in (caught.value.hint or "")


class LaunchConfig(ctypes.Structure):
    """cuda.h, CUlaunchConfig."""

    _fields_ = [
        *[(f"size{i}", ctypes.c_uint) for i in range(7)],
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


def test_packing_follows_the_abi() -> None:
    names = ("i8", "*f32", "i32", "u64", "i1", "f16", "bf16", "f64")
    layout = layout_of([parse_argument_type(t) for t in names])
    start = ctypes.sizeof(LaunchConfig)
    assert [o - start for o in layout.offsets] == [0, 8, 16, 24, 32, 34, 36, 40]
    values = (-1, 2**63, -5, 2**64 - 1, True, 1.5, 0x3F80, 2.5)
    raw = layout.struct.pack(9, 8, 7, block_bytes(6, 3), 2**40, attribute_bytes(None), *values)
    config = LaunchConfig.from_buffer_copy(raw)
    assert [getattr(config, f"size{i}") for i in range(7)] == [9, 8, 7, 6, 1, 1, 3]
    assert (config.stream, config.attributes, config.count) == (2**40, None, 0)
    raw = raw[start:]
    assert len(raw) == 48
    assert raw[0:1] == b"\xff"
    assert int.from_bytes(raw[8:16], "little") == 2**63
    assert np.frombuffer(raw[34:36], np.float16)[0] == 1.5
    assert np.frombuffer(raw[36:38], ml_dtypes.bfloat16)[0] == 1.0
    assert layout_of([]).offsets == []


def test_bf16_scalars_round_to_nearest_even() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [
            rng.standard_normal(1000).astype(np.float32),
            np.array([0, -0.0, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, 1e-40], "f4"),
        ]
    )
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert [bf16_bits(float(v)) for v in values] == expected.tolist()
    assert bf16_bits(float("nan")) == 0x7FC0
    # Rounded once: in f32 these are half-way between two numbers, of which the even one is another.
    assert [bf16_bits(v) for v in (1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40)] == [0x3F81, 0x3F81]
    assert [bf16_bits(v) for v in (1e40, -1e300)] == [0x7F80, 0xFF80]


def test_do_bench() -> None:
    def nap() -> None:
        time.sleep(0.002)

    assert 2 <= float(deuteron.testing.do_bench(nap, warmup=2, rep=20)) < 20
    times = deuteron.testing.do_bench(nap, warmup=2, rep=20, return_mode="all")
    assert isinstance(times, list) and len(times) >= 3
    low, high = deuteron.testing.do_bench(nap, 2, 20, quantiles=[0.0, 1.0])  # type: ignore[misc]
    assert 2 <= low <= high
    modes = [deuteron.testing.do_bench(nap, 2, 10, return_mode=m) for m in ("min", "median", "max")]
    assert all(isinstance(m, float) and m >= 2 for m in modes)
    with pytest.raises(LaunchError, match="return_mode 'average'"):
        deuteron.testing.do_bench(nap, return_mode="average")  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="quantile 1.5"):
        deuteron.testing.do_bench(nap, 1, 5, quantiles=[1.5])


def test_do_bench_clears_gradients() -> None:
    class Tensor:
        grad: object = 1

    tensor = Tensor()
    deuteron.testing.do_bench(lambda: None, 0.01, 0.01, grad_to_none=[tensor])
    assert tensor.grad is None


@pytest.mark.parametrize("q", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_quantiles_are_numpys(q: float) -> None:
    values = np.random.default_rng(2).standard_normal(17).tolist()
    assert quantile(values, q) == pytest.approx(np.quantile(values, q))


def test_assert_close() -> None:
    x = np.ones(4, np.float32)
    deuteron.testing.assert_close(x, CPU.array(x + np.float32(0.005)))
    deuteron.testing.assert_close(np.array([np.nan, 1]), np.array([np.nan, 1]))
    deuteron.testing.assert_close(x.astype(ml_dtypes.bfloat16), x)
    with pytest.raises(AssertionError):
        deuteron.testing.assert_close(x, x + np.float32(0.02))
    with pytest.raises(AssertionError):
        deuteron.testing.assert_close(x, x + np.float32(0.005), atol=1e-3)


@pytest.mark.parametrize("option", ["atol", "rtol"])
def test_assert_close_takes_tolerances_by_dtype(option: str) -> None:
    x, by_dtype = np.ones(4, np.float32), {np.dtype(np.float32): 0.1, np.dtype(np.float64): 0.001}.__getitem__
    exact = {"atol": 0.0} if option == "rtol" else {}
    tolerance: dict[str, Any] = {**exact, option: by_dtype}
    deuteron.testing.assert_close(x, x + np.float32(0.05), **tolerance)
    deuteron.testing.assert_close([1.0, 1.0], [1.0005, 1.0], **tolerance)
    for wrong in (x.astype(np.float64), 1.0):
        with pytest.raises(AssertionError):
            deuteron.testing.assert_close(wrong, x + np.float32(0.05), **tolerance)


def test_perf_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[int, str, int]] = []

    @deuteron.testing.perf_report(
        deuteron.testing.Benchmark(
            x_names=["n"],
            x_vals=[4, 8],
            line_arg="provider",
            line_vals=["a", "b"],
            line_names=["A", "B"],
            plot_name="speed",
            args={"m": 3},
            ylabel="GB/s",
            x_log=True,
        )
    )
    def measure(n: int, provider: str, m: int) -> Any:
        asked.append((n, provider, m))
        return (n * 1.5, n, 2 * n) if provider == "a" else n * 2.5

    measure.run(print_data=True, save_path=str(tmp_path / "out"))
    assert asked == [(4, "a", 3), (4, "b", 3), (8, "a", 3), (8, "b", 3)]
    # As pandas prints Triton's.
    printed = "speed:\n   n   A (GB/s)   B (GB/s)\n0  4   6.000000  10.000000\n1  8  12.000000  20.000000\n"
    assert capsys.readouterr().out == printed
    saved = (tmp_path / "out" / "speed.csv").read_text().split()
    assert saved == ["n,A", "(GB/s),B", "(GB/s)", "4,6.000000,10.000000", "8,12.000000,20.000000"]
    frame = measure.run(return_df=True)
    assert list(frame.columns) == ["n", "A (GB/s)", "B (GB/s)"]
    assert frame["B (GB/s)"].tolist() == [10.0, 20.0]
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(deuteron.DeuteronError, match="show_plots needs matplotlib"):
            measure.run(show_plots=True)


def test_perf_report_of_differences(tmp_path: Path) -> None:
    benchmark = deuteron.testing.Benchmark(["n"], [4, 8], "p", [1], ["A"], "speed", {}, ylabel="us")
    report = deuteron.testing.perf_report([benchmark])(lambda n, p: n * 1.25)
    report.run(save_path=str(tmp_path), diff_col=True, save_precision=2)
    assert (tmp_path / "speed.csv").read_text().splitlines() == ["n,A (us),Diff", "4,5.00,1.00", "8,10.00,2.00"]
    (frame,) = report.run(return_df=True)
    assert list(frame.columns) == ["n", "A (us)"]


def test_perf_report_takes_numbers_of_arrays(tmp_path: Path) -> None:
    benchmark = deuteron.testing.Benchmark(["n"], [4, 8], "p", [1, 2], ["A", "B"], "speed", {}, ylabel="us")
    report = deuteron.testing.perf_report(benchmark)(
        lambda n, p: np.quantile(np.array([n, n + 3.0]), [0.5, 0.2, 0.8]) if p == 1 else np.float32(n) / 3
    )
    report.run(save_path=str(tmp_path))
    assert (tmp_path / "speed.csv").read_text().splitlines()[1:] == ["4,5.500000,1.333333", "8,9.500000,2.666667"]


def test_perf_report_draws_where_it_can(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib").use("Agg")
    benchmark = deuteron.testing.Benchmark(
        ["n"], [4, 8], "p", [1, 2], ["A", "B"], "speed", {}, styles=[("red", "-"), ("blue", "--")]
    )
    deuteron.testing.perf_report(benchmark)(lambda n, p: (n, n - 1, n + 1) if p == 1 else n).run(
        save_path=str(tmp_path)
    )
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert 'src="speed.png"' in (tmp_path / "results.html").read_text()


def test_perf_report_checks_its_points() -> None:
    benchmark = deuteron.testing.Benchmark(["m", "n"], [(1, 2, 3)], "p", [1], ["P"], "grid", {})
    with pytest.raises(deuteron.DeuteronError, match="grid: x = .1, 2, 3. has 3 values for 2 names"):
        deuteron.testing.perf_report(benchmark)(lambda **_: 1.0).run()
