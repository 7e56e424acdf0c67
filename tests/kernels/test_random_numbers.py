"""Random numbers of wide offsets: every bit of a 64-bit offset counts, and counters of 64 bits are Philox 4x64's."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl

#: The simulator of GPU code has no i128, which upper halves of 64-bit products are of.
WITHOUT_SIMULATOR = ["cpu", "python", "tile", "blocks", pytest.param("cuda", marks=pytest.mark.gpu)]
SEEDS = [0, -1, 2**40 + 5]
# Multipliers and Weyl constants as Random123 gives them, by the bits of a word.
CONSTANTS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


def published(counter: tuple[int, ...], key: tuple[int, int], bits: int) -> tuple[int, ...]:
    """Ten rounds of Philox in Python's integers."""
    word = 2**bits - 1
    a, b, weyl_a, weyl_b = CONSTANTS[bits]
    c0, c1, c2, c3 = (c & word for c in counter)
    k0, k1 = key
    for _ in range(10):
        left, right = a * c0, b * c2
        c0, c1, c2, c3 = right >> bits ^ c1 ^ k0, right & word, left >> bits ^ c3 ^ k1, left & word
        k0, k1 = k0 + weyl_a & word, k1 + weyl_b & word
    return c0, c1, c2, c3


@triton.jit
def wide_offsets(offsets, out, seed):
    at = tl.arange(0, 16)
    a, b, c, d = tl.randint4x(seed, tl.load(offsets + at))
    tl.store(out + at, a)
    tl.store(out + 16 + at, b)
    tl.store(out + 32 + at, c)
    tl.store(out + 48 + at, d)


@triton.jit
def wide_counters(offsets, out, seed):
    at = tl.arange(0, 16)
    offset = tl.load(offsets + at)
    a, b, c, d = tl.philox(seed, offset, offset * 0 + 3, offset * 0 - 1, offset)
    tl.store(out + at, a)
    tl.store(out + 16 + at, b)
    tl.store(out + 32 + at, c)
    tl.store(out + 48 + at, d)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_upper_word_of_an_offset_counts(launch, rng, seed) -> None:
    offsets = rng.integers(-(2**63), 2**63 - 1, 16)
    offsets[:4] = 0, 2**32, 2**33, -1
    *_, out, _ = launch(wide_offsets, (1,), offsets, np.zeros(64, np.uint32), seed)
    key = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    assert out.reshape(4, 16).T.tolist() == [list(published((o, o >> 32, 0, 0), key, 32)) for o in offsets.tolist()]


@pytest.mark.parametrize("launch", WITHOUT_SIMULATOR, indirect=True)
@pytest.mark.parametrize("seed", SEEDS)
def test_counters_of_64_bits_are_those_of_philox_4x64(launch, rng, seed) -> None:
    offsets = rng.integers(-(2**63), 2**63 - 1, 16)
    *_, out, _ = launch(wide_counters, (1,), offsets, np.zeros(64, np.uint64), seed)
    key = seed & 2**64 - 1, 0
    assert out.reshape(4, 16).T.tolist() == [list(published((o, 3, -1, o), key, 64)) for o in offsets.tolist()]


def test_the_reference_is_random123s() -> None:
    """Known answers for counter and key of zeros, from Random123's kat_vectors."""
    assert published((0,) * 4, (0, 0), 32) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert published((0,) * 4, (0, 0), 64)[:2] == (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC)
