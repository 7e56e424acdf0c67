"""The comparison that a kernel makes on the device: the host's rule, or a stricter one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from deuteron.compiler.errors import DeviceError
from deuteron.compiler.frontend import lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype, numpy_dtype
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import PtxProgram, lower_to_llvm
from deuteron.compiler.tile.passes import optimize
from deuteron.tuner.evaluate import comparison
from deuteron.tuner.evaluate.comparison import BLOCK, DeviceComparison, Judge, device_comparison
from deuteron.tuner.evaluate.untouched import Untouched
from deuteron.tuner.workloads import Tolerance
from deuteron.tuner.workloads.own_kernels import own_kernel, own_source
from deuteron.tuner.workloads.spec import DTYPES
from deuteron.tuner.workloads.tolerance import EXACT, Comparison, Expected, tolerance_for
from deuteron.tuner.workloads.widen import widened
from simulator import simulate_launch

CPU = get_device("cpu")
PAIRS = [(dtype, want) for dtype in DTYPES for want in dict.fromkeys((dtype, "f64"))]
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-310, 1.0, 448.0, 3e38, 1e308)


def drawn(dtype: str, want: str, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Tolerance]:
    """What was got, what is expected, and the tolerance: errors near what is allowed, and pairs of special values."""
    tolerance = tolerance_for(dtype)
    if dtype[0] in "iu":
        info = (0, 2) if dtype == "i1" else (np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max)
        expected = rng.integers(*info, size, dtype=np.uint64 if dtype == "u64" else np.int64).astype(numpy_dtype(dtype))
        got = expected.copy()
        at = rng.integers(0, size, rng.integers(0, 3))
        bit = 1 if want == dtype or dtype == "i1" else 1 << 8 * got.itemsize - 2  # f64 has 53
        got[at] = got[at] ^ np.array(bit).astype(got.dtype)
        return got, expected.astype(numpy_dtype(want)), tolerance
    with np.errstate(all="ignore"):
        expected = (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3)).astype(numpy_dtype(want))
        limit = Expected("", expected, tolerance)
        true = widened(expected)
        scale = rng.choice([0.5, 1 - 1e-15, 1.0, 1 + 1e-15, 1 + 1e-6, 1.5], size, p=[0.9, 0.02, 0.02, 0.02, 0.02, 0.02])
        if rng.random() < 0.5:
            scale = np.minimum(scale, 1)
        allowed = limit.relative * np.abs(true) + limit.least
        got = (true + scale * rng.choice([-1, 1], size) * allowed).astype(numpy_dtype(dtype))
        if rng.random() < 0.7:
            places = rng.integers(0, size, 6)
            pairs = rng.choice(SPECIAL, (6, 2))
            same = rng.random(6) < 0.8
            got[places] = pairs[:, 0].astype(got.dtype)
            expected[places] = (
                np.where(same, pairs[:, 0], pairs[:, 1]).astype(numpy_dtype(dtype)).astype(expected.dtype)
            )
    return got, expected, tolerance


def wrong(got: np.ndarray, expected: Expected) -> int:
    """How many elements the rule refuses, written down once more, element by element."""
    count = 0
    for have, want in zip(got.reshape(-1), expected.values.reshape(-1), strict=True):
        if expected.exact:
            count += int(have) != int(want)
            continue
        x, y = float(have), float(want)
        same = x == y or (x != x and y != y)
        finite = abs(x) < np.inf and abs(y) < np.inf
        count += not (same or (finite and abs(x - y) / (abs(y) * expected.relative + expected.least) <= 1))
    return count


@pytest.mark.parametrize(("dtype", "want"), PAIRS)
def test_the_device_accepts_nothing_that_the_host_refuses(dtype: str, want: str) -> None:
    """And refuses nothing that is well within the tolerance. The kernel's code for the CPU stands for that of GPUs."""
    rng = np.random.default_rng(len(dtype) + len(want))
    verdicts = []
    for size in (1, 5, BLOCK, 3 * BLOCK + 7):
        for _ in range(12):
            got, values, tolerance = drawn(dtype, want, size, rng)
            expected = Expected("y", values, tolerance)
            if expected.exact and want != dtype:
                assert device_comparison(CPU, expected, dtype) is None
                continue
            host = expected.compare(got)
            assert host.ok == (wrong(got, expected) == 0)
            made = DeviceComparison(CPU, expected, dtype, programs=int(rng.integers(1, 4)))
            worst = made.worst(CPU.array(got))
            assert worst == pytest.approx(host.worst, rel=2**-50)
            assert host.ok or worst > comparison._ACCEPTED
            verdicts.append(host.ok)
    assert {True, False} == set(verdicts)


