"""The examples' kernels against float64 references at random, mostly ragged, shapes, on the CPU and on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """An example as a module; its ``harness`` is found beside it."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(EXAMPLES))


HARNESS = load("harness")
ADD, SOFTMAX, NORM, MATMUL, DROPOUT = (load(n) for n in ("vector_add", "softmax", "layer_norm", "matmul", "dropout"))
ATTENTION, RMS, SPLIT_K, EXPERTS = (load(n) for n in ("attention", "rms_norm", "split_k", "experts"))

on_devices = pytest.mark.parametrize(
    "device",
    [HARNESS.Device("cpu"), pytest.param(HARNESS.Device("cuda:0"), marks=pytest.mark.gpu)],
    ids=lambda d: d.name,
)
seeds = st.integers(0, 2**31)
#: Rows are one block, or several.
blocks = st.sampled_from([64, 1024, 16384])


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error relative to the largest element; NaN (an element never written) stays NaN."""
    return float(np.abs(found.astype(np.float64) - wanted).max() / max(1e-30, np.abs(wanted).max()))


@on_devices
@given(size=st.integers(1, 20_000), seed=seeds)
@settings(max_examples=12)
def test_vector_add(device, size: int, seed: int):
    x, y = np.random.default_rng(seed).standard_normal((2, size), dtype=np.float32)
    out = device.empty(size)
    ADD.add(device.array(x.copy()), device.array(y.copy()), out)
    assert error(device.numpy(out), x.astype(np.float64) + y) <= 1e-6


@on_devices
@given(rows=st.integers(1, 70), columns=st.integers(1, 3000), seed=seeds)
@settings(max_examples=10)
def test_softmax(device, rows: int, columns: int, seed: int):
    x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32) * 5
    out = device.empty((rows, columns))
    SOFTMAX.softmax(device.array(x), out, num_programs=16)
    assert error(device.numpy(out), SOFTMAX.reference(x)) <= 1e-5


@on_devices
@given(rows=st.integers(1, 40), columns=st.integers(2, 6000), longest=blocks, seed=seeds)
@settings(max_examples=8)
def test_layer_norm(device, rows: int, columns: int, longest: int, seed: int):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns), dtype=np.float32) * 3 + 1
    weight, bias = rng.standard_normal((2, columns), dtype=np.float32)
    out, mean, rstd = device.empty((rows, columns)), device.empty(rows), device.empty(rows)
    inputs = (device.array(v.copy()) for v in (x, weight, bias))
    NORM.layer_norm(*inputs, out, mean, rstd, longest=longest)
    assert error(device.numpy(out), NORM.reference(x, weight, bias)) <= 1e-4


@on_devices
@given(rows=st.integers(1, 20), columns=st.integers(1, 3000), longest=st.sampled_from([64, 256]), seed=seeds)
@settings(max_examples=8)
def test_softmax_of_rows_longer_than_a_block(device, rows: int, columns: int, longest: int, seed: int):
    x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32) * 5
    out = device.empty((rows, columns))
    SOFTMAX.softmax(device.array(x), out, longest=longest)
    assert error(device.numpy(out), SOFTMAX.reference(x)) <= 1e-5


@on_devices
@given(rows=st.integers(1, 20), columns=st.integers(2, 6000), longest=blocks, seed=seeds)
@settings(max_examples=8)
def test_softmax_backward(device, rows: int, columns: int, longest: int, seed: int):
    x, dy = np.random.default_rng(seed).standard_normal((2, rows, columns), dtype=np.float32)
    y = SOFTMAX.reference(x).astype(np.float32)
    dx = device.empty((rows, columns))
    SOFTMAX.softmax_backward(device.array(dy), device.array(y), dx, longest)
    assert error(device.numpy(dx), SOFTMAX.reference_backward(dy, y)) <= 1e-5


@st.composite
def gradients(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dy and x [rows, columns], and weight [columns], of a norm. From 16 columns on: in rows of one or two the terms of
    dx cancel, and nothing but rounding is left."""
    rows, columns = draw(st.integers(1, 90)), draw(st.integers(16, 6000))
    rng = np.random.default_rng(draw(seeds))
    x, dy = rng.standard_normal((2, rows, columns), dtype=np.float32) * 3 + 1
    return dy, x, rng.standard_normal(columns, dtype=np.float32)


