"""Where barriers stand: none too many, and none missing (that is what the simulator's tests look for)."""

from __future__ import annotations

import itertools

import pytest

from deuteron.compiler.gpu.memory.barriers import Pending, _Inserter, insert_barriers
from deuteron.compiler.gpu.memory.lifetimes import ByteRange
from deuteron.compiler.gpu.memory.scratch import Allocation, allocate
from deuteron.compiler.gpu.ops import WarpBarrier
from deuteron.compiler.ir import Function
from deuteron.compiler.targets import Target
from deuteron.compiler.tile.control import For, While
from deuteron.compiler.tile.memory import Barrier
from deuteron.compiler.tile.reduction import Reduce

REDUCE_TWICE = """
def reduce_twice(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    x = x - tl.max(x, 0)
    tl.store(y_ptr + tl.arange(0, N), x / tl.sum(x, 0))
"""
POINTERS = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}


def _barriers(function: Function) -> int:
    return sum(isinstance(op, Barrier) for op in function.walk())


def test_scratch_of_neighbours_lies_apart_and_needs_no_barrier(to_gpu) -> None:
    function = to_gpu(REDUCE_TWICE, POINTERS, {"N": 1024})
    places = allocate(function, Target.parse("cuda:90a")).places
    first, second = (places[op] for op in function.walk() if isinstance(op, Reduce))
    assert not first.overlaps(second)
    assert _barriers(function) == 0


def test_small_scratch_lies_apart_too(to_gpu) -> None:
    """Scalars that atomics hand to all threads take 4 bytes each, at places of their own."""
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    a = tl.atomic_add(x_ptr, 1.0, sem="relaxed")
    b = tl.atomic_add(x_ptr + 1, 2.0, sem="relaxed")
    c = tl.atomic_add(x_ptr + 2, 2.0, sem="relaxed")
    tl.store(y_ptr + tl.arange(0, N), tl.arange(0, N) * a + b * c)
"""
    function = to_gpu(text, POINTERS, {"N": 256})
    places = list(allocate(function, Target.parse("cuda:90a")).places.values())
    assert [(place.start % 16, place.end - place.start) for place in places] == [(0, 4)] * 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(places, 2))
    assert _barriers(function) == 0


def test_scratch_in_one_place_needs_a_barrier_between(to_gpu) -> None:
    function = to_gpu(REDUCE_TWICE, POINTERS, {"N": 1024})
    reduces = [op for op in function.walk() if isinstance(op, Reduce)]
    same = Allocation(dict.fromkeys(reduces, ByteRange(0, 16)), 16)
    insert_barriers(function, same)
    assert _barriers(function) == 1


REDUCE_IN_LOOP = """
def reduce_in_loop(x_ptr, y_ptr, n, N: tl.constexpr):
    total = 0.0
    for i in range(n):
        x = tl.load(x_ptr + i * N + tl.arange(0, N))
        total += tl.max(x, 0)
    tl.store(y_ptr, total)
