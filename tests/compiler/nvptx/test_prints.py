"""Prints and asserts: which functions of the driver are called, and by which threads."""

from __future__ import annotations

import pytest


def test_print_and_assert_call_the_drivers_functions(from_text, check_ptx) -> None:
    text = """
def k(x_ptr, n, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_print("x", x)
    tl.device_print("n is", n)
    tl.device_assert(x > 0, "x must be positive")
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "n": "i32"}, {"N": 64}, debug=True)
    ptx = check_ptx(sample)
    assert "vprintf" in ptx and "__assertfail" in ptx


@pytest.mark.parametrize(
    "call, threads", [("'n is', n", "every"), ("'here'", "every"), ("'x', tl.load(x_ptr + tl.arange(0, 64))", "some")]
)
def test_every_thread_prints_what_is_no_tile(from_text, check_ptx, call, threads) -> None:
    text = f"""
def k(x_ptr, n):
    tl.device_print({call})
"""
    ptx = check_ptx(from_text(text, {"x_ptr": "*fp32:16", "n": "i32"}))
    assert ptx.count("vprintf, (") == 1
    assert ("bra" in ptx) == (threads == "some"), "128 threads have 64 elements"
