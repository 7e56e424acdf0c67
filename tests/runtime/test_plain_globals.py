"""Globals that are no ``tl.constexpr`` are read by kernels where a knob says so, as under Triton's variable."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import KernelMismatch, UnknownName

ANNOTATED: tl.constexpr = 0.5
WIDTH = 3
NAME = "wide"
NOTHING = None
TABLE = np.arange(3)
LISTED = [1, 2]


@deuteron.jit
def scaled(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if NOTHING is None and NAME == "wide":
        tl.store(y + i, tl.load(x + i) * ANNOTATED + WIDTH)


@deuteron.jit
def of_an_array(y):
    tl.store(y, TABLE[0])


@deuteron.jit
def of_a_list(y):
    tl.store(y, LISTED[0])


@pytest.fixture
def arrays():
    return np.arange(4, dtype=np.float32), np.zeros(4, np.float32)


def test_they_are_refused_unless_the_knob_is_set(arrays):
    with pytest.raises(UnknownName, match="Cannot access global variable 'NOTHING'"):
        scaled[(1,)](*arrays, BLOCK=4)


@pytest.mark.parametrize("variable", ["DEUTERON_PLAIN_GLOBALS", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"])
def test_numbers_texts_and_none_are_compile_time_constants(variable, monkeypatch, arrays):
    monkeypatch.setenv(variable, "1")
    x, y = arrays
    scaled[(1,)](x, y, BLOCK=4)
    np.testing.assert_array_equal(y, x * 0.5 + 3)


def test_a_change_is_noticed(monkeypatch, arrays):
    with knobs.plain_globals.scope(True):
        scaled[(1,)](*arrays, BLOCK=4)
        monkeypatch.setitem(globals(), "WIDTH", 4)
        with pytest.raises(KernelMismatch, match="WIDTH"):
            scaled[(1,)](*arrays, BLOCK=4)


@pytest.mark.parametrize("kernel", [of_an_array, of_a_list], ids=lambda kernel: kernel.__name__)
def test_what_may_change_in_place_stays_refused(kernel, arrays):
    with knobs.plain_globals.scope(True), pytest.raises(UnknownName, match="Cannot access global variable"):
        kernel[(1,)](arrays[1])