@pytest.mark.parametrize(("dtype", "want"), [("bf16", "bf16"), ("f16", "f64"), ("f32", "f32"), ("i32", "i32")])
def test_so_does_the_code_for_gpus(dtype: str, want: str) -> None:
    rng = np.random.default_rng(3)
    block, target, schedule = 256, Target.parse("cuda:90a"), Schedule()
    signature = {"got_ptr": f"*{dtype}:16", "want_ptr": f"*{want}:16", "errors_ptr": "*f64:16", "size": "i64"}
    signature |= {"period": "i64", "relative": "f64", "least": "f64"}
    constants = {"EXACT": dtype == "i32", "REPEATED": False, "BLOCK": block}
    tile = lower(own_source("largest_error"), signature, constants, target=target)
    function = optimize(tile)

    def compiled(denied: frozenset[Guard]) -> PtxProgram:
        return lower_to_llvm(lower_to_gpu(function, target, schedule, denied), target, schedule)

    verdicts = []
    for size in (1, 255, 256, 3 * block + 7):
        for _ in range(4):
            got, values, tolerance = drawn(dtype, want, size, rng)
            expected = Expected("y", values, tolerance)
            errors = np.full(2, np.nan)
            simulate_launch(compiled, (2,), [got, values, errors, size, size, expected.relative, expected.least])
            host = expected.compare(got)
            assert errors.max() == pytest.approx(host.worst, rel=2**-50)
            assert host.ok or errors.max() > comparison._ACCEPTED
            verdicts.append(host.ok)
    assert {True, False} == set(verdicts)


@pytest.mark.parametrize("dtype", ["u8", "u32", "u64"])
def test_what_is_repeated_is_wanted_again_and_again(dtype: str) -> None:
    """Also of a part that begins anywhere. The host counts what the device finds."""
    rng = np.random.default_rng(4)
    row = rng.integers(0, 200, 301).astype(numpy_dtype(dtype))
    array = Gpu().empty((3 * BLOCK + 8,), dtype).part(row.itemsize, (3 * BLOCK + 7,), dtype)
    untouched = Untouched(Gpu(), array, row)
    untouched.restore()
    assert untouched._there is not None and untouched._there.worst(array) == 0 and untouched.changed() == 0
    for place in (0, 300, 301, BLOCK, 3 * BLOCK + 6):
        array.numpy[[place, 7]] += 1
        assert untouched._there.worst(array) > 1 and untouched.changed() == 2
        untouched.restore()