@on_devices
@given(drawn=gradients(), longest=blocks)
@settings(max_examples=8)
def test_layer_norm_backward(device, drawn, longest: int):
    dy, x, weight = drawn
    rows, columns = x.shape
    statistics = (x.mean(axis=1), 1 / np.sqrt(x.astype(np.float64).var(axis=1) + 1e-5).astype(np.float32))
    inputs = (device.array(v) for v in (dy, x, weight, *statistics))
    outputs = [device.empty((rows, columns)), device.empty(columns), device.empty(columns)]
    partials = [device.empty((NORM.groups_of_rows(columns), columns)) for _ in range(2)]
    NORM.layer_norm_backward(*inputs, *outputs, partials, longest)
    for found, wanted in zip(outputs, NORM.reference_backward(dy, x, weight).values(), strict=True):
        assert error(device.numpy(found), wanted) <= 1e-4


@on_devices
@given(drawn=gradients(), longest=blocks)
@settings(max_examples=8)
def test_rms_norm(device, drawn, longest: int):
    dy, x, weight = drawn
    rows, columns = x.shape
    x_, dy_, weight_ = (device.array(v) for v in (x, dy, weight))
    y, dx = device.empty((rows, columns)), device.empty((rows, columns))
    rstd, dweight = device.empty(rows), device.empty(columns)
    RMS.rms_norm(x_, weight_, y, rstd, longest=longest)
    partials = device.empty((RMS.groups_of_rows(columns), columns))
    RMS.rms_norm_backward(dy_, x_, weight_, rstd, dx, dweight, partials, longest)
    assert error(device.numpy(y), RMS.reference(x, weight)) <= 1e-5
    for found, wanted in zip((dx, dweight), RMS.reference_backward(dy, x, weight).values(), strict=True):
        assert error(device.numpy(found), wanted) <= 1e-4


#: Blocks small enough that short sequences have whole and cut ones.
SMALL = {"BLOCK_M": 32, "BLOCK_N": 16}


@on_devices
@pytest.mark.parametrize(("dtype", "tolerance", "causal"), [("f16", 4e-3, True), ("bf16", 3e-2, False)])
@given(heads=st.integers(1, 3), length=st.integers(1, 130), d=st.sampled_from([64, 128]), seed=seeds)
@settings(max_examples=2)
def test_attention(device, dtype: str, tolerance: float, causal: bool, heads: int, length: int, d: int, seed: int):
    rng = np.random.default_rng(seed)
    kind = device.numpy(device.empty(1, dtype)).dtype
    q, k, v, d_out = rng.standard_normal((4, heads, length, d)).astype(kind)
    inputs = [device.array(x.copy()) for x in (q, k, v)]
    out, dq, dk, dv = (device.empty((heads, length, d), dtype) for _ in range(4))
    lse, delta = (device.empty((heads, length)) for _ in range(2))
    ATTENTION.forward(*inputs, out, lse, causal, SMALL)
    swapped = {"BLOCK_M": 16, "BLOCK_N": 32}
    ATTENTION.backward(*inputs, out, lse, device.array(d_out.copy()), delta, dq, dk, dv, causal, swapped, SMALL)
    wanted = ATTENTION.reference(q, k, v, d_out, causal)
    # One key has a constant probability: the gradients of its query and of itself are 0 but for rounding.
    scale = max(np.abs(w).max() for w in wanted.values())
    for name, found in {"out": out, "dq": dq, "dk": dk, "dv": dv}.items():
        difference = np.abs(device.numpy(found).astype(np.float64) - wanted[name]).max()
        assert difference <= tolerance * max(np.abs(wanted[name]).max(), scale / 8), name


