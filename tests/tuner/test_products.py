"""Products that a device takes for references, and the proof that they are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import DeviceError
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner.evaluate import products
from deuteron.tuner.evaluate.products import BLOCKS, LEAST_RATE, Multiplier, is_product, multiplier_for

CPU = get_device("cpu")
SIZES = st.integers(1, 2 * BLOCKS["BLOCK_M"] + 1)


def drawn(rows: int, columns: int, seed: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)) * scale


@given(SIZES, SIZES, SIZES, st.integers(0, 99))
def test_products_are_those_of_numpy(rows: int, columns: int, depth: int, seed: int) -> None:
    a, b = drawn(rows, depth, seed), drawn(depth, columns, seed + 1)
    multiplier = Multiplier(CPU, nullcontext, least=0)
    made = multiplier.of(a) @ b
    assert type(made) is np.ndarray and multiplier.taken == 1
    np.testing.assert_allclose(made, a @ b, rtol=1e-12, atol=1e-12)


def test_many_launches_take_all_rows_and_a_turn_each(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append("taken")
        yield

    a, b = drawn(5 * BLOCKS["BLOCK_M"] - 3, 40, 1), drawn(40, 70, 2)
    monkeypatch.setattr(products, "CHUNK_OPERATIONS", 2.0 * 70 * 40 * 2 * BLOCKS["BLOCK_M"])
    made = Multiplier(CPU, turn, least=0).product(a, b)
    np.testing.assert_allclose(made, a @ b, rtol=1e-12, atol=1e-12)
    assert len(turns) == 3


def test_everything_else_is_numpys() -> None:
    """Products of anything but float64 matrices, too; and what comes out is plain."""
    multiplier = Multiplier(CPU, nullcontext, least=0)
    a = drawn(20, 20, 3)
    ours = multiplier.of(a)
    for function in (np.exp, np.cumsum, lambda x: x - x.max(axis=1)[:, None], lambda x: x[0] @ x, lambda x: 2 * x):
        assert np.array_equal(function(ours), function(a))
    stacked = np.stack([a, a])
    assert np.array_equal(multiplier.of(stacked) @ stacked, stacked @ stacked)
    single = a.astype(np.float32)
    assert (multiplier.of(single) @ single).dtype == np.float32
    out = np.empty_like(a)
    np.matmul(ours, a, out=out)
    assert np.array_equal(out, a @ a)
    assert not multiplier.taken
    np.testing.assert_allclose(ours.T @ ours[:, ::2], a.T @ a[:, ::2], rtol=1e-12, atol=1e-12)
    assert multiplier.taken == 1


def test_small_products_stay_here() -> None:
    multiplier = Multiplier(CPU, nullcontext)
    a = drawn(30, 30, 4)
    assert np.array_equal(multiplier.of(a) @ a, a @ a) and not multiplier.taken


def test_the_host_takes_what_the_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DeviceError("out of memory")

    multiplier = Multiplier(CPU, nullcontext, least=0)
    a = drawn(30, 30, 5)
    monkeypatch.setattr(type(CPU), "empty", full)
    assert np.array_equal(multiplier.of(a) @ a, a @ a) and not multiplier.taken


def test_the_host_takes_what_the_device_gets_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Multiplier._taken

    def wrong(self: Multiplier, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        made = right(self, a, b)
        made[-1, -1] += 1e-6
        return made

    multiplier = Multiplier(CPU, nullcontext, least=0)
    a = drawn(70, 70, 6)
    monkeypatch.setattr(Multiplier, "_taken", wrong)
    assert np.array_equal(multiplier.of(a) @ a, a @ a) and not multiplier.taken


@given(SIZES, SIZES, SIZES, st.integers(0, 99), st.sampled_from([1e-30, 1.0, 1e12]))
def test_a_product_is_known_from_what_is_none(rows: int, columns: int, depth: int, seed: int, scale: float) -> None:
    a, b = drawn(rows, depth, seed, scale), drawn(depth, columns, seed + 1)
    c = a @ b
    assert is_product(a, b, c)
    for wrong in (np.nan, np.inf, c[0, 0] + 1e-9 * scale * np.sqrt(depth)):
        broken = c.copy()
        broken[seed % rows, seed % columns] = wrong
        assert not is_product(a, b, broken)
    if rows > 1:
        rolled = np.roll(c, 1, axis=0)
        assert not is_product(a, b, rolled)


def test_zeros_are_a_product() -> None:
    assert is_product(np.zeros((3, 4)), drawn(4, 5, 7), np.zeros((3, 5)))
    assert not is_product(np.zeros((3, 4)), drawn(4, 5, 7), np.full((3, 5), 1e-300))


def test_errors_that_cancel_in_a_row_are_seen() -> None:
    """By one vector of two: four miss it once in sixteen times."""
    a, b = drawn(40, 50, 8), drawn(50, 60, 9)
    c = a @ b
    c[:, 3] += 1
    c[:, 4] -= 1
    assert sum(is_product(a, b, c) for _ in range(200)) < 40


def test_only_devices_that_are_fast_in_float64_multiply() -> None:
    def device(name: str, capability: tuple[int, int], sms: int, mhz: int) -> DeviceProperties:
        return DeviceProperties(name, "cuda", sm_count=sms, clock_khz=mhz * 1000, compute_capability=capability)

    class Found:
        def __init__(self, properties: DeviceProperties) -> None:
            self.properties = properties

    fast = [device("H100", (9, 0), 132, 1980), device("A100", (8, 0), 108, 1410)]
    slow = [device("L40S", (8, 9), 142, 2520), device("B300", (10, 3), 148, 1900), device("new", (99, 0), 999, 9999)]
    assert all(multiplier_for(Found(each), nullcontext) for each in fast)  # type: ignore[arg-type]
    assert not any(multiplier_for(Found(each), nullcontext) for each in slow)  # type: ignore[arg-type]
    assert multiplier_for(CPU, nullcontext) is None
    assert LEAST_RATE < 1e13