def test_so_is_it_by_the_code_for_gpus() -> None:
    block, target, schedule = 256, Target.parse("cuda:90a"), Schedule()
    signature = {"got_ptr": "*u32", "want_ptr": "*u32:16", "errors_ptr": "*f64:16", "size": "i64"}
    signature |= {"period": "i64", "relative": "f64", "least": "f64"}
    constants = {"EXACT": True, "REPEATED": True, "BLOCK": block}
    function = optimize(lower(own_source("largest_error"), signature, constants, target=target))

    def compiled(denied: frozenset[Guard]) -> PtxProgram:
        return lower_to_llvm(lower_to_gpu(function, target, schedule, denied), target, schedule)

    row = np.arange(301, dtype=np.uint32)
    for wrong in (None, 0, 301, 3 * block + 6):
        got, errors = np.resize(row, 3 * block + 7), np.full(2, np.nan)
        if wrong is not None:
            got[wrong] += 1
        simulate_launch(compiled, (2,), [got, row, errors, got.size, row.size, 0.0, 1.0])
        assert errors.max() == (0 if wrong is None else np.inf)


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was compiled and probed is not kept for other tests."""
    kept = (comparison._compiled, comparison._sees_what_is_wrong)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("mask=at < size", "mask=at < size - 1"),
        ("mask=at < size", "mask=at < size // 1024 * 1024"),
        ('tl.where(ratio < float("inf"), ratio, float("inf"))', "ratio"),
        ("(have == true) |", "(have == true) | (have != have) |"),
        ("tl.num_programs(0).to(tl.int64) * BLOCK", "size"),
        ("largest = tl.maximum(largest, error)", "largest = error"),
        ("tl.max(largest, axis=0)", "tl.min(largest, axis=0)"),
        ("errors_ptr + tl.program_id(0)", "errors_ptr"),
    ],
)
def test_a_kernel_that_overlooks_something_is_not_used(
    monkeypatch: pytest.MonkeyPatch, forgetful: None, line: str, mistake: str
) -> None:
    """Whether it was written or compiled wrong: the host compares instead."""
    expected = Expected("y", np.zeros(10, np.float32), tolerance_for("f32"))
    assert device_comparison(CPU, expected, "f32") is not None
    text = own_kernel("largest_error.py", "largest_error").source
    assert line in text
    source = KernelSource.from_text(text.replace(line, mistake), "largest_error")
    monkeypatch.setattr(comparison, "own_source", lambda name: source)
    comparison._compiled.cache_clear()
    comparison._sees_what_is_wrong.cache_clear()
    assert device_comparison(CPU, expected, "f32") is None


class Gpu(type(CPU)):  # type: ignore[misc]
    """The CPU, said to be a GPU with so much memory."""

    def __init__(self, memory: int = 1 << 34) -> None:
        super().__init__()
        self.properties = DeviceProperties("fake", "cuda", memory_bytes=memory)


def test_only_what_the_device_refuses_comes_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    on_host = Expected.compare

    def compare(self: Expected, got: np.ndarray) -> Comparison:
        looked.append(self.name)
        return on_host(self, got)

    monkeypatch.setattr(Expected, "compare", compare)
    values = np.random.default_rng(0).standard_normal((7, 500)).astype(numpy_dtype("bf16"))
    expected = [Expected(name, values, tolerance_for("bf16")) for name in ("a", "b")]
    device = Gpu()
    arrays = {name: device.array(values) for name in ("a", "b")}
    judge = Judge(device, arrays, expected)
    assert judge.compare().ok and judge.compare().worst == 0 and not looked
    values = values.copy()
    values[3, 4] += 1
    arrays["b"].copy_from(values)
    found = judge.compare()
    assert looked == ["b"] and found.worst > 1
    assert "output 'b': 1 of 3500 elements are wrong; the worst at [3, 4]" in str(found.message)


def test_the_host_has_the_last_word() -> None:
    """An error of exactly what is allowed is within the tolerance, and no case for the device."""
    expected = Expected("y", np.zeros(100), Tolerance(atol=0.5, rtol=0.0))
    device = Gpu()
    array = device.array(np.full(100, 0.5))
    made = device_comparison(device, expected, "f64")
    assert made is not None and made.worst(array) == 1.0
    assert Judge(device, {"y": array}, [expected]).compare() == expected.compare(array.to_numpy())


def test_a_kernel_that_writes_into_what_is_expected_spoils_no_other_verdict() -> None:
    device = Gpu()
    values = np.arange(5000, dtype=np.float32)
    array = device.array(values)
    judge = Judge(device, {"y": array}, [Expected("y", values, tolerance_for("f32"))])
    there = judge._on_device["y"]
    there._want.copy_from(np.zeros_like(values))
    assert judge.compare().ok  # says the host
    array.copy_from(np.zeros_like(values))
    assert not judge.compare().ok
    array.copy_from(values)
    assert there.worst(array) == 0


def refuse(source: np.ndarray) -> None:
    raise DeviceError("the GPU has no memory left")


@pytest.mark.parametrize("reason", ["cpu", "memory", "allocation"])
def test_without_room_the_host_compares(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    values = np.ones(1000)
    device = CPU if reason == "cpu" else Gpu(31_000 if reason == "memory" else 32_000)
    array = device.array(values)
    if reason == "allocation":
        monkeypatch.setattr(device, "array", refuse)
    judge = Judge(device, {"y": array}, [Expected("y", values, EXACT)])
    assert not judge._on_device
    assert judge.compare().ok
    array.copy_from(np.where(np.arange(1000) == 999, np.nan, values))
    assert "1 of 1000 elements are wrong; the worst at [999]" in str(judge.compare().message)


def test_what_no_program_stored_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.ones(1000)
    made = DeviceComparison(CPU, Expected("y", values, EXACT), canonical_dtype(values.dtype))
    assert made.worst(CPU.array(values)) == 0
    monkeypatch.setattr(made._kernel, "run", lambda *arguments, **options: None)
    assert not made.worst(CPU.array(values)) <= 1
