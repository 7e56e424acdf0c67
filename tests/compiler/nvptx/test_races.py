"""No two threads touch the same byte without a barrier between: the simulator keeps watch, on kernels made for it.

And of threads that hold copies of an element one stores it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from deuteron.compiler.targets import interpreter
from simulator import simulate
from simulator.races import AccessLog

N = 256
SIGNATURE = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32"}
HEAD = "def k(x_ptr, y_ptr, n, N: tl.constexpr):\n    o = tl.arange(0, N)\n"

HAZARDS = {
    "a pointer that moves between iterations": """
        p = x_ptr + o
        for i in range(n):
            tl.store(p, tl.load(p) + 1)
            p += 1
    """,
    "an offset that grows with the iteration": """
        for i in range(n):
            tl.store(x_ptr + i + o, tl.load(x_ptr + i + o) + 1)
    """,
    "read at the end of one iteration, written at the start of the next": """
        total = tl.zeros((N,), tl.float32)
        for i in range(n):
            tl.store(x_ptr + o, total)
            total += tl.load(x_ptr + N - 1 - o) + 1
        tl.store(y_ptr + o, total)
    """,
    "written in the condition of a loop": """
        i = 0
        while tl.sum(tl.load(x_ptr + o), 0) * 0 + i < n:
            tl.store(x_ptr + N - 1 - o, tl.load(x_ptr + o) + 1)
            i += 1
    """,
    "read in the condition of a loop that waits in its body, written behind it": """
        i = 0
        while i + tl.load(x_ptr + 7).to(tl.int32) // 1000 < n:
            tl.debug_barrier()
            i += 1
        tl.store(x_ptr + o, 2.0)
    """,
    "scratch of a condition and of what is behind the loop": """
        v = tl.load(x_ptr + o)
        i = 0
        while i + tl.max(tl.cumsum(tl.reshape(tl.trans(tl.reshape(v, (16, 16))), (N,)), 0), 0) * 1e-9 < n:
            v = v + tl.reshape(tl.trans(tl.reshape(v, (8, 32))), (N,))
            i += 1
        tl.store(y_ptr + o, tl.reshape(tl.trans(tl.reshape(v + 1, (16, 16))), (N,)))
    """,
    "written in one branch, read after both": """
        if n > 2:
            tl.store(x_ptr + o, 2.0)
        tl.store(y_ptr + o, tl.load(x_ptr + N - 1 - o))
    """,
    "written before a loop that reads it last": """
        tl.store(x_ptr + o, 3.0)
        for i in range(n):
            y = tl.load(y_ptr + o)
            tl.store(y_ptr + o, y + tl.load(x_ptr + N - 1 - o))
    """,
    "scratch of the same operation, iteration after iteration": """
        for i in range(n):
            x = tl.load(x_ptr + o)
            tl.store(x_ptr + o, tl.reshape(tl.trans(tl.reshape(x, (16, 16))), (N,)))
    """,
    "scratch of a reduction and of a scan in one loop": """
        x = tl.load(x_ptr + o)
        for i in range(n):
            x = tl.cumsum(x / tl.sum(x, 0), 0)
        tl.store(y_ptr + o, x)
    """,
    "scratch of one scan, iteration after iteration": """
        x = tl.load(x_ptr + o)
        for i in range(n):
            x = tl.cumsum(x, 0, reverse=True) * 0.25
        tl.store(y_ptr + o, x)
    """,
    "an atomic after a store": """
        tl.store(x_ptr + o, 1.0)
        tl.atomic_add(x_ptr + (o + 1) % N, 2.0)
    """,
    "an atomic after a load": """
        tl.store(y_ptr + o, tl.load(x_ptr + o))
        tl.atomic_add(x_ptr + (o + 1) % N, 1.0)
    """,
    "a load after an atomic": """
        tl.atomic_add(x_ptr + (o + 1) % N, 1.0)
        tl.store(y_ptr + o, tl.load(x_ptr + o))
    """,
    "a store after an atomic": """
        tl.atomic_add(x_ptr + (o + 1) % N, 1.0)
        tl.store(x_ptr + o, 2.0)
    """,
    "an atomic in a loop that reads what it changed": """
        for i in range(n):
            tl.store(y_ptr + o, tl.load(x_ptr + o))
            tl.atomic_add(x_ptr + (o + 1) % N, 1.0)
    """,
    "a pointer chosen at run time, which may be any array's": """
        tl.store(x_ptr + o, 1.0)
        p = tl.where(o < n, x_ptr + (o + 1) % N, y_ptr + o)
        tl.store(y_ptr + N + o, tl.load(p))
    """,
}


def _check(from_text, simulated, text: str, warps: int) -> None:
    sample = from_text(text, SIGNATURE, {"N": N}, warps)
    arrays = [np.arange(2 * N, dtype=np.float32) % 7 + 1, np.ones(2 * N, np.float32)]
    wanted = [a.copy() for a in arrays]
    simulated(sample.program(), (1,), [*arrays, 3])
    interpreter.run(sample.tile(), (1,), [*wanted, 3])
    for here, there in zip(arrays, wanted, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-5)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("hazard", list(HAZARDS))
def test_a_hazard_has_its_barrier(from_text, simulated, hazard, warps) -> None:
    body = "\n".join(line.removeprefix("    ") for line in HAZARDS[hazard].strip("\n ").splitlines())
    _check(from_text, simulated, f"{HEAD}    {body}\n", warps)


class Author:
    """Writes a kernel of loads, stores, atomics and reductions at random offsets, in random loops and branches."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def place(self, loop: str) -> str:
        array = self.random.choice(["x_ptr", "x_ptr", "y_ptr"])
        offset = self.random.choice(["o", "o", "(o + 1) % N", "N - 1 - o", f"o + {loop}", f"(o + {loop}) % N"])
        return f"{array} + {offset}"

    def statement(self, loop: str) -> str:
        return self.random.choice(
            [
                f"v = tl.load({self.place(loop)})",
                f"v = tl.load({self.place(loop)}) * 0.5",
                f"tl.store({self.place(loop)}, v)",
                f"tl.store({self.place(loop)}, v * 0.25 + 1)",
                f"tl.atomic_add({self.place(loop)}, 1.0)",
                f"tl.store({self.random.choice(['x_ptr', 'y_ptr'])} + {loop}, 1.0)",
                "v = v - tl.max(v, 0)",
                "v = tl.reshape(tl.trans(tl.reshape(v, (16, 16))), (N,))",
            ]
        )

    def block(self, depth: int, loop: str = "0") -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randrange(2, 5)):
            kind = self.random.random()
            if depth and kind < 0.35:
                self.names += 1
                name = f"i{self.names}"
                lines += [f"for {name} in range(n):", *("    " + line for line in self.block(depth - 1, name))]
            elif depth and kind < 0.5:
                lines += [f"if n > {self.random.choice([2, 3])}:"]
                lines += ["    " + line for line in self.block(depth - 1, loop)]
            else:
                lines.append(self.statement(loop))
        return lines