"""


def test_a_loop_waits_for_its_own_last_iteration(to_gpu) -> None:
    function = to_gpu(REDUCE_IN_LOOP, {**POINTERS, "n": "i32"}, {"N": 1024})
    assert _barriers(function) == 1


@pytest.mark.parametrize(
    "body, wanted",
    [
        # the same thread reads and writes the same element
        ("tl.store(x_ptr + o, tl.load(x_ptr + o) + 1)", 0),
        # another array
        ("tl.store(y_ptr + o, tl.load(x_ptr + (o + 1) % N))", 0),
        # an element that another thread reads
        ("tl.store(x_ptr + o, tl.load(x_ptr + (o + 1) % N))", 1),
        # written by one, read by another
        (
            "tl.store(x_ptr + o, o.to(tl.float32)); tl.store(y_ptr + o, tl.load(x_ptr + (o + 1) % N))",
            1,
        ),
        # read by all, written by one
        ("tl.store(x_ptr, tl.load(x_ptr) + 1)", 1),
        ("tl.debug_barrier(); tl.store(x_ptr + o, tl.load(x_ptr + (o + 1) % N))", 2),
        # neighbours of every third element
        ("tl.store(x_ptr + o * 3, 1.0); tl.store(x_ptr + o * 3 + 2, 2.0)", 0),
        ("tl.store(x_ptr + o * 3, 1.0); tl.store(x_ptr + o * 3 + 6, 2.0)", 1),
        # one behind the other, and one that reaches into the other
        ("tl.store(x_ptr + o, 1.0); tl.store(x_ptr + o + N, 2.0)", 0),
        ("tl.store(x_ptr + o, 1.0); tl.store(x_ptr + o + N - 1, 2.0)", 1),
        # rows whose distance is known only to be a multiple of 16
        ("p = tl.arange(0, 16); tl.store(x_ptr + p, 1.0); tl.store(x_ptr + s + p, 2.0)", 0),
        ("p = tl.arange(0, 256); tl.store(x_ptr + p, 1.0); tl.store(x_ptr + s + p, 2.0)", 1),
        ("p = tl.arange(0, 256); tl.store(x_ptr + p, 1.0); tl.store(x_ptr + n + p, 2.0)", 1),
        # halves of a row that masks keep apart
        ("tl.store(x_ptr + o, 1.0, mask=o < n); tl.store(x_ptr + n + o, 2.0, mask=o < n)", 0),
        ("tl.store(x_ptr + o, 1.0); tl.store(x_ptr + n + o, 2.0, mask=o < n)", 1),
        # the first thread stores all scalars, but every thread loads them
        ("tl.store(x_ptr, 1.0); tl.store(x_ptr + n, 2.0)", 0),
        ("tl.store(x_ptr, 1.0); tl.store(y_ptr, tl.load(x_ptr + n))", 1),
        ("tl.store(x_ptr, 1.0); tl.store(y_ptr, tl.load(x_ptr + 1))", 0),
        # of elements that several threads hold, one stores, and all load
        ("p = tl.arange(0, 16); tl.store(x_ptr + p, 1.0); tl.store(x_ptr + p, 2.0)", 0),
        ("p = tl.arange(0, 16); tl.store(x_ptr + p, 1.0); tl.store(y_ptr + p, tl.load(x_ptr + p))", 1),
        # atomics are in order among themselves
        ("tl.atomic_add(x_ptr + o, 1.0); tl.atomic_add(x_ptr + o + 1, 2.0)", 0),
        ("tl.atomic_add(x_ptr + o, 1.0); tl.store(y_ptr + o, tl.load(x_ptr + o + 1))", 1),
        ("tl.store(x_ptr + o + 1, 1.0); tl.atomic_add(x_ptr + o, 1.0)", 1),
    ],
)
def test_global_hazards(to_gpu, body, wanted) -> None:
    lines = "\n    ".join(part.strip() for part in body.split(";"))
    text = f"def k(x_ptr, y_ptr, n, s, N: tl.constexpr):\n    o = tl.arange(0, N)\n    {lines}\n"
    assert _barriers(to_gpu(text, {**POINTERS, "n": "i32", "s": "i32:16"}, {"N": 256})) == wanted


@pytest.mark.parametrize(
    "body, warps, wanted",
    [
        # the first warp stores what all of them hold
        ("tl.store(x_ptr + p, 1.0); tl.store(x_ptr + n + p, 2.0)", 4, (0, 1)),
        ("tl.store(x_ptr + p, 1.0); tl.store(x_ptr + n + p, 2.0); tl.store(x_ptr + 2 * n + p, 3.0)", 4, (0, 2)),
        ("tl.store(x_ptr + p, 1.0); tl.store(x_ptr + n, 2.0)", 4, (0, 1)),
        # two warps store a row of 64, and all of them load
        ("q = tl.arange(0, 64); tl.store(x_ptr + q, 1.0); tl.store(x_ptr + n + q, 2.0)", 4, (1, 0)),
        ("tl.store(x_ptr + p, tl.load(x_ptr + n + p))", 4, (1, 0)),
        # a barrier of the warp keeps nothing from other warps
        (
            "tl.store(x_ptr + p, 1.0); tl.store(x_ptr + n + p, 2.0); tl.store(y_ptr + p, tl.load(x_ptr + p))",
            4,
            (1, 1),
        ),
        (
            "tl.store(x_ptr + p, 1.0); tl.store(y_ptr + p, 1.0); tl.store(y_ptr + n + p, 2.0); "
            "tl.store(y_ptr + N + p, tl.load(x_ptr + p))",
            4,
            (1, 1),
        ),
        # a warp alone
        ("tl.store(x_ptr + o, tl.load(x_ptr + n + o))", 1, (0, 1)),
        ("for i in range(n):; ....tl.store(x_ptr + i + p, 1.0)", 4, (0, 1)),
    ],
)
def test_hazards_within_a_warp_take_its_own_barrier(to_gpu, body, warps, wanted) -> None:
    lines = body.replace(";", "\n   ").replace("....", "    ")
    head = "def k(x_ptr, y_ptr, n, N: tl.constexpr):\n    o = tl.arange(0, N)\n    p = tl.arange(0, 16)\n"
    function = to_gpu(f"{head}    {lines}\n", {**POINTERS, "n": "i32"}, {"N": 256}, warps)
    found = _barriers(function), sum(isinstance(op, WarpBarrier) for op in function.walk())
    assert found == wanted


@pytest.mark.parametrize(
    "body, wanted",
    [
        # every iteration has elements of its own
        ("tl.store(x_ptr + i * N + o, 1.0)", 0),
        ("tl.store(x_ptr + i * (N - 1) + o, 1.0)", 1),
        ("tl.store(x_ptr + i * n + o, 1.0, mask=o < n)", 0),
        ("tl.store(x_ptr + i * n + o, 1.0, mask=o <= n)", 1),
        ("tl.store(x_ptr + o, tl.load(x_ptr + o) + 1)", 0),
        # all threads load what one of them has stored, in no later iteration
        ("tl.store(x_ptr + i * 16 + p, tl.load(x_ptr + i * 16 + p) + 1)", 1),
        ("tl.store(x_ptr + i * 8 + p, tl.load(x_ptr + i * 8 + p) + 1)", 2),
        ("for j in range(n):; ....tl.store(x_ptr + i * N + o, j * 1.0)", 0),
        ("for j in range(n):; ....tl.store(x_ptr + (i * n + j) * N + o, 1.0)", 0),
        ("for j in range(n):; ....tl.store(x_ptr + i * N + j + o, 1.0)", 1),
        # an iteration of the outer loop reads what the one before wrote, none of the inner does
        ("for j in range(n):; ....tl.store(x_ptr + (2 * j + i) * N + o, tl.load(x_ptr + (2 * j + i + 1) * N + r))", 1),
        ("for j in range(n):; ....tl.store(x_ptr + (2 * j + i) * N + o, tl.load(x_ptr + (2 * j + i - 1) * N + r))", 1),
        ("for j in range(n):; ....tl.store(x_ptr + 2 * j * N + o, tl.load(x_ptr + (2 * j + 1) * N + r))", 0),
        ("for j in range(n):; ....tl.store(x_ptr + (j + i) * N + o, tl.load(y_ptr + (j + i - 1) * N + r))", 0),
        # what iterations of an inner loop did is, an iteration of the outer loop later, elsewhere
        (
            "for j in range(n):; ....tl.store(x_ptr + i * N + o, j * 1.0); "
            "for j in range(n):; ....tl.store(y_ptr + i * N + j + o, tl.load(x_ptr + i * N + o))",
            1,
        ),
    ],
)
def test_hazards_between_iterations(to_gpu, body, wanted) -> None:
    lines = body.replace(";", "\n       ").replace("....", "    ")
    head = "def k(x_ptr, y_ptr, n, N: tl.constexpr):\n    o = tl.arange(0, N)\n    p = tl.arange(0, 16)\n"
    text = f"{head}    r = N - 1 - o\n    for i in range(n):\n        {lines}\n"
    assert _barriers(to_gpu(text, {**POINTERS, "n": "i32"}, {"N": 256})) == wanted


def test_a_scalar_atomic_releases_what_all_threads_wrote(to_gpu) -> None:
    text = """
