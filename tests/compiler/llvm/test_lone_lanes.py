"""Masked stores of one known lane become plain ones."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from deuteron.compiler.llvm import driver
from deuteron.compiler.llvm.lone_lanes import store_lone_lanes

DECLARED = "declare void @llvm.masked.store.v4i8.p0(<4 x i8>, ptr, <4 x i1>)\n"


def module(*calls: str) -> str:
    body = "\n".join(f"  call void @llvm.masked.store.v4i8.p0({call})" for call in calls)
    narrowed = "  %x = load <4 x i32>, ptr %from, align 4\n  %y = trunc <4 x i32> %x to <4 x i8>"
    return f"{DECLARED}define void @f(ptr %from, ptr %to) {{\n{narrowed}\n{body}\n  ret void\n}}\n"


def mask(*lanes: str) -> str:
    return f"<4 x i1> <{', '.join(f'i1 {lane}' for lane in lanes)}>"


def run(text: str) -> list[int]:
    loaded = driver.LoadedObject(driver.compile_text(text, driver.host_machine(), "object"))
    given, got = np.arange(4, dtype=np.int32) + 1, np.full(8, 99, np.uint8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("f"))(given.ctypes.data, got.ctypes.data)
    return [int(byte) for byte in got]


@pytest.mark.parametrize("lane", range(4))
def test_a_lone_lane_is_stored_as_narrow_as_it_is(lane):
    lanes = ["true" if i == lane else "false" for i in range(4)]
    wanted = [99] * 8
    wanted[lane] = lane + 1
    assert run(module(f"<4 x i8> %y, ptr align 1 %to, {mask(*lanes)}")) == wanted


def test_one_that_lies_anywhere_and_constants_are_stored_too():
    place = "ptr align 1 getelementptr (i8, ptr null, i64 40)"
    text = module(
        f"<4 x i8> <i8 1, i8 2, i8 3, i8 4>, {place}, {mask('false', 'poison', 'true', 'false')}",
        f"<4 x i8> splat (i8 7), ptr %to, {mask('true', 'false', 'false', 'false')}",
    )
    mended = store_lone_lanes(text)
    assert mended is not None
    assert "extractelement <4 x i8> <i8 1, i8 2, i8 3, i8 4>, i64 2" in mended
    assert "extractelement <4 x i8> splat (i8 7), i64 0" in mended
    assert "call" not in mended
    driver.compile_text(mended, driver.host_machine(), "object")


def test_other_masks_stay():
    calls = [f"<4 x i8> %y, ptr align 1 %to, {mask(*lanes)}" for lanes in (["true"] * 2 + ["false"] * 2, ["false"] * 4)]
    assert store_lone_lanes(module(*calls, "<4 x i8> %y, ptr align 1 %to, <4 x i1> splat (i1 true)")) is None
    assert run(module(calls[0])) == [1, 2, 99, 99, 99, 99, 99, 99]


def test_names_are_not_taken_twice():
    text = module(*[f"<4 x i8> %y, ptr %to, {mask('false', 'true', 'false', 'false')}"] * 3)
    names = re.findall(r"(%lone\S+) =", store_lone_lanes(text) or "")
    assert len(names) == len(set(names)) == 6
