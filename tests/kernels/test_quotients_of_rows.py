"""Quotients of rows that are spread over tiles, as convolutions compute addresses: threads share them out."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def unfold(x, out, W, N, ROWS: tl.constexpr, C: tl.constexpr):
    """Rows of an image, whose pixel is the quotient and the remainder of the row's number."""
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    y, z = place // W, place % W
    c = tl.arange(0, C)[None, :]
    tile = tl.load(x + z[:, None] * N + y[:, None] + c * W * N, mask=(place < N * W)[:, None])
    tl.store(out + place[:, None] * C + c, tile, mask=(place < N * W)[:, None])


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("width", [1, 3, 7, 16])
def test_pixels(launch, rng, width: int, warps: int) -> None:
    height, channels = 37, 8
    x = rng.standard_normal((channels, width, height)).astype(np.float32)
    out = np.zeros((height * width, channels), np.float32)
    grid = (-(-height * width // 128),)
    made = launch(unfold, grid, x, out, width, height, ROWS=128, C=channels, num_warps=warps)[1]
    np.testing.assert_array_equal(made, x.transpose(2, 1, 0).reshape(-1, channels))