def k(x_ptr, lock_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 1.0)
    tl.atomic_xchg(lock_ptr, 1, sem="{sem}")
"""
    signature = {"x_ptr": "*fp32:16", "lock_ptr": "*i32:16"}
    for sem, wanted in (("release", 1), ("relaxed", 0)):
        assert _barriers(to_gpu(text.format(sem=sem), signature, {"N": 256})) == wanted


MANY_LOOPS = """
def many_loops(x_ptr, y_ptr, n, N: tl.constexpr, LOOPS: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for t in tl.static_range(LOOPS):
        for i in range(n):
            for j in range(n):
                total += tl.load(x_ptr + ((t * n + i) * n + j) * N + o)
    tl.store(y_ptr + o, total)
"""


def test_a_loop_more_takes_as_long_as_the_one_before(to_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses that are under way are told apart by the loops around them, and by no others."""
    found: list[int] = []
    join = Pending.join

    def counted(self: Pending, other: Pending) -> Pending:
        made = join(self, other)
        found.append(sum(map(len, made.touches.values())))
        assert found[-1] < 1000, "more of them at each loop"
        return made

    monkeypatch.setattr(Pending, "join", counted)
    most = []
    for loops in (3, 6, 12):
        found.clear()
        to_gpu(MANY_LOOPS, {**POINTERS, "n": "i32"}, {"N": 256, "LOOPS": loops})
        most.append(max(found))
    assert most[1] == 2 * most[0] and most[2] == 4 * most[0]


def nested(depth: int) -> str:
    """A kernel that adds in a nest of so many loops, and reads and writes at each level."""
    lines = ["def k(x_ptr, y_ptr, n, N: tl.constexpr):", "    o = tl.arange(0, N)"]
    for level in range(depth):
        indent = "    " * (level + 1)
        lines += [f"{indent}for i{level} in range(n):", f"{indent}    o += tl.load(x_ptr + o + i{level}).to(tl.int32)"]
        lines.append(f"{indent}    tl.store(y_ptr + o, 1.0)")
    return "\n".join(lines)


def test_a_level_more_of_a_nest_takes_few_more_looks(to_gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is looked at until nothing new is pending, inside others that are: thrice each would be 3^depth."""
    looks: list[int] = []
    turn = _Inserter._turn

    def counted(self: _Inserter, loop: For | While, entry: Pending) -> tuple[Pending, Pending]:
        looks.append(1)
        assert len(looks) < 1000
        return turn(self, loop, entry)

    monkeypatch.setattr(_Inserter, "_turn", counted)
    most = []
    for depth in (3, 6, 12):
        looks.clear()
        to_gpu(nested(depth), {**POINTERS, "n": "i32"}, {"N": 256})
        most.append(len(looks))
    assert most[2] < 5 * most[1] < 25 * most[0]


def test_what_was_stored_before_a_loop_is_read_in_all_of_its_iterations(to_gpu) -> None:
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(x_ptr + o, 1.0)
    for i in range(n):
        {body}
"""
    for body, wanted in (
        ("tl.store(y_ptr + o, tl.load(x_ptr + o))", 0),  # a thread reads its own
        ("tl.store(y_ptr + o, tl.load(x_ptr + i + o))", 1),
        ("tl.store(x_ptr + o + i * N, 2.0)", 0),
        ("tl.store(x_ptr + o + 1 + i * N, 2.0)", 1),
    ):
        assert _barriers(to_gpu(text.format(body=body), {**POINTERS, "n": "i32"}, {"N": 256})) == wanted, body
