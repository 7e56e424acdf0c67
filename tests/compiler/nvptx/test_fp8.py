"""Floats of 8 bits, on the simulator against ml_dtypes: read, masked, and made with and without instructions for it."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from single_operations import DTYPES, UNARY

from deuteron.compiler.errors import UnsupportedOp


@pytest.mark.parametrize("to", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("source", ["i8", "u8", "fp8e4nv", "fp8e5"])
@pytest.mark.parametrize("turned", [False, True])
def test_every_byte_is_a_float(from_text, simulated, check_ptx, source: str, to: str, turned: bool) -> None:
    """Four at a time, whether they lie side by side or are those of a column; and never by an instruction that
    converts one integer."""
    sample = from_text(
        f"""
def k(x_ptr, y_ptr):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + {"j * 32 + i" if turned else "i * 32 + j"})
    tl.store(y_ptr + i * 32 + j, x.to(y_ptr.dtype.element_ty))
""",
        {"x_ptr": f"*{source}:16", "y_ptr": f"*{to}:16"},
        {},
    )
    x = np.tile(np.arange(256, dtype=np.uint8).view(DTYPES[source]), 4).reshape(32, 32)
    y = np.zeros((32, 32), DTYPES[to])
    with np.errstate(invalid="ignore"):
        simulated(sample, (1,), [x.T.copy() if turned else x, y])
    with np.errstate(invalid="ignore"):  # NaNs that signal
        wanted = x.astype(np.float64)
        np.testing.assert_array_equal(y.astype(np.float64), wanted)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(wanted))
    if source != "fp8e4nv":
        check_ptx(sample, "cuda:80")
    ptx = check_ptx(sample)
    assert not re.search(r"cvt\.rn\.\w+\.[su](8|16|32)", ptx)


def test_fp8_needs_sm_89(from_text) -> None:
    sample = from_text(
        UNARY.format(expression="tl.load(x_ptr + offs)"),
        {"x_ptr": "*fp32:16", "y_ptr": "*fp8e4nv:16"},
        {"N": 512},
    )
    with pytest.raises(UnsupportedOp, match="cuda:80 has no conversions of f8e4m3") as raised:
        sample.program("cuda:80")
    assert raised.value.location is not None
    assert "tl.store" in sample.source.line(raised.value.location)


E5M2 = """
def k(x_ptr, y_ptr, bits_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    y = tl.load(x_ptr + offs).to(tl.float8e5, fp_downcast_rounding="{rounding}")
    tl.store(y_ptr + offs, y)
    tl.store(bits_ptr + offs, y.to(tl.uint8, bitcast=True))
"""


def around_e5m2(source: str) -> np.ndarray:
    """All numbers of a type of 16 bits; of wider ones what lies at and beside the numbers of f8e5m2 and the middles
    between them, with each exponent of f32, in subnormal numbers the same places with fewer bits."""
    if DTYPES[source] not in (np.float32, np.float64):
        return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[source])
    heads = np.arange(512, dtype=np.uint32)[:, None, None] << 23
    places = np.arange(16, dtype=np.uint32)[None, :, None] << 19
    beside = np.array([0, 1, (1 << 19) - 1, 1 << 18], np.uint32)
    x = (heads + places + beside).ravel().view(np.float32)
    if DTYPES[source] == np.float32:
        return x
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        return np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf), wide * 2.0**-40])


def nearest_e5m2(x: np.ndarray, rounding: str) -> np.ndarray:
    """By ml_dtypes, which goes to infinity beyond the largest number."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        clipped = np.clip(wide, -57344.0, 57344.0)
        # By way of f16, rounded to odd, so that rounding twice is rounding once.
        half = clipped.astype(np.float16)
        half = np.where(np.abs(half.astype(np.float64)) > np.abs(clipped), np.nextafter(half, np.float16(0)), half)
        half = (half.view(np.uint16) | (half.astype(np.float64) != clipped)).view(np.float16)
        half = np.where(np.isnan(wide), np.float16(np.nan), half)
        made = half.astype(ml_dtypes.float8_e5m2)
        if rounding == "rtz":
            larger = np.abs(made.astype(np.float64)) > np.abs(wide)
            made = (made.view(np.uint8) - larger).astype(np.uint8).view(ml_dtypes.float8_e5m2)
            made = np.where(np.isinf(wide), wide.astype(ml_dtypes.float8_e5m2), made)
        return made


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("source", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("target", ["cuda:80", "cuda:86", "cuda:89"])
def test_float8e5_is_made_on_every_gpu(
    from_text, run_function, check_ptx, target: str, source: str, rounding: str
) -> None:
    """By instructions from sm_89 on, by integer arithmetic before; rounded once, and by the same rules."""
    types = {"x_ptr": f"*{source}:16", "y_ptr": "*fp8e5:16", "bits_ptr": "*u8:16"}
    sample = from_text(E5M2.format(rounding=rounding), types, {"N": 2048})
    ptx = check_ptx(sample, target)
    assert ("e5m2x2" in ptx) == (target == "cuda:89" and rounding == "rtne")
    x = around_e5m2(source)
    y, bits = np.zeros(x.size, ml_dtypes.float8_e5m2), np.zeros(x.size, np.uint8)
    with np.errstate(invalid="ignore"):  # NaNs that signal
        run_function(sample.tile(), (x.size // 2048,), [x, y, bits], 4, target)
    wanted = nearest_e5m2(x, rounding).astype(np.float64)
    for made in (y, bits.view(ml_dtypes.float8_e5m2)):
        np.testing.assert_array_equal(made.astype(np.float64), wanted)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(made)[known], np.signbit(wanted)[known])


@pytest.mark.parametrize("dtype", ["fp8e4nv", "fp8e5"])
@pytest.mark.parametrize("other", [0.0, -1.5, 1e6])
def test_what_a_masked_fp8_load_gives_beyond_its_mask(
    from_text, simulated, check_ptx, dtype: str, other: float
) -> None:
    sample = from_text(
        f"""
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < 200, other={other}))
""",
        {"x_ptr": f"*{dtype}:16", "y_ptr": f"*{dtype}:16"},
        {"N": 256},
    )
    x = np.linspace(-9, 9, 256).astype(DTYPES[dtype])
    y = np.full(256, np.nan, DTYPES[dtype])
    simulated(sample, (1,), [x, y])
    np.testing.assert_array_equal(y[:200], x[:200])
    wanted = min(other, float(ml_dtypes.finfo(DTYPES[dtype]).max))
    assert (y[200:].astype(np.float64) == wanted).all()
    check_ptx(sample)
