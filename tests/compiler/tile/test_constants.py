"""Constants: folded as C does, rounded once and as NumPy does, and casts between floats that lose nothing."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from operation_texts import HEAD, i32

from deuteron.compiler.ir import SCALARS, parse_function, verify
from deuteron.compiler.tile.formats import f8_bits
from deuteron.compiler.tile.passes import dce, fold
from deuteron.compiler.tile.passes.numbers import round_to


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("add", 1 << 31), ("mul", 7), ("int_div", -2), ("rem", -1), ("shl", -56), ("shr", -1),
    ],
)  # fmt: skip
def test_integer_constants_follow_c(body, value):
    operands = {"add": ((1 << 31) - 1, 1), "mul": (0x10000001, 7), "int_div": (-7, 3), "rem": (-7, 3),
                "shl": (-7, 3), "shr": (-7, 3)}[body]  # fmt: skip
    expected = {"add": -(1 << 31), "mul": 0x70000007}.get(body, value)
    text = "\n".join([HEAD + " {", i32("k", operands[0]), i32("j", operands[1]), f"%r = {body} %k %j : i32",
                      'print values=[%r] {prefix = "", hex = False}', "}"])  # fmt: skip
    (constant, _) = dce(fold(parse_function(text))).body.ops
    assert constant.value == expected


@given(
    value=st.one_of(st.floats(width=64), st.floats(width=32), st.floats(-500, 500)),
    name=st.sampled_from(["f16", "bf16", "f32", "f8e4m3", "f8e5m2"]),
)
def test_rounding_of_constants(value, name):
    dtypes = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16,
              "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
    got = round_to(value, SCALARS[name])
    with np.errstate(all="ignore"):
        if math.isnan(value):
            assert math.isnan(got)
            return
        # Of the neighbours of f32's answer one is nearest; ml_dtypes itself rounds f64 in two steps.
        if name in ("f16", "f32"):
            assert got == float(np.float64(value).astype(dtypes[name]))
        elif np.float64(np.float32(value)) == value:
            expected = float(np.float32(value).astype(dtypes[name]))
            if name.startswith("f8"):
                largest = float(ml_dtypes.finfo(dtypes[name]).max)
                if math.isnan(expected) or abs(expected) > largest:
                    expected = math.copysign(largest, value)
            assert got == expected
    assert math.copysign(1, got) == math.copysign(1, value)


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2"])
def test_every_finite_byte_of_an_8_bit_float_is_its_own_code(name):
    dtype = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}[name]
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    finite = {i: float(v) for i, v in enumerate(values) if np.isfinite(v)}
    assert len(finite) >= 248
    assert [f8_bits(v, SCALARS[name]) for v in finite.values()] == list(finite)
    largest = max(finite.values())
    for code in (f8_bits(math.inf, SCALARS[name]), f8_bits(largest * 9, SCALARS[name])):
        assert values[code] == largest
    assert np.isnan(values[f8_bits(math.nan, SCALARS[name])])


@given(value=st.floats(-400, 400, width=32), name=st.sampled_from(["f8e4m3", "f8e5m2"]))
def test_codes_of_8_bit_floats_round_to_nearest_even(value, name):
    dtype = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}[name]
    assert f8_bits(value, SCALARS[name]) == int(np.float32(value).astype(dtype).view(np.uint8))


FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
          "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}  # fmt: skip


def values_of(name: str) -> np.ndarray:
    """All finite values of a float of up to 16 bits; of wider ones many, small and large ones among them."""
    dtype = np.dtype(FLOATS[name])
    if dtype.itemsize <= 2:
        found = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    else:
        rng = np.random.default_rng(1)
        most = 1000 if name == "f64" else 120
        found = (rng.standard_normal(4096) * 2.0 ** rng.integers(-most, most, 4096)).astype(dtype)
    with np.errstate(invalid="ignore"):
        return found[np.isfinite(found.astype(np.float64))]


@pytest.mark.parametrize("middle", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_a_float_between_two_casts_goes_if_it_holds_all_values(source: str, middle: str) -> None:
    last = "f32" if middle == "f64" else "f64"
    if source == middle:
        return
    casts = [f'%s = cast %x {{to = type({middle}), rounding = "rtne"}} : {middle}',
             f'%r = cast %s {{to = type({last}), rounding = "rtne"}} : {last}']  # fmt: skip
    body = "\n".join([*casts, 'print values=[%r] {prefix = "", hex = False}'])
    made = verify(dce(fold(parse_function(f"func @f(%x: {source}) {{\n{body}\n}}\n"))))
    casts_left = [op for op in made.walk() if op.mnemonic == "cast" and op.result.type.scalar.code == middle]
    values = values_of(source)
    with np.errstate(all="ignore"):
        held = (values.astype(FLOATS[middle]).astype(np.float64) == values.astype(np.float64)).all()
    assert (not casts_left) == held


def nearest(value: int, places: int) -> int:
    """The nearest integer of so many binary places, the even one of two."""
    shift = max(0, abs(value).bit_length() - places)
    kept, rest = abs(value) >> shift, abs(value) & (1 << shift) - 1
    half = 1 << shift >> 1
    kept += rest > half or (rest == half != 0 and kept % 2)
    return (kept << shift) * (-1 if value < 0 else 1)


@given(
    top=st.integers(12, 62),
    odd=st.booleans(),
    beside=st.integers(-1, 1),
    sign=st.sampled_from([1, -1]),
    kind=st.sampled_from([("f32", 24), ("bf16", 8), ("f64", 53), ("f16", 11)]),
)
@example(top=60, odd=False, beside=1, sign=1, kind=("f32", 24))
@example(top=60, odd=True, beside=-1, sign=-1, kind=("f32", 24))
def test_integer_constants_are_rounded_once(top: int, odd: bool, beside: int, sign: int, kind: tuple[str, int]) -> None:
    """Near the middle between two floats; by way of f64 such a number may be in the middle itself."""
    code, places = kind
    top = min(top, 14) if code == "f16" else max(top, places)
    half = 1 << top - places
    value = sign * ((1 << top) + half * (1 + 2 * odd) + beside)
    body = f"""%k = constant {{value = {value}, type = i64}} : i64
    %r = cast %k {{to = type({code}), rounding = "rtne"}} : {code}
    print values=[%r] {{prefix = "", hex = False}}"""
    made = fold(parse_function(f"func @f() {{\n{body}\n}}\n"))
    constants = [op.value for op in made.walk() if op.mnemonic == "constant" and op.result.type.scalar.code == code]
    assert all(constant == nearest(value, places) for constant in constants)
