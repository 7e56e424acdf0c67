"""The exact fmod of code for GPUs, run on this processor, against the C library's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from deuteron.compiler.llvm import driver
from deuteron.compiler.llvm.remainder import emit_remainder
from deuteron.compiler.llvm.text import FunctionText, ModuleText
from deuteron.compiler.llvm.typed import Emitter, Typed

Array = np.ndarray
ELEMENTS = {np.float32: "float", np.float64: "double"}
COUNT = 1 << 20


@pytest.fixture(scope="module", params=ELEMENTS, ids=ELEMENTS.values())
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def fmod(dtype) -> Callable[[Array, Array], Array]:
    machine, element = driver.host_machine(), ELEMENTS[dtype]
    module = ModuleText(machine.triple, driver.data_layout(machine))
    function = FunctionText(module, "define void @f(ptr %x, ptr %y, ptr %out, i64 %n)")
    e = Emitter(function)
    function.do("br label %loop")
    function.label("loop")
    function.do("%i = phi i64 [ 0, %0 ], [ %next, %loop ]")
    x, y, out = (e.offset(Typed("ptr", p), Typed("i64", "%i"), element) for p in ("%x", "%y", "%out"))
    align = dtype().itemsize
    e.store(emit_remainder(e, e.load(element, x, align), e.load(element, y, align)), out, align)
    function.do("%next = add i64 %i, 1")
    function.do("%more = icmp ult i64 %next, %n")
    function.do("br i1 %more, label %loop, label %end")
    function.label("end")
    function.do("ret void")
    loaded = driver.LoadedObject(driver.compile_text(str(module), machine, "object"))
    pointer = ctypes.c_void_p
    entry = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int64)(loaded.address("f"))

    def run(x: Array, y: Array) -> Array:
        found = np.empty_like(x)
        entry(x.ctypes.data, y.ctypes.data, found.ctypes.data, len(x))
        return found

    run.keep = loaded  # type: ignore[attr-defined]
    return run


def patterns(dtype, rng) -> Array:
    """Bit patterns drawn evenly: every exponent, NaN and infinity among them."""
    bits = rng.integers(0, 1 << 64, COUNT, np.uint64)
    return bits.view(np.float64) if dtype is np.float64 else bits.astype(np.uint32).view(np.float32)


def with_near_exponents(dtype, rng) -> tuple[Array, Array]:
    """Quotients from below 1 to beyond the precision."""
    y = patterns(dtype, rng)
    power = rng.integers(-3, 60 if dtype is np.float64 else 30, COUNT)
    return np.ldexp(rng.uniform(1, 2, COUNT), power).astype(dtype) * y, y


def near_multiples(dtype, rng) -> tuple[Array, Array]:
    """Whole multiples of y, and their neighbours: quotients that are rounded to the next integer."""
    y = patterns(dtype, rng)
    multiple = np.rint(2.0 ** rng.uniform(0, np.finfo(dtype).nmant + 2, COUNT)).astype(dtype)
    x = multiple * y
    towards = rng.choice([-np.inf, np.inf], COUNT).astype(dtype)
    return np.where(rng.random(COUNT) < 0.7, np.nextafter(x, towards), x), y


def of_denormals(dtype, rng) -> tuple[Array, Array]:
    """Denormal divisors, of dividends of every size."""
    info = np.finfo(dtype)
    steps = np.floor(2.0 ** rng.uniform(0, info.nmant, COUNT))
    return patterns(dtype, rng), (steps * float(info.smallest_subnormal)).astype(dtype)


def just_below_one(dtype, rng) -> tuple[Array, Array]:
    y = patterns(dtype, rng)
    return np.nextafter(y, dtype(0)), y


def specials(dtype, rng) -> tuple[Array, Array]:
    """Every pair of the format's edges."""
    info = np.finfo(dtype)
    sides = [0, 1, 1.5, 3, info.smallest_subnormal, info.tiny, info.max, 2.0 ** (info.nmant + 1), np.inf]
    sides = np.array([*sides, *(-v for v in sides), np.nan], dtype)
    return tuple(np.ascontiguousarray(v.ravel()) for v in np.meshgrid(sides, sides))


@pytest.mark.parametrize(
    "sample",
    [
        lambda dtype, rng: (patterns(dtype, rng), patterns(dtype, rng)),
        with_near_exponents, near_multiples, of_denormals, just_below_one, specials,
    ],
    ids=["patterns", "near exponents", "near multiples", "denormals", "just below one", "specials"],
)  # fmt: skip
def test_bit_for_bit(dtype, fmod, sample):
    with np.errstate(all="ignore"):
        x, y = sample(dtype, np.random.default_rng(5))
        found, wanted = fmod(x, y), np.fmod(x, y)
    word = np.uint64 if dtype is np.float64 else np.uint32
    differs = (found.view(word) != wanted.view(word)) & ~(np.isnan(found) & np.isnan(wanted))
    i = int(np.argmax(differs))
    assert not differs.any(), f"fmod({x[i]!r}, {y[i]!r}) = {found[i]!r}, not {wanted[i]!r}; {differs.sum()} wrong"
