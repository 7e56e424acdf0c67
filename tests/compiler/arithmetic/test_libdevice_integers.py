"""Bits, integers and reinterpretations of libdevice on every target, against Python's integers and struct."""

from __future__ import annotations

import numpy as np
import pytest

SIZE = 256


def of_bits(name):
    return 64 if name.endswith("64") else 32


def unsigned(x, name):
    return [int(v) & ((1 << of_bits(name)) - 1) for v in x]


ONE = {
    "popc": lambda v, bits: v.bit_count(),
    "clz": lambda v, bits: bits - v.bit_length(),
    "ffs": lambda v, bits: (v & -v).bit_length(),
    "brev": lambda v, bits: int(f"{v:0{bits}b}"[::-1], 2),
}


@pytest.mark.parametrize("type", ["i32", "u32", "i64", "u64"])
def test_bits(reference, run_on_target, type):
    x = reference.values(type, SIZE, np.random.default_rng(5))
    case = reference.Case(x=(type, x))
    for name, exact in ONE.items():
        wanted = np.array([exact(v, of_bits(type)) for v in unsigned(x, type)], object)
        made = type if name == "brev" else "i32"
        case.expect(f"libdevice.{name}(x)", reference.wrapped(wanted, made), made)
    assert not case.run(run_on_target)


TWO = {
    "mulhi": lambda a, b, bits: a * b >> bits,
    "hadd": lambda a, b, bits: (a + b) >> 1,
    "rhadd": lambda a, b, bits: (a + b + 1) >> 1,
}


@pytest.mark.parametrize("type", ["i32", "u32", "i64", "u64"])
def test_integers(reference, run_on_target, target, type):
    rng = np.random.default_rng(6)
    x, y = reference.values(type, SIZE, rng), rng.permutation(reference.values(type, SIZE, rng))
    case = reference.Case(x=(type, x), y=(type, y))
    for name, exact in TWO.items():
        if name == "mulhi" and target == "simulated" and of_bits(type) == 64:
            continue  # the simulator has no i128
        wanted = [exact(int(a), int(b), of_bits(type)) for a, b in zip(x, y, strict=True)]
        case.expect(f"libdevice.{name}(x, y)", reference.wrapped(np.array(wanted, object), type), type)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", ["i32", "u32"])
def test_integers_of_32_bits(reference, run_on_target, type):
    rng = np.random.default_rng(7)
    x, y = reference.values(type, SIZE, rng), rng.permutation(reference.values(type, SIZE, rng))
    z = rng.permutation(reference.values("u32", SIZE, rng))
    case = reference.Case(x=(type, x), y=(type, y), z=("u32", z))

    def low24(v):
        v = int(v) & 0xFFFFFF
        return v - (1 << 24) if type == "i32" and v >> 23 else v

    pairs = list(zip(x, y, z, strict=True))
    wanted = np.array([low24(a) * low24(b) for a, b, _ in pairs], object)
    case.expect("libdevice.mul24(x, y)", reference.wrapped(wanted, type), type)
    wanted = np.array([abs(int(a) - int(b)) + int(c) for a, b, c in pairs], object)
    case.expect("libdevice.sad(x, y, z)", reference.wrapped(wanted, type), type)
    permuted = []
    for a, b, c in zip(unsigned(x, type), unsigned(y, type), z, strict=True):
        source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
        permuted.append(int.from_bytes(bytes(source[int(c) >> 4 * i & 7] for i in range(4)), "little"))
    case.expect("libdevice.byte_perm(x, y, z)", reference.wrapped(np.array(permuted, object), "i32"), "i32")
    assert not case.run(run_on_target)


def test_the_same_bits(reference, run_on_target):
    rng = np.random.default_rng(8)
    i, u = (rng.integers(0, 2**32, SIZE, np.uint32).view(t) for t in (np.int32, np.uint32))
    w = rng.integers(0, 2**64, SIZE, np.uint64).view(np.int64)
    f, d = reference.values("f32", SIZE, rng), reference.values("f64", SIZE, rng)
    case = reference.Case(i=("i32", i), u=("u32", u), w=("i64", w), f=("f32", f), d=("f64", d))
    case.expect("libdevice.int_as_float(i)", i.view(np.float32), "f32")
    case.expect("libdevice.uint_as_float(u)", u.view(np.float32), "f32")
    case.expect("libdevice.longlong_as_double(w)", w.view(np.float64), "f64")
    case.expect("libdevice.float_as_int(f)", f.view(np.int32), "i32")
    case.expect("libdevice.float_as_uint(f)", f.view(np.int32), "i32")
    case.expect("libdevice.double_as_longlong(d)", d.view(np.int64), "i64")
    case.expect("libdevice.double2loint(d)", d.view(np.int64).astype(np.int32), "i32")
    case.expect("libdevice.double2hiint(d)", (d.view(np.int64) >> 32).astype(np.int32), "i32")
    made = (i.astype(np.int64) << 32 | i[::-1].view(np.uint32)).view(np.float64)
    assert not case.run(run_on_target)
    pair = reference.Case(i=("i32", i), j=("i32", i[::-1].copy()))
    pair.expect("libdevice.hiloint2double(i, j)", made, "f64")
    assert not pair.run(run_on_target)


@pytest.mark.parametrize(
    "expression", ["popc(x)", "brev(x)", "mulhi(x, x)", "hadd(x, 1)", "mul24(w, w)", "sad(w, w, 1)",
                   "byte_perm(w, 1, 2)",
                   "float_as_int(d)", "float2int_rn(d)", "int2float_rn(w)", "rsqrt_rn(d)"],
)  # fmt: skip
def test_types_that_a_function_has_not(reference, expression):
    from deuteron.compiler.errors import TypeMismatch

    name = expression.split("(")[0]
    with pytest.raises(TypeMismatch, match=f"libdevice.{name} takes"):
        reference.kernel([f"r0 = libdevice.{expression}"], {"x": "f32", "d": "f64", "w": "i64"}, ["i32"], 16)
