"""Random programs over whole ranges of numbers, compiled for every target and compared with NumPy.

    python tests/fuzz/values.py --programs 5000 [--first SEED] [--jobs N] [--targets tile,cpu,simulated,eager]
    python tests/fuzz/values.py --show SEED

Elements of 13 types with the largest and smallest integers, infinities, NaN, -0 and subnormals go through ten to thirty
operations of mixed types: casts and bits, operators with numbers, wrapping sums, products and scans, computed
addresses, loops and branches. Every bit is compared, but for those of NaN. tests/fuzz/tiles.py has small integers and
moves them more. The suite runs a few dozen (tests/fuzz/test_values.py).
"""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent))

import sweep
import tiles
from tile_programs import Array, offsets_of, packed, permutation, pick
from value_operations import OPERATIONS, count, load
from value_programs import KINDS, PROGRAMS, Program, rules

from deuteron.compiler.options import Schedule


def generate(seed: int) -> Program:
    """The program of a seed."""
    p = Program(seed)
    with np.errstate(all="ignore"):
        for begin in (load, load, count):
            begin(p)
        wanted = len(p.values) + p.rng.randint(10, 30)
        for _ in range(400):
            if len(p.values) >= wanted:
                break
            p.rng.choice(OPERATIONS)(p)
    made = [value for value in p.values if value.name.startswith("v")]
    chosen = {made[-1], *p.rng.sample(made, min(5, len(made)))}
    for value in (value for value in made if value in chosen):
        mask = pick(p, lambda v, like=value: v.kind == "i1" and v.shape == like.shape) if p.rng.random() < 0.4 else None
        p.stored.append((value, packed(value.shape, permutation(p, len(value.shape))), mask))
    return p


def blank(p: Program) -> list[Array]:
    empty = [np.zeros(PROGRAMS * prod(value.shape), rules.NUMPY[value.kind]) for value, _, _ in p.stored]
    return [np.full_like(rules.in_memory(array), 77) for array in empty]


def expected(p: Program) -> list[Array]:
    """What the stores leave, by NumPy."""
    outs = blank(p)
    for program in range(PROGRAMS):
        for (value, strides, mask), out in zip(p.stored, outs, strict=True):
            at = (program * prod(value.shape) + offsets_of(value.shape, strides)).reshape(-1)
            kept = np.ones(len(at), bool) if mask is None else mask.array[program].reshape(-1)
            out[at[kept]] = rules.in_memory(value.array[program]).reshape(-1)[kept]
    return outs


def signature(p: Program) -> dict[str, str]:
    pointers = [(f"{kind}_ptr", kind) for kind in KINDS]
    pointers += [(f"out{i}", value.kind) for i, (value, _, _) in enumerate(p.stored)]
    made = {name: f"*{'i8' if kind == 'i1' else kind}:16" for name, kind in pointers}
    return made | {name: "i32:16" if number % 16 == 0 else "i32" for name, number in p.numbers.items()}


def run(p: Program, target: str) -> list[Array]:
    """What the stores leave on a target. Each operation rounds for itself."""
    outs = blank(p)
    arguments: list[Any] = [*(array.copy() for array in p.inputs.values()), *outs, *p.numbers.values()]
    schedule = Schedule(num_warps=p.num_warps, enable_fp_fusion=False)
    with np.errstate(all="ignore"):
        tiles.launch(p, signature(p), target, arguments, schedule)
    return outs


def check(seed: int, targets: tuple[str, ...] = tiles.TARGETS) -> list[sweep.Mismatch]:
    """Run one program everywhere."""
    p, found = generate(seed), []
    wanted = expected(p)
    for target in targets:
        try:
            got = run(p, target)
        except Exception as error:
            found.append(sweep.Mismatch(seed, target, f"{type(error).__name__}: {error}"))
            continue
        for (value, _, _), have, want in zip(p.stored, got, wanted, strict=True):
            with np.errstate(all="ignore"):
                bad = np.flatnonzero(rules.differing(have, want, steps=0))
            if len(bad):
                what = f"WRONG {value.name}, {value.kind}: {have[bad[0]]!r} instead of {want[bad[0]]!r}"
                found.append(sweep.Mismatch(seed, target, f"{what} in {bad[:5].tolist()}"))
                break
    return found


def show(seed: int) -> str:
    """The program of a seed, and how it is compiled."""
    program = generate(seed)
    return f"{program.text}\n# num_warps={program.num_warps}, sm_{program.arch}, {program.numbers}"


if __name__ == "__main__":
    sys.exit(sweep.sweep(__doc__, tiles.TARGETS, check, show))
