"""Tiles that are no boxes of arrays, or whose arrays are no parameters, are brought ahead of products by threads."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Fetch, FetchTile, RingBuffer
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import emit_ptx
from simulator.memory import FIRST_ADDRESS

TARGETS = ("cuda:80", "cuda:90a")
#: The rows of A that a table names, as experts of a mixture take theirs.
ROWS = """
def rows(a, table, b, c, seen, count, K, sa, B: tl.constexpr):
    m, n, k = tl.arange(0, 32), tl.arange(0, 32), tl.arange(0, B)
    row = tl.load(table + m)
    kept = row < count
    a_at = a + row[:, None] * sa + k[None, :]
    b_at = b + k[:, None] * 32 + n[None, :]
    acc = tl.zeros((32, 32), tl.float32)
    for i in range(0, tl.cdiv(K, B)):
        x = tl.load(a_at, mask=kept[:, None] & (k[None, :] < K - i * B){other})
        y = tl.load(b_at, mask=k[:, None] < K - i * B, other=0.0)
        acc += tl.dot(x, y)
        a_at += {step}
        b_at += B * 32
        {more}
    tl.store(c + m[:, None] * 32 + n[None, :], acc)
"""
SIGNATURE = {"a": "*fp16:16", "table": "*i32:16", "b": "*fp16:16", "c": "*fp32:16", "seen": "*i32:16"}
SIGNATURE |= {"count": "i32", "K": "i32:16", "sa": "i32:16"}
#: What masked-off elements are, how far the loop moves, what else it does, and whether rows are brought ahead.
LOOPS = {
    "plain": (", other=0.0", "B", "pass", True),
    "without other": ("", "B", "pass", True),
    "another array is stored": (", other=0.0", "B", "tl.store(seen + i, i)", True),
    "ones beside": (", other=1.0", "B", "pass", False),
    "zeros with a sign beside": (", other=-0.0", "B", "pass", False),
    "rows that are read anew": (", other=0.0, volatile=True", "B", "pass", False),
    "a step in memory": (", other=0.0", "tl.multiple_of(tl.load(seen + 8), 32)", "pass", False),
}


def fetches(function: object) -> list[FetchTile]:
    return [op for op in function.walk() if isinstance(op, FetchTile)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("blocks", [0, 1, 2, 7])
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_that_a_table_names(
    from_text: Callable[..., object], run_function: Callable[..., object], target: str, name: str, blocks: int
) -> None:
    other, step, more, ahead = LOOPS[name]
    made = from_text(ROWS.format(other=other, step=step, more=more), SIGNATURE, {"B": 32})
    assert bool(fetches(made.gpu(target))) == ahead  # type: ignore[attr-defined]
    rng = np.random.default_rng(blocks)
    K = max(0, 32 * blocks - 16)
    a = rng.integers(-3, 4, (48, 240)).astype(np.float16)
    b = rng.integers(-3, 4, (max(K, 1), 32)).astype(np.float16)
    table = rng.permutation(60).astype(np.int32)[:32]
    seen = np.full(9, -1, np.int32)
    seen[8] = 32
    c = np.full((32, 32), 77, np.float32)
    run_function(made.tile(), (1,), [a, table, b, c, seen, 48, K, 240], 4, target)  # type: ignore[attr-defined]
    want = np.zeros((32, 32))
    for place, row in enumerate(table):
        held = a[row, :K].astype(np.float64) if row < 48 else np.full(K, 1.0 if "ones" in name else 0.0)
        want[place] = held @ b[:K]
    np.testing.assert_array_equal(c, want)
    assert (seen[:blocks] == np.arange(blocks)).all() == ("stored" in name or not blocks)


#: What masked-off elements are decides what is multiplied: 1 where it is -0.0, else 2.
SIGNED = """
def signed(a, b, c, M, K, B: tl.constexpr):
    m, n = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=m[:, None] < M, other={other})
        x = tl.where(1.0 / x.to(tl.float32) < 0.0, 1.0, 2.0).to(tl.float16)
        acc = tl.dot(x, tl.load(b + k[:, None] * 64 + n[None, :]), acc)
    tl.store(c + m[:, None] * 64 + n[None, :], acc)
