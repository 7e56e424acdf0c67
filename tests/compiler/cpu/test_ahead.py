"""What the next program will read is asked for: the very addresses that it reads, and nothing where they are not known.

Whether a processor obeys cannot be seen, so here each request becomes a call that writes its address down.
"""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu
from deuteron.compiler.tile.passes import optimize

LINE = 64
NOTED = """
@noted = global [65536 x i64] zeroinitializer
@count = global i64 0
define void @note(ptr %p, i32 %w, i32 %l, i32 %c) {
  %n = load i64, ptr @count
  %place = getelementptr i64, ptr @noted, i64 %n
  %address = ptrtoint ptr %p to i64
  store i64 %address, ptr %place
  %more = add i64 %n, 1
  store i64 %more, ptr @count
  ret void
}
"""
HEAD = """
import deuteron
import deuteron.language as tl

@deuteron.jit
def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
"""
ROW, COLUMNS = "tl.program_id(0)", "tl.arange(0, BLOCK)"


def reading(where: str, *before: str) -> str:
    """A body that sums what it reads at ``x_ptr + where``, after the lines ``before``."""
    lines = (*before, f"x = tl.load(x_ptr + {where})", "tl.store(y_ptr + tl.program_id(0), tl.sum(x, 0))")
    return "".join(f"    {line}\n" for line in lines)


def requests(body: str, x: np.ndarray, program: int, stride: int, block: int, grid=(8, 1, 1)) -> list[int]:
    """Addresses that one program of a kernel asks for, in order."""
    code = {"float32": "fp32", "float16": "fp16", "int8": "i8", "float64": "fp64"}[x.dtype.name]
    signature = {"x_ptr": f"*{code}", "y_ptr": "*fp32", "n": "i32", "stride": "i32"}
    function = lower(KernelSource.from_text(HEAD + body, "kernel"), signature, {"BLOCK": block})
    made = cpu.lower_to_llvm(optimize(function), Schedule())
    asked = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    if asked not in made.llvm:
        return []
    noting = made.llvm.replace(asked, NOTED).replace("@llvm.prefetch.p0", "@note")
    kernel = cpu.load(cpu.emit_object(dataclasses.replace(made, llvm=noting)), made.name)
    types = [parameter.value.type for parameter in function.parameters]
    y = np.zeros(4096, np.float32)
    kernel.launch_some([program], grid, [x.ctypes.data, y.ctypes.data, block, stride], types)
    count = ctypes.c_int64.from_address(kernel._object.data_address("count")).value
    return list((ctypes.c_int64 * count).from_address(kernel._object.data_address("noted")))


def lines_of(x: np.ndarray, first: int, count: int) -> list[int]:
    """Where the cache lines of ``count`` elements from ``first`` on begin, counted from that element."""
    begin = x.ctypes.data + first * x.itemsize
    return list(range(begin, begin + count * x.itemsize, LINE))


ROWS = {
    "a stride": reading(f"{ROW} * stride + {COLUMNS}"),
    "masked": reading("r * stride + c, mask=c < n, other=0.0", f"r, c = {ROW}, {COLUMNS}"),
    "a pointer that has moved": reading(COLUMNS, f"x_ptr += {ROW} * stride"),
    "in 64 bits": reading(f"r * stride + {COLUMNS}", f"r = {ROW}.to(tl.int64)"),
    "stride first": reading(f"(stride * {ROW} + {COLUMNS})"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("how", ROWS)
def test_the_next_row_is_asked_for(how, dtype):
    x = np.zeros(16 * 1100, dtype)
    asked = requests(ROWS[how], x, 3, 1100, 1024)
    assert sorted(set(asked)) == lines_of(x, 4 * 1100, 1024)


def test_rows_that_go_backwards():
    x = np.zeros(16 * 1100, np.float32)
    body = reading(f"(15 - {ROW}) * stride + {COLUMNS}")
    assert sorted(set(requests(body, x, 3, 1100, 1024))) == lines_of(x, 11 * 1100, 1024)


def test_several_rows_and_steps_that_add_up():
    x = np.zeros(64 * 300, np.float32)
    rows = f"({ROW} * 2 + tl.arange(0, 2))[:, None] * stride"
    body = reading(f"{rows} + {COLUMNS}[None, :] + {ROW} * 8").replace("tl.sum(x, 0)", "tl.sum(tl.sum(x, 0), 0)")
    wanted = lines_of(x, 8 * 300 + 4 * 8, 256) + lines_of(x, 9 * 300 + 4 * 8, 256)
    assert sorted(set(requests(body, x, 3, 300, 256))) == sorted(wanted)


def test_blocks_of_one_long_array():
    x = np.zeros(16 * 1024, np.float32)
    body = reading(f"{ROW} * BLOCK + {COLUMNS}")
    assert sorted(set(requests(body, x, 3, 0, 1024))) == lines_of(x, 4 * 1024, 1024)


NOTHING = {
    "rows that begin again": reading(f"r * stride + {COLUMNS}", f"r = ({ROW} + 5) % 7"),
    "rows by a table": reading(f"r * stride + {COLUMNS}", f"r = tl.load(y_ptr + {ROW}).to(tl.int32)"),
    "squares": reading(f"r * r * stride + {COLUMNS}", f"r = {ROW}"),
    "what all read": reading(COLUMNS),
    "another axis": reading(f"tl.program_id(1) * stride + {COLUMNS}"),
    "a loop that moves on": reading(
        f"offsets + {COLUMNS}", f"offsets = {ROW} * stride", "for i in range(n):", "    offsets += i"
    ),
    "every second element": reading(f"{ROW} * stride + 2 * {COLUMNS}"),
}


@pytest.mark.parametrize("how", NOTHING)
def test_where_the_next_program_reads_is_not_known_or_no_row(how):
    assert requests(NOTHING[how], np.zeros(64 * 1100, np.float32), 1, 1100, 1024) == []


@pytest.mark.parametrize(("block", "asks"), [(64, False), (128, True), (4096, True), (8192, False)])
def test_rows_that_share_pages_and_rows_that_fill_the_cache_are_left(block, asks):
    x = np.zeros(4 * 8192, np.float32)
    assert bool(requests(ROWS["a stride"], x, 1, 8192, block)) is asks
