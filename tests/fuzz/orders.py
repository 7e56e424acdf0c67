"""Random programs that read and write one array through several tiles, on simulated GPUs.

    python tests/fuzz/orders.py --programs 2000 [--first SEED] [--jobs N] [--targets 80,90a,120]
    python tests/fuzz/orders.py --show SEED

Tiles of several shapes, and so of several layouts, lie at offsets that meet, or do not, or do for some arguments only;
masks and strides keep some of them apart, loops and branches stand around them. The interpreter says what the array
holds in the end; the simulator reports threads that run into each other because a barrier is missing. The suite runs
some dozens (tests/fuzz/test_orders.py).
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is
sys.path.append(str(Path(__file__).resolve().parent))

import sweep

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, interpreter, nvptx
from deuteron.compiler.tile.passes import optimize

TARGETS = ("80", "90a", "120")
LENGTH = 1 << 15
#: Run-time numbers. That s and w are multiples of 16 is known.
NUMBERS = {"h": 20, "k": 5, "n": 3, "s": 48, "w": 32}
SIGNATURE = {"x": "*i32:16", "h": "i32", "k": "i32", "n": "i32", "s": "i32:16", "w": "i32:16"}
#: Every shape has a variable, which loads add to and stores read.
SHAPES = {"a": (), "b": (8,), "c": (32,), "d": (128,), "e": (256,), "f": (8, 8), "g": (4, 32), "m": (16, 16)}
OFFSETS = ("0", "0", "0", "1", "2", "16", "h", "k", "s", "2 * s", "s + 1", "{size}", "{size} // 2", "512", "8192")
STEPS = ("{size}", "{size}", "1", "2", "k", "s", "w", "h", "1024", "4 * w")
#: Tiles whose elements lie apart: the rows and columns that strides and masks leave.
LINES = (
    ("o", ""),
    ("o", ""),
    ("o * 2", ""),
    ("o * 3", ""),
    ("o * s", ""),
    ("o * k", ""),
    ("o", "o < h"),
    ("o", "o >= 3"),
    ("o", "(o < s) & (o >= k)"),
    ("({size} - 1 - o)", ""),
)
TILES = (
    ("r * {columns} + c", ""),
    ("r * {columns} + c", ""),
    ("c * {rows} + r", ""),
    ("r * w + c", ""),
    ("r * s + c", "c < w"),
    ("r * k + c", "c < k"),
    ("r * h + c", "(c < h) & (r < k)"),
    ("c * s + r", ""),
    ("r * 64 + c * 2", ""),
    ("r * 64 + c", "r < k"),
)
HEADER = """import triton
import triton.language as tl


@triton.jit
def stored(row, values, i, n):
    tl.store(row, values)
    return i < n