"""


@pytest.mark.parametrize("other", ["-0.0", "0.0"])
@pytest.mark.parametrize("target", TARGETS)
def test_zeros_beside_keep_their_sign(
    from_text: Callable[..., object], run_function: Callable[..., object], target: str, other: str
) -> None:
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "M": "i32", "K": "i32:16"}
    made = from_text(SIGNED.format(other=other), signature, {"B": 64})
    rng = np.random.default_rng(0)
    a = rng.integers(1, 3, (50, 320)).astype(np.float16)
    b = rng.integers(-2, 3, (320, 64)).astype(np.float16)
    c = np.full((64, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, c, 50, 320], 4, target)  # type: ignore[attr-defined]
    left = np.full((64, 320), 2.0)
    left[50:] = 1.0 if other == "-0.0" else 2.0
    np.testing.assert_array_equal(c, left @ b.astype(np.float64))


#: Products of arrays whose addresses are numbers in memory; each may be what the one before has stored.
GROUPED = """
def grouped(data, table, sizes, groups, B: tl.constexpr):
    m, n, k = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :], tl.arange(0, B)
    for g in range(0, groups):
        a = tl.load(table + 3 * g).to(tl.pointer_type(tl.float16))
        b = tl.load(table + 3 * g + 1).to(tl.pointer_type(tl.float16))
        c = tl.load(table + 3 * g + 2).to(tl.pointer_type(tl.float16))
        size = tl.load(sizes + 2 * g)
        step = tl.load(sizes + 2 * g + 1)
        a_at = a + m * step + k[None, :]
        b_at = b + k[:, None] * 32 + n
        acc = tl.zeros((32, 32), tl.float32)
        for i in range(0, size // B):
            tl.multiple_of(a_at, [16, 16])
            tl.multiple_of(b_at, [16, 16])
            acc += tl.dot(tl.load(a_at), tl.load(b_at))
            a_at += B
            b_at += B * 32
        tl.store(c + m * 32 + n, acc.to(tl.float16))
"""
DESCRIBED = (
    GROUPED.replace("a + m * step + k[None, :]", "tl.make_tensor_descriptor(a, [32, size], [step, 1], [32, B])")
    .replace("b + k[:, None] * 32 + n", "tl.make_tensor_descriptor(b, [size, 32], [32, 1], [B, 32])")
    .replace("tl.load(a_at), tl.load(b_at)", "a_at.load([0, i * B]), b_at.load([i * B, 0])")
)
DESCRIBED = "\n".join(line for line in DESCRIBED.splitlines() if "multiple_of" not in line and "_at +=" not in line)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("text", [GROUPED, DESCRIBED], ids=["pointers", "descriptors"])
@pytest.mark.parametrize("target", TARGETS)
def test_arrays_whose_addresses_are_in_memory(
    from_text: Callable[..., object], run_function: Callable[..., object], target: str, text: str, stages: int
) -> None:
    signature = {"data": "*fp16:16", "table": "*i64:16", "sizes": "*i32:16", "groups": "i32"}
    made = from_text(text, signature, {"B": 32}, num_stages=stages)
    widths = [op.width for op in made.gpu(target).walk() if isinstance(op, Fetch)]  # type: ignore[attr-defined]
    assert set(widths) == ({16} if stages > 1 else set())
    rng = np.random.default_rng(stages)
    # B of each group is a permutation, so that numbers stay small; the A of a group is the C of the one before.
    first, b = rng.integers(-4, 5, (32, 96)).astype(np.float16), np.zeros((3, 96, 32), np.float16)
    sizes = [(96, 96), (32, 32), (32, 32)]
    for matrix, (size, _) in zip(b, sizes, strict=True):
        matrix[rng.permutation(size)[:32], np.arange(32)] = 1
    data = np.concatenate([first.ravel(), b.ravel(), np.full(3 * 1024, 77, np.float16)])
    results = 32 * 96 + b.size
    starts = [[0 if not g else results + 1024 * (g - 1), 32 * 96 + g * 3072, results + 1024 * g] for g in range(3)]
    table = FIRST_ADDRESS + 2 * np.array(starts, np.int64)
    run_function(made.tile(target), (1,), [data, table, np.array(sizes, np.int32), 3], 4, target, num_stages=stages)  # type: ignore[attr-defined]
    want = first.astype(np.float64)
    for g, (size, _) in enumerate(sizes):
        want = want @ b[g, :size]
        got = data[results + 1024 * g : results + 1024 * (g + 1)].reshape(32, 32)
        np.testing.assert_array_equal(got, want, err_msg=f"group {g}")


#: A loop over what the kernel itself has stored before.
STAGED = """
def staged(x, held, b, c, K, B: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, B)
    for i in range(0, K // B):
        at = (K // B - 1 - i) * B + k[None, :]
        tl.store(held + m[:, None] * K + at, tl.load(x + m[:, None] * K + at) * 2)
    acc = tl.zeros((64, 64), tl.float32)
    for i in range(0, K // B):
        left = tl.load(held + m[:, None] * K + i * B + k[None, :])
        right = tl.load(b + (i * B + k[:, None]) * 64 + n[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * 64 + n[None, :], acc)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_kernel_stored_before_a_loop_is_streamed_by_threads(
    from_text: Callable[..., object], run_function: Callable[..., object], target: str
) -> None:
    signature = dict.fromkeys(("x", "held", "b"), "*fp16:16") | {"c": "*fp32:16", "K": "i32:16"}
    made = from_text(STAGED, signature, {"B": 32})
    gpu = made.gpu(target)  # type: ignore[attr-defined]
    assert sum(isinstance(op, RingBuffer) for op in gpu.walk()) == 2
    # The copy engine may be ahead of the whole loop, and does not see what threads have just stored.
    assert {op.base.name for op in gpu.walk() if isinstance(op, Fetch) and op.descriptor >= 0} <= {"b"}
    rng = np.random.default_rng(0)
    x, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    held, c = np.full_like(x, 77), np.full((64, 64), 77, np.float32)
    run_function(made.tile(), (1,), [x, held, b, c, 128], 4, target)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(c, 2 * x.astype(np.float64) @ b)


#: One operand's rows are those that a table names, which threads copy; the copy engine brings the other one.
CHANGED = """
def changed(a, b, table, c, K):
    at = tl.arange(0, 64)
    m, n = {rows}, {columns}
    acc = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + n[None, :] * K + k[:, None])
        acc = tl.dot({x}, {y}, acc)
    tl.store(c + at[:, None] * 64 + at[None, :], acc)
"""


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("x", "y"), [("-x", "y"), ("x", "-y"), ("-x", "-y")])
@pytest.mark.parametrize("named", ["rows", "columns"])
def test_what_threads_read_of_the_copy_engine_is_fenced_when_the_product_is_done(
    from_text: Callable[..., object],
    run_function: Callable[..., object],
    named: str,
    x: str,
    y: str,
    dtype: type[np.floating],
) -> None:
    """Between a product of warp groups and the wait for it, ptxas 12.8 and 12.9 end by SIGSEGV at a proxy fence that no
    barrier follows."""
    name = "fp16" if dtype is np.float16 else "fp32"
    signature = dict.fromkeys(("a", "b"), f"*{name}:16") | {"table": "*i32:16", "c": "*fp32:16", "K": "i32:16"}
    places = dict.fromkeys(("rows", "columns"), "at") | {named: "tl.load(table + at)"}
    made = from_text(CHANGED.format(x=x, y=y, **places), signature)
    ptx = emit_ptx(made.program(), Target.parse("cuda:90a"))  # type: ignore[attr-defined]
    assert "cp.async.cg.shared.global" in ptx and "cp.async.bulk.tensor.2d.shared" in ptx
    flights = re.findall(r"wgmma\.commit_group.*?wgmma\.wait_group", ptx, re.DOTALL)
    assert flights and not any("fence.proxy" in flight for flight in flights)
    fenced = (y if named == "rows" else x).startswith("-")
    loops = re.findall(r"wgmma\.wait_group.*?\$L", ptx, re.DOTALL)
    assert any("fence.proxy" in after for after in loops) == fenced
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (64, 224)).astype(dtype) for _ in range(2))
    table, c = rng.permutation(64).astype(np.int32), np.full((64, 64), 77, np.float32)
    run_function(made.tile(), (1,), [a, b, table, c, 224])  # type: ignore[attr-defined]
    rows, columns = (a[table], b) if named == "rows" else (a, b[table])
    sign = (-1) ** (x[0] == "-") * (-1) ** (y[0] == "-")
    np.testing.assert_array_equal(c, sign * rows.astype(np.float64) @ columns.astype(np.float64).T)


#: Of three products the first reads a slot that threads read for the second, and the last one reads another.
SHARED = """
def shared(x, y, z, one, two, three, steps):
    a, b, c = tl.arange(0, 128), tl.arange(0, 32), tl.arange(0, 16)
    rows = tl.load(x + a[:, None] * 128 + a[None, :])
    few = tl.load(y + b[:, None] * 16 + c[None, :])
    first = tl.zeros((128, 32), tl.int32)
    second = tl.zeros((128, 16), tl.int32)
    third = tl.zeros((128, 16), tl.int32)
    for i in range(steps):
        moved = tl.load(z + (i * 32 + b)[:, None] * 128 + a[None, :])
        third = tl.dot(rows, tl.load(z + c[None, :] * 128 + a[:, None]), third)
        first = tl.dot(rows, tl.trans(moved), first)
        second = tl.dot(tl.trans(moved), few, second)
    tl.store(one + a[:, None] * 32 + b[None, :], first)
    tl.store(two + a[:, None] * 16 + c[None, :], second)
    tl.store(three + a[:, None] * 16 + c[None, :], third)
"""


@pytest.mark.parametrize("stages", [2, 4])
def test_a_slot_that_products_and_threads_read_is_fenced_when_all_products_are_done(
    from_text: Callable[..., object], run_function: Callable[..., object], stages: int
) -> None:
    signature = dict.fromkeys("xyz", "*i8:16") | dict.fromkeys(("one", "two", "three"), "*i32:16") | {"steps": "i32"}
    made = from_text(SHARED, signature, num_stages=stages)
    ptx = emit_ptx(made.program(), Target.parse("cuda:90a"))  # type: ignore[attr-defined]
    flights = re.findall(r"wgmma\.commit_group.*?wgmma\.wait_group\.sync\.aligned 0", ptx, re.DOTALL)
    assert flights and "fence.proxy" in ptx and not any("fence.proxy" in flight for flight in flights)
    rng = np.random.default_rng(stages)
    x, y, z = (rng.integers(-3, 4, shape).astype(np.int8) for shape in ((128, 128), (32, 16), (5 * 32, 128)))
    one, two, three = (np.full((128, columns), 77, np.int32) for columns in (32, 16, 16))
    run_function(made.tile(), (1,), [x, y, z, one, two, three, 5], num_stages=stages)  # type: ignore[attr-defined]
    steps = z.reshape(5, 32, 128).sum(0, dtype=np.int64)
    np.testing.assert_array_equal(one, x.astype(np.int64) @ steps.T)
    np.testing.assert_array_equal(two, steps.T @ y)
    np.testing.assert_array_equal(three, 5 * x.astype(np.int64) @ z[:16].T)


def test_programs_are_not_persistent_by_themselves_where_threads_copy(from_text: Callable[..., object]) -> None:
    text = ROWS.format(other=", other=0.0", step="B", more="pass").replace("32", "128").replace("float128", "float32")
    for persistent in (None, True):
        made = from_text(text, SIGNATURE, {"B": 64}, 8, persistent=persistent).gpu()  # type: ignore[attr-defined]
        assert fetches(made)
        assert made.recipe.persistent == bool(persistent)


#: A product of what other programs of the kernel have stored, block by block, each behind a flag.
FLAGGED = """
def flagged(x, held, flags, b, c, K, B: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, B)
    if tl.program_id(0) == 1:
        for i in range(0, K // B):
            at = i * B + k[None, :]
            tl.store(held + m[:, None] * K + at, tl.load(x + m[:, None] * K + at))
            tl.atomic_xchg(flags + i, 1, sem="release")
    else:
        acc = tl.zeros((64, 64), tl.float32)
        for i in range(0, K // B):
            {wait}
            left = tl.load(held + m[:, None] * K + i * B + k[None, :])
            right = tl.load(b + (i * B + k[:, None]) * 64 + n[None, :])
            acc = tl.dot(left, right, acc)
        tl.store(c + m[:, None] * 64 + n[None, :], acc)
"""


ASSEMBLY = (
    "tl.inline_asm_elementwise('{ .reg .pred p; W: ld.acquire.gpu.b32 $0, [$1]; setp.eq.s32 p, $0, 0; @p bra W; }',"
    " '=r,l', [flags + i], dtype=tl.int32, is_pure=False, pack=1)"
)
WAITS = [
    "while tl.atomic_add(flags + i, 0, sem='acquire') == 0: pass",
    "tl.load(flags + i, volatile=True)",
    ASSEMBLY,
]


@pytest.mark.parametrize("wait", WAITS, ids=["atomic", "volatile", "assembly"])
def test_what_a_loop_waits_for_is_not_fetched_ahead(from_text: Callable[..., object], wait: str) -> None:
    signature = dict.fromkeys(("x", "held", "b"), "*fp16:16") | {"flags": "*i32:16", "c": "*fp32:16", "K": "i32:16"}
    # Other programs may store the tiles, or the numbers that say where those are.
    told = FLAGGED.replace(
        "tl.store(held + m[:, None] * K + at, tl.load(x + m[:, None] * K + at))", "tl.store(x + i, i)"
    )
    told = told.replace("* K + i * B", "* K + tl.load(x + i).to(tl.int32) * B")
    for text in (FLAGGED, told):
        gpu = from_text(text.format(wait=wait), signature, {"B": 32}).gpu()  # type: ignore[attr-defined]
        fetched = [op for op in gpu.walk() if isinstance(op, Fetch)]
        assert {op.base.name for op in fetched} == {"b"}
        without = from_text(text.format(wait="pass"), signature, {"B": 32}).gpu()  # type: ignore[attr-defined]
        assert len({op.base.name for op in without.walk() if isinstance(op, Fetch)}) == 2


#: Each product is stored where the next one's rows are read: by a pointer that changes places with the one that reads,
#: or by one whose array only memory knows.
IN_TURN = """
def in_turn(x, y, b, table, count):
    m, n = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    reads = x + m * 32 + n
    writes = y + m * 32 + n
    for i in range(0, count):
        tl.store({to}, tl.dot(tl.load(reads), tl.load(b + m * 32 + n)).to(tl.float16))
        tl.debug_barrier()
        {step}
"""


@pytest.mark.parametrize(
    ("to", "step"),
    [
        ("writes", "reads, writes = writes, reads"),
        ("tl.load(table.to(tl.pointer_type(tl.pointer_type(tl.float16)))) + i * 1024 + m * 32 + n", "reads += 1024"),
    ],
    ids=["change places", "in memory"],
)
@pytest.mark.parametrize("target", TARGETS)
def test_what_the_loop_may_have_stored_is_not_fetched_ahead(
    from_text: Callable[..., object], run_function: Callable[..., object], target: str, to: str, step: str
) -> None:
    signature = dict.fromkeys(("x", "y", "b"), "*fp16:16") | {"table": "*i64:16", "count": "i32"}
    made = from_text(IN_TURN.format(to=to, step=step), signature)
    rng = np.random.default_rng(0)
    start = rng.integers(-3, 4, (32, 32)).astype(np.float16)
    x, y, b = np.zeros((6, 32, 32), np.float16), np.zeros((32, 32), np.float16), np.eye(32, dtype=np.float16)
    b, x[0] = b[rng.permutation(32)], start
    table = np.array([FIRST_ADDRESS + x[0].nbytes])  # the second matrix of x
    run_function(made.tile(target), (1,), [x, y, b, table, 5], 4, target)  # type: ignore[attr-defined]
    want = start.astype(np.float64) @ np.linalg.matrix_power(b.astype(np.float64), 5)
    np.testing.assert_array_equal(y if "writes" in to else x[5], want)


#: Tiles in the grouped order of Triton's tutorials, and columns that wrap at an N that is no multiple of a tile.
GROUPED = """
def grouped(a, b, c, M, N: tl.constexpr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid, columns, rows = tl.program_id(0), tl.cdiv(N, BN), tl.cdiv(M, BM)
    first = pid // (2 * columns) * 2
    size = min(rows - first, 2)
    pid_m = first + pid % (2 * columns) % size
    pid_n = pid % (2 * columns) // size
    m, n, k = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_at = a + (m % M)[:, None] * K + k[None, :]
    b_at = b + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        acc += tl.dot(tl.load(a_at), tl.load(b_at))
        a_at += BK
        b_at += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
"""


@pytest.mark.parametrize("rows", [32, 80, 96])
def test_columns_of_grouped_tiles_wrap_in_runs(
    from_text: Callable[..., object], run_function: Callable[..., object], rng: np.random.Generator, rows: int
) -> None:
    """A group has as many rows as are left, which is a positive number where there is a tile, though nothing says so:
    every column was copied by itself."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "M": "i32", "K": "i32:16"}
    made = from_text(GROUPED, signature, {"N": 80, "BM": 32, "BN": 64, "BK": 32})
    assert {fetch.vector for fetch in fetches(made.gpu())} == {8}
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((rows, 64), (64, 80)))
    c = np.full((rows, 80), 77, np.float32)
    run_function(made.tile(), (2 * -(-rows // 32),), [a, b, c, rows, 64])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
