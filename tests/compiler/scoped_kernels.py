"""Random kernels with scopes: their text, and which records every program makes, told by walking the same tree.

A kernel gets an array and two integers; what it computes does not matter but must be computed. Loops run over
constants and over run-time numbers, branches depend on the program, on arguments and on loop variables; scopes are
written as calls and as ``with``, in the kernel and in functions that it calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from deuteron.compiler.frontend import KernelSource
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.record_buffer import RecordForm
from deuteron.compiler.runtime.launch.records import LaunchRecords
from deuteron.compiler.runtime.variant.pipeline import Build, make_tile
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.compiler.targets import nvptx

#: (names of the scopes from the outermost on, whether it begins)
Event = tuple[tuple[str, ...], bool]
SIGNATURE = {"x": "*fp32", "n": "i32"}
LONG = RecordForm()
NAMES = ("load", "compute", "store", "a b", "ä")


@dataclass
class Node:
    """A statement: ``kind`` is scope, for, static, if, call or work; ``text`` is a name, bound or condition."""

    kind: str
    text: str = ""
    body: list[Node] = field(default_factory=list)
    other: list[Node] = field(default_factory=list)


class Maker:
    """Makes the statements of one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.functions: list[list[Node]] = []

    def body(self, depth: int, indices: tuple[str, ...], *, calls: bool = True) -> list[Node]:
        count = self.random.randint(1, 3 if depth else 1)
        return [self.node(depth, indices, calls) for _ in range(count)]

    def node(self, depth: int, indices: tuple[str, ...], calls: bool) -> Node:
        kinds = ["scope", "scope", "scope", "for", "if", "static", *(["call"] if calls else [])] if depth else ["work"]
        kind = self.random.choice(kinds)
        inside = lambda names=indices: self.body(depth - 1, names, calls=calls)  # noqa: E731
        match kind:
            case "scope":
                return Node(kind, self.random.choice(NAMES), inside())
            case "for" | "static":
                bound = self.random.choice(["0", "1", "2"] if kind == "static" else ["0", "1", "3", "pid", "n"])
                return Node(kind, bound, inside((*indices, f"i{len(indices)}")))
            case "if":
                subject = self.random.choice(["pid", "n", *indices])
                other = inside() if self.random.random() < 0.5 else []
                return Node(kind, f"{subject} % 2 == {self.random.randint(0, 1)}", inside(), other)
            case "call":
                self.functions.append(self.body(depth - 1, (), calls=False))
                return Node(kind, str(len(self.functions) - 1))
            case _:
                return Node("work", self.random.choice(["tl.store(x + r, v)", "v += n", "v += tl.load(x + r)"]))


@dataclass(frozen=True)
class ScopedKernel:
    """A kernel and its functions as trees."""

    seed: int
    body: list[Node]
    functions: list[list[Node]]

    def text(self, *, scopes: bool = True) -> str:
        """The kernel as source text; without scopes what is left is the same."""
        lines = ["import deuteron", "import deuteron.language as tl", "import deuteron.profiler.language as pl", ""]
        for number, body in enumerate(self.functions):
            inside = _lines(body, 1, scopes, 0)
            lines += ["@deuteron.jit", f"def function{number}(v, x, r, pid, n):", *inside, "    return v", ""]
        lines += [
            "@deuteron.jit",
            "def kernel(x, n):",
            "    pid = tl.program_id(0)",
            "    r = pid * 64 + tl.arange(0, 64)",
        ]
        lines += ["    v = tl.load(x + r)", *_lines(self.body, 1, scopes, 0), "    tl.store(x + r, v)", ""]
        return "\n".join(lines)

    def events(self, program: int, n: int) -> list[Event]:
        """What a program records, in order."""
        return list(self._walk(self.body, {"pid": program, "n": n}, ()))

    def _walk(self, body: list[Node], known: dict[str, int], outer: tuple[str, ...]) -> Iterator[Event]:
        depth = sum(name.startswith("i") for name in known)
        for node in body:
            match node.kind:
                case "scope":
                    path = (*outer, node.text)
                    yield path, True
                    yield from self._walk(node.body, known, path)
                    yield path, False
                case "for" | "static":
                    for i in range(int(known.get(node.text, 0) if not node.text.isdecimal() else node.text)):
                        yield from self._walk(node.body, {**known, f"i{depth}": i}, outer)
                case "if":
                    subject, _, _, _, wanted = node.text.split()
                    holds = known[subject] % 2 == int(wanted)
                    yield from self._walk(node.body if holds else node.other, known, outer)
                case "call":
                    given = {name: known[name] for name in ("pid", "n")}
                    yield from self._walk(self.functions[int(node.text)], given, outer)

    def variant(
        self, target: str, *, records: RecordForm | None = LONG, scopes: bool = True, warps: int = 2
    ) -> Variant:
        """What is compiled."""
        source = KernelSource.from_text(self.text(scopes=scopes), "kernel", f"<seed {self.seed}>")
        made = make_variant(source, SIGNATURE, {}, target, {"num_warps": warps})
        return replace(made, records=records)


