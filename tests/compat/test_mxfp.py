"""Microscaling formats as tensors of PyTorch's, against ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.errors import DeuteronError
from deuteron.tools.mxfp import MXFP4Tensor, MXScaleTensor, NoSuchDimension

torch = pytest.importorskip("torch")


def test_numbers_of_four_bits():
    rng = np.random.default_rng(0)
    ties = np.arange(-28, 29) / 4
    x = np.concatenate([ties, np.nextafter(ties, 9), np.nextafter(ties, -9), rng.normal(0, 3, 256), [1e30, -0.0]])
    x = np.concatenate([x.astype(np.float32), np.array([np.inf, -np.inf, np.nan], np.float32)])
    want = np.clip(np.nan_to_num(x, nan=6.0), -6, 6).astype(ml_dtypes.float4_e2m1fn)
    made = MXFP4Tensor(data=torch.tensor(x))
    assert made.data.tolist() == (want.view(np.uint8) & 0xF).tolist()
    np.testing.assert_array_equal(made.to(torch.float32).numpy(), want.astype(np.float32))
    assert sorted(set(MXFP4Tensor(size=(64, 32)).random().data.flatten().tolist())) == list(range(16))


@pytest.mark.parametrize(("shape", "dim"), [((6,), 0), ((3, 5), 1), ((5, 2), 0), ((2, 3, 4), 1)])
def test_two_numbers_a_byte(shape, dim):
    made = MXFP4Tensor(size=shape).random()
    packed = made.to_packed_tensor(dim)
    moved = np.moveaxis(made.data.numpy(), dim, 0)
    for i, byte in enumerate(np.moveaxis(packed.numpy(), dim, 0)):
        high = moved[2 * i + 1] if 2 * i + 1 < len(moved) else 0
        assert (byte == moved[2 * i] + 16 * high).all()
    assert torch.equal(made.unpack_packed_tensor(packed, dim, shape), made.data)
    with pytest.raises(NoSuchDimension, match="not within the range"):
        made.to_packed_tensor(len(shape))


def test_scales():
    x = np.array([1.0, 1.99, 2.0, 0.75, 2.0**-126, 3e38, 0.0, -1.0, math.inf, math.nan], np.float32)
    want = [127, 127, 128, 126, 1, 254, 255, 255, 255, 255]
    made = MXScaleTensor(data=torch.tensor(x))
    assert made.data.tolist() == want
    numbers = np.array(want, np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(made.to(torch.float32).numpy(), numbers)
    drawn = MXScaleTensor(size=500).random(low=0.25, high=4.0)
    assert set(drawn.to(torch.float32).tolist()) == {0.25, 0.5, 1.0, 2.0, 4.0}
    assert MXScaleTensor(size=(50, 100)).random().data.max() == 254
    for wrong in (lambda: drawn.random(low=8.0, high=4.0), lambda: drawn.to(torch.float16), MXScaleTensor):
        with pytest.raises(DeuteronError):
            wrong()


@pytest.mark.parametrize(
    ("low", "high", "drawn"),
    [
        (0.3, 0.3, {0.25}),
        (0.6, 0.9, {0.5}),
        (1 / 3, 3.0, {0.25, 0.5, 1.0, 2.0}),
        (0.99999997, 1.99999997, {0.5, 1.0}),
        (2.0**-127, 2.0**-127, {2.0**-127}),
        (2.0**127, 1e300, {2.0**127}),
    ],
)
def test_no_scale_is_above_the_highest(low, high, drawn):
    made = MXScaleTensor(size=200).random(low=low, high=high)
    assert set(made.to(torch.float32).tolist()) == drawn


@pytest.mark.parametrize("bounds", [{"low": 0}, {"low": -1}, {"high": 0.0}, {"high": math.inf}, {"low": math.nan}])
def test_bounds_of_scales_are_finite_and_above_zero(bounds):
    with pytest.raises(DeuteronError, match="no scale is"):
        MXScaleTensor(size=2).random(**bounds)
    with pytest.raises(DeuteronError, match="no scale is from"):
        MXScaleTensor(size=2).random(high=2.0**-128)
