"""Random control flow, compiled for every target and compared with the same text run as plain Python.

    python tests/fuzz/control_flow.py --programs 20000 [--first SEED] [--jobs N] [--targets cpu,simulated,eager]

A program has a kernel, a helper that returns a value and one that returns a tuple. Early exits stand in every position:
in compile-time and run-time branches, in unrolled, counted and while loops, in helpers; variables are tensors, Python
numbers, tuples and compile-time sizes. It is written twice, in the kernel language and in Python with 64-bit
wrap-around, and run for four settings of its flags on eight inputs. The suite runs a few hundred programs
(tests/fuzz/test_fuzz.py).
"""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is
sys.path.append(str(Path(__file__).resolve().parent))

import sweep

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.ir import verify
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, cpu, interpreter, nvptx
from deuteron.compiler.tile.passes import optimize

INPUTS = np.array([-7, -2, -1, 0, 1, 2, 5, 40], np.int64)
SLOTS = 10
UNTOUCHED = -99
FLAGS = [(False, False), (True, False), (False, True), (True, True)]
TARGETS = ("tile", "cpu", "simulated", "eager")


# Generating ---------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """One function, written twice: ``device`` in the kernel language, ``python`` as its meaning."""

    rng: random.Random
    kind: str  # kernel, value or pair: what it returns
    device: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    names: int = 0
    returns_number: bool = False

    def line(self, indent: int, device: str, python: str | None = None) -> None:
        self.device.append("    " * indent + device)
        self.python.append("    " * indent + (device if python is None else python))

    def fresh(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def variable(self) -> str:
        return self.rng.choice("abc")

    def number(self) -> int:
        return self.rng.randint(-3, 4)

    def operand(self) -> str:
        return self.rng.choice([self.variable(), self.variable(), "x", "m", str(self.number())])

    def value(self) -> tuple[str, str]:
        """An i64 expression, as both texts."""
        v, w, n = self.variable(), self.operand(), self.number()
        kind = self.rng.randrange(9)
        if kind < 4:
            text = f"{v} {self.rng.choice('+-*')} {w}"
        elif kind == 4:
            text = f"{v} + {w} * {n}"
        elif kind == 5:
            return f"{v} // 3", f"quotient({v}, 3)"
        elif kind == 6:
            return f"{v} % 5", f"remainder({v}, 5)"
        elif kind == 7:
            text = f"{v} if {self.condition()} else {self.variable()} - {n}"
        else:
            text = f"-{v}"
        return text, f"wrap({text})"

    def condition(self) -> str:
        v, w, n = self.variable(), self.operand(), self.number()
        compare = f"{v} {self.rng.choice(['>', '<', '==', '!=', '>='])} {self.rng.choice([w, str(n)])}"
        return self.rng.choice([
            compare, compare, compare, "m > 1", f"x == {n}", f"x % 2 == 0 and {compare}", f"not {v} > {n}",
            f"F0 and {compare}", f"F1 or {compare}", "F0", "not F1", "F0 and F1", "F0 != F1",
        ])  # fmt: skip

    def body(self, indent: int, depth: int, loop: bool) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement(indent, depth, loop)

    def statement(self, indent: int, depth: int, loop: bool) -> None:
        chance = self.rng.random()
        if chance < 0.24:
            device, python = self.value()
            v = self.variable()
            self.line(indent, f"{v} = {device}", f"{v} = {python}")
        elif chance < 0.30:
            v, w = self.variable(), self.operand()
            self.line(indent, f"{v} += {w}", f"{v} = wrap({v} + {w})")
        elif chance < 0.40 and self.kind == "kernel":
            slot, v = self.rng.randrange(SLOTS), self.variable()
            self.line(indent, f"tl.store(out + {slot}, {v})", f"out[{slot}] = {v}")
        elif chance < 0.44:
            self.line(indent, self.rng.choice(["m += 1", "m = 2", "m = m - 1", "m = 0"]))
        elif chance < 0.50:
            self.tuples(indent)
        elif chance < 0.55:
            self.size(indent, depth, loop)
        elif chance < 0.62 and self.kind == "kernel":
            self.call(indent)
        elif chance < 0.70 and (depth or self.rng.random() < 0.5):
            self.exit(indent, loop)
        elif chance < 0.86 and depth < 3:
            self.branch(indent, depth, loop)
        elif depth < 2:
            self.loop(indent, depth)
        else:
            self.line(indent, "pass")

    def tuples(self, indent: int) -> None:
        v, w, name = self.variable(), self.variable(), self.fresh()
        kind = self.rng.randrange(3)
        if kind == 0:
            self.line(indent, f"{v}, {w} = {w}, {v}")
        elif kind == 1:
            self.line(indent, f"{name} = ({v}, {w}, x)")
            self.line(indent, f"{w} = {name}[{self.rng.randrange(3)}]")
        else:
            self.line(indent, f"p = ({v}, p[0])")
            self.line(indent, f"{w} = p[1] - p[0]", f"{w} = wrap(p[1] - p[0])")

    def size(self, indent: int, depth: int, loop: bool) -> None:
        """A compile-time size must stay one, whoever leaves before it is used."""
        name, v = self.fresh(), self.variable()
        self.line(indent, f"{name} = {self.rng.choice([2, 4])}")
        if self.rng.random() < 0.6:
            self.exit(indent, loop)
        self.line(indent, f"{v} = tl.sum(tl.full(({name},), 1, tl.int64) * {v})", f"{v} = wrap({name} * {v})")

    def call(self, indent: int) -> None:
        v, w = self.variable(), self.operand()
        if self.rng.random() < 0.6:
            call = f"value({self.variable()}, {w}, F0, F1)"  # a number where it returns one: x makes it an i64
            self.line(indent, f"{v} = {call} + x", f"{v} = wrap({call} + x)")
        else:
            self.line(indent, f"{v}, p = pair({self.variable()}, {w}, F1, F0)")

    def exit(self, indent: int, loop: bool) -> None:
        kinds = ["return"] + (["break", "continue"] * 2 if loop else [])
        text = self.rng.choice(kinds)
        device = python = text
        if text == "return" and self.kind == "value":
            device, python = (f"return {part}" for part in self.returned())
        elif text == "return" and self.kind == "pair":
            (d, p), (e, q) = self.returned(), self.value()
            first, second = self.variable(), self.variable()
            device, python = f"return {d}, ({e}, {first})", f"return {p}, ({q}, {first})"
            if self.rng.random() < 0.3:
                device = python = f"return {first}, ({second}, {first})"
        if self.rng.random() < 0.85:
            self.line(indent, f"if {self.condition()}:")
            indent += 1
        self.line(indent, device, python)

    def returned(self) -> tuple[str, str]:
        if self.kind == "value" and not self.returns_number and self.rng.random() < 0.2:
            self.returns_number = True  # a second one would meet the first as i32, which then does not meet an i64
            number = str(self.number())
            return number, number
        return self.value()

    def branch(self, indent: int, depth: int, loop: bool) -> None:
        self.line(indent, f"if {self.condition()}:")
        self.body(indent + 1, depth + 1, loop)
        if self.rng.random() < 0.25:
            self.line(indent, f"elif {self.condition()}:")
            self.body(indent + 1, depth + 1, loop)
        if self.rng.random() < 0.5:
            self.line(indent, "else:")
            self.body(indent + 1, depth + 1, loop)

    def loop(self, indent: int, depth: int) -> None:
        kind, index = self.rng.randrange(7), self.rng.choice(["i", "j", f"i{depth}"])
        if kind == 6:
            counter = self.fresh()
            self.line(indent, f"{counter} = 0")
            self.line(indent, f"while {counter} < 3 and ({self.condition()}):")
            self.line(indent + 1, f"{counter} += 1")
        else:
            heads = [
                "range(0, 3)",
                "range(x, x + 3)",
                "range(3, 0, -1)",
                "range(min(m, 3))",
                "tl.static_range(3)",
                "(1, 3, 4)",
            ]
            python = heads[kind].replace("tl.static_range", "range")
            self.line(indent, f"for {index} in {heads[kind]}:", f"for {index} in {python}:")
            if self.rng.random() < 0.7:
                v = self.variable()
                self.line(indent + 1, f"{v} += {index}", f"{v} = wrap({v} + {index})")
        self.body(indent + 1, depth + 1, True)

    def parameters(self) -> str:
        return "x_ptr, out_ptr, F0: tl.constexpr, F1: tl.constexpr" if self.kind == "kernel" else "x, y, F0, F1"

    def function(self) -> Writer:
        self.line(
            0,
            f"def {self.kind}({self.parameters()}):",
            f"def {self.kind}({self.parameters().replace(': tl.constexpr', '')}):",
        )
        if self.kind == "kernel":
            self.line(1, "x = tl.load(x_ptr + tl.program_id(0))", "x, out = x_ptr, out_ptr")
            self.line(1, f"out = out_ptr + tl.program_id(0) * {SLOTS}", "pass")
            self.line(1, "a, b, c = x, x + 1, x * 2")
        else:
            self.line(1, "a, b, c = x, x + y, x * 2", "a, b, c = x, wrap(x + y), wrap(x * 2)")
        self.line(1, "m = 0")
        self.line(1, "p = (a, b)")
        for _ in range(self.rng.randint(2, 5)):
            self.statement(1, 0, False)
        if self.kind == "kernel":
            for slot, name in enumerate("abc"):
                self.line(1, f"tl.store(out + {slot}, {name} + m)", f"out[{slot}] = wrap({name} + m)")
        else:
            last = "a + b - m" if self.kind == "value" else "a - c, p"
            self.line(1, f"return {last}", f"return wrap({last})" if self.kind == "value" else "return wrap(a - c), p")
        return self


@dataclass(frozen=True)
class Program:
    """A generated program: its text in the kernel language and as plain Python."""

    seed: int
    device: str
    python: str


def generate(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    parts = [Writer(rng, kind).function() for kind in ("value", "pair", "kernel")]
    device = "import triton\nimport triton.language as tl\n"
    device += "".join("\n@triton.jit\n" + "\n".join(part.device) + "\n" for part in parts)
    return Program(seed, device, "\n".join("\n".join(part.python) + "\n" for part in parts))


# Running ------------------------------------------------------------------------------------------------------


def wrap(value: int) -> int:
    """``value`` in 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def quotient(a: int, b: int) -> int:
    """a / b truncated towards zero."""
    return abs(a) // b * (1 if a >= 0 else -1)


def remainder(a: int, b: int) -> int:
    """a - b * quotient(a, b): the sign of a."""
    return a - b * quotient(a, b)


def expected(program: Program, flags: tuple[bool, bool]) -> np.ndarray:
    """What the program stores for each input, by Python."""
    names: dict[str, object] = {"wrap": wrap, "quotient": quotient, "remainder": remainder}
    exec(compile(program.python, "<reference>", "exec"), names)
    kernel = names["kernel"]
    assert callable(kernel)
    out = np.full((len(INPUTS), SLOTS), UNTOUCHED, np.int64)
    for row, x in enumerate(INPUTS.tolist()):
        kernel(x, out[row], *flags)
    return out


Run = Callable[[], np.ndarray]


def compiled(program: Program, flags: tuple[bool, bool], targets: tuple[str, ...]) -> Iterator[tuple[str, Run]]:
    """The ways to run a program, by the names of the targets."""
    constants = {"F0": flags[0], "F1": flags[1]}
    signature = {"x_ptr": "*i64:16", "out_ptr": "*i64:16"}
    source = KernelSource.from_text(program.device, "kernel", f"<seed {program.seed}>")

    def made():
        return lower(source, signature, constants)

    def fresh() -> np.ndarray:
        return np.full((len(INPUTS), SLOTS), UNTOUCHED, np.int64)

    def tile() -> np.ndarray:
        out, function = fresh(), made()
        verify(function)
        interpreter.run(function, (len(INPUTS), 1, 1), [INPUTS.copy(), out])
        return out

    def on_cpu() -> np.ndarray:
        out, function = fresh(), optimize(made())
        code = cpu.lower_to_llvm(function, Schedule())
        kernel = cpu.load(cpu.emit_object(code), code.name)
        types = [parameter.value.type for parameter in function.parameters]
        kernel.launch((len(INPUTS), 1, 1), [INPUTS.ctypes.data, out.ctypes.data], types)
        return out

    def simulated() -> np.ndarray:
        from simulator import simulate

        out, target, schedule = fresh(), Target.parse("cuda:90a"), Schedule(num_warps=1)
        code = nvptx.lower_to_llvm(lower_to_gpu(optimize(made()), target, schedule), target, schedule)
        simulate(code.llvm, (len(INPUTS), 1, 1), [INPUTS.copy(), out], code.num_warps, code.shared_bytes)
        return out

    def eager() -> np.ndarray:
        return run_eagerly(program, flags, fresh())

    known = {"tile": tile, "cpu": on_cpu, "simulated": simulated, "eager": eager}
    yield from ((name, known[name]) for name in targets)


def run_eagerly(program: Program, flags: tuple[bool, bool], out: np.ndarray) -> np.ndarray:
    """Run the program under TRITON_INTERPRET: its own Python code."""
    import deuteron
    import deuteron.language as tl
    from deuteron.compiler import knobs

    name = f"<eager {program.seed}>"
    text = program.device.replace("import triton.language as tl\n", "").replace("import triton\n", "")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, object] = {"triton": deuteron, "tl": tl}
    exec(compile(text, name, "exec"), names)
    with knobs.interpret.scope(True):
        names["kernel"][(len(INPUTS),)](INPUTS.copy(), out, *flags)  # type: ignore[index]
    return out


@dataclass(frozen=True)
class Mismatch(sweep.Mismatch):
    """Also with which flags."""

    flags: tuple[bool, bool]


def check(seed: int, targets: tuple[str, ...] = TARGETS) -> list[Mismatch]:
    """Run one program everywhere."""
    program, found = generate(seed), []
    for flags in FLAGS:
        want = expected(program, flags)
        for target, run in compiled(program, flags, targets):
            try:
                got = run()
            except (DeuteronError, Exception) as error:
                found.append(Mismatch(seed, target, f"{type(error).__name__}: {error}", flags))
                continue
            if not (got == want).all():
                rows = np.flatnonzero((got != want).any(1)).tolist()
                found.append(Mismatch(seed, target, f"WRONG for inputs {INPUTS[rows].tolist()}", flags))
    return found


def show(seed: int) -> str:
    """The program of a seed, in both languages."""
    program = generate(seed)
    return f"{program.device}\n\n# ---- as Python\n\n{program.python}"


if __name__ == "__main__":
    sys.exit(sweep.sweep(__doc__, TARGETS, check, show))
