"""Accuracy of the mathematical templates, measured in units in the last place, and their special values."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

import minimax
from deuteron.compiler.llvm import coefficients, driver, maths
from deuteron.compiler.llvm.text import FunctionText, ModuleText
from deuteron.compiler.llvm.typed import Emitter, Typed, vector_type

DTYPES = {"float": np.float32, "double": np.float64}


def build(name: str, element: str, lanes: int) -> Callable[[np.ndarray], np.ndarray]:
    """The template as a function on arrays; ``lanes`` 0 uses scalars."""
    machine = driver.host_machine()
    module = ModuleText(machine.triple, driver.data_layout(machine))
    function = FunctionText(module, "define void @f(ptr %x, ptr %out, i64 %n)")
    e = Emitter(function)
    function.do("br label %loop")
    function.label("loop")
    function.do("%i = phi i64 [ 0, %0 ], [ %next, %loop ]")
    x, out = (e.offset(Typed("ptr", p), Typed("i64", "%i"), element) for p in ("%x", "%out"))
    align = DTYPES[element]().itemsize
    e.store(maths.emit(e, name, e.load(vector_type(element, lanes), x, align)), out, align)
    function.do(f"%next = add i64 %i, {max(1, lanes)}")
    function.do("%more = icmp ult i64 %next, %n")
    function.do("br i1 %more, label %loop, label %end")
    function.label("end")
    function.do("ret void")
    loaded = driver.LoadedObject(driver.compile_text(str(module), machine, "object"))
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(loaded.address("f"))

    def run(x: np.ndarray) -> np.ndarray:
        padded = np.resize(x, -(-len(x) // 16) * 16).astype(DTYPES[element])
        found = np.empty_like(padded)
        entry(padded.ctypes.data, found.ctypes.data, len(padded))
        return found[: len(x)]

    run.keep = loaded  # type: ignore[attr-defined]
    return run


REFERENCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh,
    "exp10": lambda x: np.longdouble(10) ** x, "log10": np.log10, "atan": np.arctan,
    "erf": lambda x: np.array([math.erf(v) for v in x.astype(np.float64)], np.longdouble),
}  # fmt: skip


def samples(name: str, element: str) -> np.ndarray:
    """Arguments over the whole range of the function, dense where it is hard."""
    rng = np.random.default_rng(0)
    n = 4000
    wide = 37 if element == "float" else 300
    if name in ("log", "log2", "log10"):
        parts = [
            10.0 ** rng.uniform(-wide, wide, n),
            rng.uniform(0.6, 1.6, n),
            1 + rng.normal(0, 1e-4, n),
        ]
        parts.append(rng.uniform(1, 9, n) * (1e-40 if element == "float" else 1e-310))
    elif name in ("sin", "cos", "tan"):
        parts = [rng.uniform(-30, 30, n), rng.uniform(-1e6, 1e6, n), np.pi / 2 * np.arange(n)]
        parts.append(rng.uniform(-1, 1, n) * 10.0 ** rng.uniform(4, wide, n))
    else:
        largest = {"exp": 88, "exp2": 127, "exp10": 37, "tanh": 12, "erf": 5, "atan": 30}[name]
        if element == "double" and name.startswith("exp"):
            largest *= 8
        parts = [rng.uniform(-largest, largest, n), rng.normal(0, 1e-3, n)]
    return np.concatenate(parts).astype(DTYPES[element])


#: Largest errors in units in the last place. erf's reference in f64 is itself a rounded f64.
LIMITS = {"float": 2.0, "double": 5.0}
#: Of the tangent of f32.
LIMIT_OF_TAN = 3.0


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", maths.NAMES)
def test_accuracy(name, element, lanes):
    x = samples(name, element)
    exact = REFERENCES[name](x.astype(np.longdouble))
    found = build(name, element, lanes)(x)
    unit = np.spacing(np.abs(exact).astype(DTYPES[element])).astype(np.longdouble)
    error = np.abs(found.astype(np.longdouble) - exact) / unit
    worst = int(np.argmax(error))
    limit = LIMIT_OF_TAN if name == "tan" and element == "float" else LIMITS[element]
    assert error[worst] <= limit, (x[worst], found[worst], float(exact[worst]))


INF, NAN = math.inf, math.nan
SPECIAL = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (1e4, INF), (-1e4, 0)],
    "exp2": [
        (0.0, 1),
        (INF, INF),
        (-INF, 0),
        (NAN, NAN),
        (3.0, 8),
        (-1.0, 0.5),
        (2e3, INF),
        (-2e3, 0),
    ],
    "exp10": [(0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (2.0, 100), (400, INF), (-400, 0)],
    "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN), (1.0, 0)],
    "log2": [(0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (1.0, 0), (8.0, 3), (0.25, -2)],
    "log10": [(0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN), (1.0, 0), (100.0, 2)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, math.pi / 2), (-INF, -math.pi / 2), (NAN, NAN), (1.0, math.pi / 4)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (50.0, 1)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (30.0, 1)],
}


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", maths.NAMES)
def test_special_values(name, element, lanes):
    x, wanted = (np.array(v, DTYPES[element]) for v in zip(*SPECIAL[name], strict=True))
    found = build(name, element, lanes)(x)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


@pytest.mark.parametrize("name", sorted(minimax.FITS))
def test_f32_coefficients_come_from_the_fit(name):
    # Least squares may differ in the last bits between BLAS builds.
    np.testing.assert_allclose(minimax.fit(minimax.FITS[name]), getattr(coefficients, name), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("name", sorted(minimax.SERIES))
def test_f64_coefficients_come_from_the_series(name):
    expanded = minimax.expand(minimax.SERIES[name])
    np.testing.assert_allclose(expanded, getattr(coefficients, name), rtol=1e-3, atol=1e-12)


def test_digits_of_two_over_pi():
    assert minimax.two_over_pi() == list(coefficients.TWO_OVER_PI)
    assert coefficients.TWO_OVER_PI[0] == 0xA2F9836E4E441529  # the well-known beginning of 2/pi in hex
