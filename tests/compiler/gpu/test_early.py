"""Which rows come an iteration early: those beside products, and those of a recurrence."""

from __future__ import annotations

import pytest

from deuteron.compiler.tile.control import For

LOOP = """
def weighted(x, y, scale, out, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        a = tl.load(x + m * K + (start + k)[None, :])
        b = tl.load(y + (start + k)[:, None] * N + n[None, :])
        factors = tl.load(scale + start // B * N + n)
        total += tl.dot(a, b) * factors[None, :]
        # last
    tl.store(out + m * N + n[None, :], total)
"""
SIGNATURE = {"x": "*fp16:16", "y": "*fp16:16", "scale": "*fp32:16", "out": "*fp32:16", "K": "i32:16"}


def rows_before(made) -> int:
    """Loads of rows of factors outside of all loops: those of the first iteration."""
    inside = {op for loop in made.walk() if isinstance(loop, For) for op in loop.body.walk()}
    loads = [op for op in made.walk() if op.mnemonic == "gpu.load" and op not in inside]
    return sum(op.result.type.shape == (32,) for op in loads)


LONG = """scale + start // B * N + tl.arange(0, 1024))
        factors = tl.full((N,), tl.sum(factors), tl.float32)"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize(
    "old, new, early",
    [
        ("# last", "pass", True),
        ("# last", "tl.store(scale + n, factors)", False),
        ("# last", "tl.atomic_add(out + n, factors)", False),
        ("scale + start // B * N + n)", "scale + start // B * N + n, volatile=True)", False),
        ("start // B * N + n)", "tl.load(out + start).to(tl.int32) + n)", True),
        ("scale + start // B * N + n)", LONG, False),
    ],
    ids=["read only", "written", "atomics", "volatile", "place from memory", "long"],
)  # fmt: skip
def test_rows_that_nobody_changes_come_early(to_gpu, target: str, old: str, new: str, early: bool) -> None:
    text = LOOP.replace(old, new)
    assert text != LOOP or new == "pass"
    made = to_gpu(text, SIGNATURE, {"M": 64, "N": 32, "B": 32}, 4, target)
    assert rows_before(made) == int(early)


@pytest.mark.parametrize("hint, stages, early", [(0, 3, 1), (0, 1, 0), (1, 3, 0), (3, 1, 1)])
def test_rows_stay_where_authors_say_so(to_gpu, hint: int, stages: int, early: int) -> None:
    """Also in loops whose tiles could come early, which carry one and add up its rows."""
    text = LOOP.replace("range(0, K, B)", f"tl.range(0, K, B, num_stages={hint})")
    text = text.replace("# last", "total += tl.sum(total, 1)[:, None]")
    assert rows_before(to_gpu(text, SIGNATURE, {"M": 64, "N": 32, "B": 32}, 4, "cuda:90a", stages)) == early


STEPS = """
def steps(scale, out, K, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)
    state = tl.zeros((M, N), tl.float32)
    for step in range(K):
        row = tl.load(scale + step * N + n)
        state = state * row[None, :] + tl.sum(state, 1)[:, None]
        # last
    tl.store(out + m * N + n[None, :], state)
"""


@pytest.mark.parametrize(
    "old, new, early",
    [
        ("# last", "pass", True),
        ("# last", "tl.store(out + step * N + n, row)", True),
        ("# last", "tl.store(scale + n, row)", False),
        ("# last", "tl.debug_barrier()", False),
        ("in range(K)", "in tl.range(K, num_stages=1)", False),
        (" + tl.sum(state, 1)[:, None]", "", False),
    ],
    ids=["read only", "another array written", "written", "barrier", "in its place", "no sum"],
)
def test_rows_of_a_recurrence_come_early(to_gpu, old: str, new: str, early: bool) -> None:
    """Where threads wait for each other in each step, and so for memory."""
    text = STEPS.replace(old, new)
    assert text != STEPS
    signature = {name: SIGNATURE[name] for name in ("scale", "out")} | {"K": "i32"}
    assert rows_before(to_gpu(text, signature, {"M": 64, "N": 32}, 4, "cuda:90a")) == int(early)


STAGES = """
def stages(x, scale, out, K, N: tl.constexpr, STAGES: tl.constexpr):
    n = tl.arange(0, N)
    for step in tl.range(0, K, num_stages=STAGES):
        row = tl.load(scale + step * N + n)
        tl.store(out + step * N + n, row * tl.sum(row, 0))
"""


@pytest.mark.parametrize(
    ("stages", "columns", "where", "early"),
    [
        (1, 64, "out", 0),
        (2, 64, "out", 1),
        (4, 64, "out", 3),
        (4, 64, "scale", 0),
        (16, 512, "out", 8),
        (3, 2048, "out", 0),
    ],
)
def test_rows_come_as_many_iterations_early_as_there_are_stages_less_one(
    to_gpu, stages: int, columns: int, where: str, early: int
) -> None:
    """As far as there are registers: 128 threads, of which each has up to four numbers of a row."""
    text = STAGES.replace("tl.store(out", f"tl.store({where}")
    signature = {name: SIGNATURE[name] for name in ("x", "scale", "out")} | {"K": "i32"}
    made = to_gpu(text, signature, {"N": columns, "STAGES": stages}, 4, "cuda:90a")
    (loop,) = made.ops_of(For)
    assert len(loop.inits) == early