@on_devices
@given(length=st.integers(1, 130), causal=st.booleans(), seed=seeds)
@settings(max_examples=6)
def test_fp8_attention(device, length: int, causal: bool, seed: int):
    """Probabilities are rounded to the four bits of e4m3 before they meet the values."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, 2, length, 64)).astype(ml_dtypes.float8_e4m3fn)
    out, lse = device.empty((2, length, 64), "bf16"), device.empty((2, length))
    ATTENTION.forward(*(device.array(x.copy()) for x in (q, k, v)), out, lse, causal, SMALL)
    assert error(device.numpy(out), ATTENTION.reference(q, k, v, v, causal)["out"]) <= 0.1


@on_devices
@given(m=st.integers(1, 40), n=st.integers(1, 150), k=st.integers(1, 900), split=st.sampled_from([1, 3, 8]), seed=seeds)
@settings(max_examples=10)
def test_split_k(device, m: int, n: int, k: int, split: int, seed: int):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = device.empty((m, n), "f16")
    SPLIT_K.matmul(device.array(a), device.array(b), c, device.empty((split, m, n)))
    assert error(device.numpy(c), a.astype(np.float64) @ b.astype(np.float64)) <= 2e-3


@on_devices
@given(
    tokens=st.integers(1, 70), top_k=st.integers(1, 3), n=st.integers(1, 90), k=st.integers(1, 100),
    busy=st.integers(1, 5), seed=seeds,
)  # fmt: skip
@settings(max_examples=10)
def test_experts(device, tokens: int, top_k: int, n: int, k: int, busy: int, seed: int):
    """Of five experts only ``busy`` have tokens."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, k)).astype(np.float16)
    w = rng.standard_normal((5, n, k)).astype(np.float16)
    chosen = rng.permutation(5)[rng.integers(0, busy, (tokens, top_k))]
    out = device.empty((tokens * top_k, n), "f16")
    EXPERTS.experts_product(device, device.array(x), device.array(w), out, chosen)
    wanted = np.einsum("tk,tcnk->tcn", x.astype(np.float64), w.astype(np.float64)[chosen])
    assert error(device.numpy(out), wanted.reshape(-1, n)) <= 2e-3


@on_devices
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
@given(m=st.integers(1, 200), n=st.integers(1, 200), k=st.integers(1, 150), seed=seeds)
@settings(max_examples=8)
def test_matmul(device, activation: str, m: int, n: int, k: int, seed: int):
    """With one config of the list: the search itself is not the subject."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = device.empty((m, n), "f16")
    plain = MATMUL.matmul_kernel.fn
    programs = -(-m // 64) * -(-n // 64)
    plain[(programs,)](
        *(device.array(a), device.array(b), c, m, n, k, k, 1, n, 1, n, 1),
        BLOCK_SIZE_M=64,
        BLOCK_SIZE_N=64,
        BLOCK_SIZE_K=32,
        GROUP_SIZE_M=4,
        ACTIVATION=activation,
    )
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    wanted = np.where(wanted >= 0, wanted, 0.01 * wanted) if activation else wanted
    assert error(device.numpy(c), wanted) <= 2e-3


@on_devices
@given(size=st.integers(1, 5000), seed=st.integers(0, 2**31 - 1), p=st.floats(0.1, 0.9))
@settings(max_examples=10)
def test_dropout_is_the_same_on_every_target(device, size: int, seed: int, p: float):
    """The mask comes from Philox: the float64 reference computes it with Python integers."""
    x = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    out = device.empty(size)
    DROPOUT.seeded_dropout(device.array(x), out, p, seed)
    checked = np.unique(np.linspace(0, size - 1, 50).astype(int))
    keep = np.array([uniform(seed, int(i)) > np.float32(p) for i in checked])
    wanted = np.where(keep, x[checked].astype(np.float64) / (1 - np.float32(p)), 0.0)
    assert error(device.numpy(out)[checked], wanted) <= 1e-5


def uniform(seed: int, offset: int) -> np.float32:
    """First number of Philox 4x32-10 for (seed, offset), as f32 in [0, 1)."""
    c, key = [offset, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        high_b, low_b = divmod(0xCD9E8D57 * c[2], 1 << 32)
        high_a, low_a = divmod(0xD2511F53 * c[0], 1 << 32)
        c = [high_b ^ c[1] ^ key[0], low_b, high_a ^ c[3] ^ key[1], low_a]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = c[0] - (1 << 32) if c[0] >= 1 << 31 else c[0]
    return np.float32(np.float32(-signed - 1 if signed < 0 else signed) * np.float32(4.6566127342e-10))
