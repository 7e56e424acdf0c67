"""What functions of f32 take on GPUs."""

from __future__ import annotations

import pytest

import deuteron
import deuteron.language as tl

libdevice = tl.extra.cuda.libdevice
#: One a thread.
SIZE = 128


@deuteron.jit
def function(x, o, NAME: tl.constexpr):
    i = tl.arange(0, 128)
    f = tl.load(x + i)
    if NAME == "sin * cos":
        y = tl.sin(f) * tl.cos(f)
    elif NAME == "tan":
        y = libdevice.tan(f)
    elif NAME == "lgamma":
        y = libdevice.lgamma(f)
    elif NAME == "erfc":
        y = libdevice.erfc(f)
    elif NAME == "erfinv":
        y = libdevice.erfinv(f)
    tl.store(o + i, y)


def ptx_of(name: str) -> str:
    signature = {"x": "*fp32", "o": "*fp32"}
    made = deuteron.compile(function, signature, {"NAME": name}, target="cuda:90a", stop_after="ptx")
    return str(made.asm["ptx"])


@pytest.mark.parametrize("name", ["sin * cos", "tan"])
def test_circular_functions_of_one_number_reduce_it_once(name: str) -> None:
    body = ptx_of(name).split(".entry")[1]
    assert body.count("call.uni") == 1  # for large arguments alone
    assert "div." not in body


@pytest.mark.parametrize("name", ["lgamma", "erfinv", "erfc"])
def test_f32_of_libdevice_takes_neither_f64_nor_branches(name: str) -> None:
    ptx = ptx_of(name)
    assert "f64" not in ptx and ".func" not in ptx and "div." not in ptx and "bra" not in ptx
