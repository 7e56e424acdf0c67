"""Random tile programs, compiled for every target and compared with NumPy.

    python tests/fuzz/tiles.py --programs 5000 [--first SEED] [--jobs N] [--targets tile,cpu,simulated,eager]
    python tests/fuzz/tiles.py --show SEED

A program loads tiles through arbitrary strides and masks, sends them through ten to twenty operations that move,
combine and order elements (permutations, reshapes, joins, sorts, gathers, reductions and scans of every axis, in loops
too) and stores what it made. Values are integers, also those of floating-point tiles, small enough that every order of
additions gives the same result: what differs from NumPy differs in meaning. The suite runs a few dozen
(tests/fuzz/test_tiles.py).
"""

from __future__ import annotations

import linecache
import random
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is
sys.path.append(str(Path(__file__).resolve().parent))

import sweep
from tile_operations import OPERATIONS, load
from tile_programs import (
    DTYPES,
    LENGTH,
    PROGRAMS,
    SHORT,
    Array,
    Place,
    Program,
    offsets_of,
    packed,
    permutation,
    value_size,
)

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.ir import verify
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, cpu, interpreter, nvptx
from deuteron.compiler.tile.passes import optimize

TARGETS = ("tile", "cpu", "simulated", "eager")


def generate(seed: int) -> Program:
    """The program of a seed."""
    p = Program(random.Random(seed), seed)
    while len(p.values) < 2:
        load(p)
    wanted = p.rng.randint(8, 20)
    for _ in range(200):
        if len(p.values) >= wanted:
            break
        p.rng.choice(OPERATIONS)(p)
    chosen = {p.values[-1], *p.rng.sample(p.values, min(3, len(p.values)))}
    for value in sorted(chosen, key=lambda value: value.index):
        p.stored.append((value, packed(value.shape, permutation(p, len(value.shape)))))
    p.num_warps, p.arch = p.rng.choice([1, 2, 4, 8]), p.rng.choice(["80", "90a", "120"])
    return p


# Running ------------------------------------------------------------------------------------------------------


def inputs(seed: int) -> dict[str, Array]:
    """Small integers of each type."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0 if name[0] == "u" else -40, 60, LENGTH).astype(kind) for name, kind in DTYPES.items()}


def blank(p: Program) -> list[Array]:
    return [np.full(PROGRAMS * value_size(value), 77, DTYPES[value.dtype]) for value, _ in p.stored]


def expected(p: Program, given: dict[str, Array]) -> list[Array]:
    """What the stores leave, by NumPy."""
    out = blank(p)
    for program in range(PROGRAMS):
        place, values = Place(program, given), list[Array]()
        with np.errstate(over="ignore"):
            for value, (meaning,) in zip(p.values, p.meanings, strict=True):
                found = np.asarray(meaning(values, place))
                assert found.shape == value.shape and found.dtype == DTYPES[value.dtype], (
                    value,
                    found.shape,
                    found.dtype,
                )
                values.append(found)
        for (value, strides), array in zip(p.stored, out, strict=True):
            size = value_size(value)
            array[program * size + offsets_of(value.shape, strides).reshape(-1)] = values[value.index].reshape(-1)
    return out


def signature(p: Program) -> dict[str, str]:
    names = list(SHORT.items()) + [(f"out{i}", SHORT[value.dtype]) for i, (value, _) in enumerate(p.stored)]
    return {**{f"{name}_ptr": f"*{kind}:16" for name, kind in names}, "three": "i32"}


def run(p: Program, target: str, given: dict[str, Array]) -> list[Array]:
    """What the stores leave on a target."""
    out = blank(p)
    arrays: list[Any] = [*(array.copy() for array in given.values()), *out, 3]
    launch(p, signature(p), target, arrays, Schedule(num_warps=p.num_warps))
    return out


class Generated(Protocol):
    """A random program."""

    seed: int
    arch: str

    @property
    def text(self) -> str: ...


def launch(p: Generated, types: dict[str, str], target: str, arrays: list[Any], schedule: Schedule) -> None:
    """Run the kernel of a program on a target, with arguments of ``types``."""
    grid = (PROGRAMS, 1, 1)
    if target == "eager":
        run_eagerly(p, arrays)
        return
    function = lower(KernelSource.from_text(p.text, "kernel", f"<seed {p.seed}>"), types, {})
    if target == "tile":
        verify(function)
        interpreter.run(function, grid, arrays)
    elif target == "cpu":
        code = cpu.lower_to_llvm(function := optimize(function), schedule)
        kernel = cpu.load(cpu.emit_object(code), code.name)
        scalars = [parameter.value.type for parameter in function.parameters]
        passed = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arrays]
        kernel.launch(grid, passed, scalars)
    else:
        from simulator import simulate

        where = Target.parse(f"cuda:{p.arch}")
        made = nvptx.lower_to_llvm(lower_to_gpu(optimize(function), where, schedule), where, schedule)
        simulate(made.llvm, grid, arrays, made.num_warps, made.shared_bytes)


def run_eagerly(p: Generated, arrays: list[Any]) -> None:
    """Under TRITON_INTERPRET: the kernel's own Python code."""
    import deuteron
    import deuteron.language as tl
    from deuteron.compiler import knobs

    name = f"<eager {p.seed}>"
    text = p.text.replace("import triton.language as tl\n", "").replace("import triton\n", "")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"triton": deuteron, "tl": tl}
    exec(compile(text, name, "exec"), names)
    with knobs.interpret.scope(True):
        names["kernel"][(PROGRAMS,)](*arrays)


def check(seed: int, targets: tuple[str, ...] = TARGETS) -> list[sweep.Mismatch]:
    """Run one program everywhere."""
    p, found = generate(seed), []
    given = inputs(seed)
    wanted = expected(p, given)
    for target in targets:
        try:
            got = run(p, target, given)
        except (DeuteronError, Exception) as error:
            found.append(sweep.Mismatch(seed, target, f"{type(error).__name__}: {error}"))
            continue
        for (value, _), have, want in zip(p.stored, got, wanted, strict=True):
            if not np.array_equal(have, want):
                found.append(
                    sweep.Mismatch(seed, target, f"WRONG {value.name} in {np.flatnonzero(have != want)[:5].tolist()}")
                )
                break
    return found


def show(seed: int) -> str:
    """The program of a seed, and how it is compiled."""
    program = generate(seed)
    return f"{program.text}\n# num_warps={program.num_warps}, sm_{program.arch}"


if __name__ == "__main__":
    sys.exit(sweep.sweep(__doc__, TARGETS, check, show))