def _lines(body: list[Node], depth: int, scopes: bool, loops: int) -> list[str]:
    pad, lines = "    " * depth, []
    for place, node in enumerate(body):
        match node.kind:
            case "scope" if not scopes:
                lines += _lines(node.body, depth, scopes, loops)
            case "scope" if place % 2:
                lines += [f"{pad}with pl.scope({node.text!r}):", *_lines(node.body, depth + 1, scopes, loops)]
            case "scope":
                inside = _lines(node.body, depth, scopes, loops)
                lines += [f"{pad}pl.enter_scope({node.text!r})", *inside, f"{pad}pl.exit_scope({node.text!r})"]
            case "for" | "static":
                counter = "tl.static_range" if node.kind == "static" else "range"
                lines += [f"{pad}for i{loops} in {counter}({node.text}):"]
                lines += _lines(node.body, depth + 1, scopes, loops + 1)
            case "if":
                lines += [f"{pad}if {node.text}:", *_lines(node.body, depth + 1, scopes, loops)]
                lines += [f"{pad}else:", *_lines(node.other, depth + 1, scopes, loops)] if node.other else []
            case "call":
                lines += [f"{pad}v = function{node.text}(v, x, r, pid, n)"]
            case _:
                lines += [f"{pad}v = v * 2 + 1", f"{pad}{node.text}"]
    return lines or [f"{pad}v = v + 1"]


def make_kernel(seed: int, depth: int = 3) -> ScopedKernel:
    """The kernel of a seed."""
    maker = Maker(seed)
    body = [Node("scope", "all", maker.body(depth, ())), *maker.body(depth, ())]
    return ScopedKernel(seed, body, maker.functions)


def recorded_events(records: LaunchRecords) -> dict[tuple[int, int], list[Event]]:
    """What each warp of each program recorded, in order; clocks must not go back."""
    found = {}
    for track in records.tracks:
        clocks = [mark.clock for mark in track.marks]
        assert clocks == sorted(clocks)
        found[track.program, track.warp] = [(records.scopes[mark.scope], mark.enter) for mark in track.marks]
    return found


def gpu_programs(variant: Variant) -> tuple[object, LaunchRecipe]:
    """What :func:`simulator.simulate_recorded` takes: the program by the guards that are denied, and the scopes."""
    work = Build(variant)
    function = make_tile(work)

    def compiled(denied: frozenset[Guard]) -> nvptx.PtxProgram:
        gpu = lower_to_gpu(function, variant.target, variant.schedule, denied)
        return nvptx.lower_to_llvm(gpu, variant.target, variant.schedule)

    return compiled, LaunchRecipe(0, scopes=work.scopes, records=variant.records or LONG)