@pytest.mark.parametrize("seed", range(24))
def test_random_kernels_have_all_their_barriers(from_text, simulated, seed) -> None:
    body = ["v = tl.load(x_ptr + o)", *Author(seed).block(2), "tl.store(y_ptr + N + o, v)"]
    _check(from_text, simulated, HEAD + "".join(f"    {line}\n" for line in body), 2)


@pytest.mark.parametrize("size, stores", [(1, 1), (64, 64), (256, 256)])
def test_an_element_is_stored_by_one_of_the_threads_that_hold_it(
    from_text, simulated, monkeypatch, size, stores
) -> None:
    """Counted in the simulated memory: 128 threads hold copies of a scalar and of small tiles."""
    text = """
def k(y_ptr, SIZE: tl.constexpr):
    if SIZE == 1:
        tl.store(y_ptr, 1.0)
    else:
        tl.store(y_ptr + tl.arange(0, SIZE), 1.0)
"""
    program = from_text(text, {"y_ptr": "*fp32:16"}, {"SIZE": size}).program()
    counted, write = [], AccessLog.write

    def count(log, indices, threads, changes) -> None:
        counted.append(indices.size // 4)
        write(log, indices, threads, changes)

    monkeypatch.setattr(AccessLog, "write", count)
    out = np.zeros(size, np.float32)
    simulate(program.llvm, (1,), [out], program.num_warps, program.shared_bytes)
    assert (out == 1).all()
    assert sum(counted) == stores