"""


@dataclass
class Author:
    """Writes the lines of one kernel: ``shapes``, and how tiles lie (``styles``), are few, so that some accesses meet
    and others do not."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    names: int = 0
    shapes: list[str] = field(init=False)
    styles: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.shapes = self.rng.sample(list(SHAPES), self.rng.choice([1, 1, 2, 3]))
        self.styles = self.rng.choices(range(len(LINES)), k=self.rng.choice([1, 1, 2, 4]))

    def block(self, indent: int, depth: int, index: str = "") -> None:
        """Some statements; ``index``: what the innermost loop around them counts in."""
        for _ in range(self.rng.randint(2, 4)):
            kind = self.rng.choice(["access"] * 6 + ["for", "while", "if"]) if depth else "access"
            if kind == "access":
                self.access(indent, index)
            else:
                self.names += 1
                getattr(self, f"_{kind}")(indent, depth - 1, index, f"i{self.names}")

    def _for(self, indent: int, depth: int, _: str, counter: str) -> None:
        self.line(indent, f"for {counter} in range({self.rng.choice(['n', '0, 6, 2', '1, n', '0, k, 2'])}):")
        self.block(indent + 1, depth, counter)

    def _while(self, indent: int, depth: int, _: str, counter: str) -> None:
        """The condition may store, where the body may wait for it and others read behind the loop."""
        self.line(indent, f"{counter} = 0")
        row = f"x + {self.rng.choice(['0', '1', 'h', 's', '512'])} + tl.arange(0, 512)"
        stores = self.rng.random() < 0.5
        self.names += 1
        condition = f"stored({row}, {self.names} * 1000000 + tl.arange(0, 512), {counter}, n)"
        self.line(indent, f"while {condition if stores else f'{counter} < n'}:")
        self.block(indent + 1, depth, counter)
        if stores and self.rng.random() < 0.5:
            self.line(indent + 1, "tl.debug_barrier()")
        self.line(indent + 1, f"{counter} += 1")

    def _if(self, indent: int, depth: int, index: str, _: str) -> None:
        self.line(indent, f"if {index or 'k'} > {self.rng.choice(['1', 'h'])}:")
        self.block(indent + 1, depth, index)

    def access(self, indent: int, index: str) -> None:
        """A load or a store."""
        name = self.rng.choice(self.shapes)
        shape = SHAPES[name]
        address, mask, place = self.tile(shape)
        offset = self.rng.choice(OFFSETS)
        if index and self.rng.random() < 0.7:
            offset += f" + {index} * {self.rng.choice(STEPS)}"
        pointer = f"x + {offset} + {address}".format(size=math.prod(shape))
        if self.rng.random() < 0.4:
            self.line(indent, f"{name} += tl.load({pointer}{f', mask={mask}, other=0' if mask else ''})")
        else:
            self.names += 1  # what no other statement stores, and no other element
            value = f"{name} % 1000 + {place} * 1000 + {self.names} * 1000000"
            self.line(indent, f"tl.store({pointer}, {value}{f', mask={mask}' if mask else ''})")

    def tile(self, shape: tuple[int, ...]) -> tuple[str, str, str]:
        """Where the elements of a tile lie, which of them are meant, and a number for each."""
        if not shape:
            return "0", "", "0"
        style = self.rng.choice(self.styles)
        if len(shape) == 1:
            texts, names, place = LINES[style], {"o": f"tl.arange(0, {shape[0]})"}, "o"
        else:
            rows, columns = f"tl.arange(0, {shape[0]})[:, None]", f"tl.arange(0, {shape[1]})[None, :]"
            texts, names, place = TILES[style], {"r": rows, "c": columns}, f"(r * {shape[1]} + c)"
        sizes = {"size": math.prod(shape), "rows": shape[0], "columns": shape[-1]}
        spelled = [_with_names(text.format(**sizes), names) for text in (*texts, place)]
        return spelled[0], spelled[1], spelled[2]

    def line(self, indent: int, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * indent + text)


def _with_names(text: str, names: dict[str, str]) -> str:
    return "".join(names.get(part, part) for part in text.replace("(", "( ").replace(")", " )").split(" ") if part)


@dataclass(frozen=True)
class Program:
    """A kernel and the warps that run it."""

    text: str
    num_warps: int

    @property
    def source(self) -> KernelSource:
        """What the compiler takes."""
        return KernelSource.from_text(self.text, "kernel", "<made>")


def generate(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    author = Author(rng)
    for name, shape in SHAPES.items():
        author.line(1, f"{name} = tl.zeros({shape}, tl.int32)" if shape else f"{name} = h * 0")
    author.block(1, 2)
    kernel = f"def kernel({', '.join(SIGNATURE)}):\n" + "\n".join(author.lines) + "\n"
    return Program(f"{HEADER}@triton.jit\n{kernel}", rng.choice([1, 4, 8]))


def compiled(program: Program, arch: str) -> GpuFunction:
    """The program's GPU function."""
    function = optimize(lower(program.source, SIGNATURE, {}))
    return lower_to_gpu(function, Target.parse(f"cuda:{arch}"), Schedule(num_warps=program.num_warps))


def check(seed: int, targets: tuple[str, ...] = TARGETS) -> list[sweep.Mismatch]:
    """Run one program everywhere."""
    from simulator import simulate
    from simulator.values import SimulationError

    program, found = generate(seed), []
    given = np.random.default_rng(seed).integers(0, 1000, LENGTH).astype(np.int32)
    wanted = given.copy()
    interpreter.run(lower(program.source, SIGNATURE, {}), (1,), [wanted, *NUMBERS.values()])
    for target in targets:
        got = given.copy()
        try:
            where, schedule = Target.parse(f"cuda:{target}"), Schedule(num_warps=program.num_warps)
            made = nvptx.lower_to_llvm(compiled(program, target), where, schedule)
            simulate(made.llvm, (1,), [got, *NUMBERS.values()], made.num_warps, made.shared_bytes)
        except (DeuteronError, SimulationError) as error:
            found.append(sweep.Mismatch(seed, target, f"{type(error).__name__}: {error}"))
            continue
        if not np.array_equal(got, wanted):
            found.append(sweep.Mismatch(seed, target, f"WRONG at {np.flatnonzero(got != wanted)[:5].tolist()}"))
    return found


def show(seed: int) -> str:
    """The program of a seed, and how it is compiled."""
    program = generate(seed)
    return f"{program.text}\n# num_warps={program.num_warps}"


if __name__ == "__main__":
    sys.exit(sweep.sweep(__doc__, TARGETS, check, show))
