"""Nests of counted loops over a tile, with code placed in the outermost loop that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...llvm.text import FunctionText
from ...llvm.typed import Emitter, Typed
from .chunk import ZERO, Coord, power_of_two_divisor


@dataclass(slots=True, eq=False)
class BasicBlock:
    """A labelled block; ``lines`` belongs to the function's text."""

    label: str
    lines: list[str]


class Blocks:
    """The blocks of one function. ``here`` is the block that code is appended to."""

    def __init__(self, function: FunctionText) -> None:
        self.function = function
        self.here = self.new("entry")

    def new(self, hint: str) -> BasicBlock:
        """A new block at the end of the text; ``here`` stays."""
        label = self.function.fresh(hint)
        current = self.function.current
        lines = self.function.chunk()
        self.function.label(label)
        self.function.current = current
        return BasicBlock(label, lines)

    def enter(self, block: BasicBlock) -> BasicBlock:
        """Append to ``block`` from now on."""
        self.here = block
        self.function.current = block.lines
        return block

    def jump(self, target: BasicBlock) -> None:
        """End the current block with a jump to ``target``; ``here`` stays."""
        self.function.do(f"br label %{target.label}")

    def branch(self, condition: Typed, yes: BasicBlock, no: BasicBlock, metadata: str = "") -> None:
        """End the current block: go to ``yes`` if the i1 ``condition`` is true, else to ``no``; ``here`` stays."""
        self.function.do(f"br {condition}, label %{yes.label}, label %{no.label}{metadata}")

    def rolled(self) -> str:
        """Metadata for the last branch of a loop: LLVM leaves the loop as it is."""
        tail = self.function.module.tail
        if not tail:
            tail.append('!0 = !{!"llvm.loop.unroll.disable"}')
        tail.append(f"!{len(tail)} = distinct !{{!{len(tail)}, !0}}")
        return f", !llvm.loop !{len(tail) - 1}"

    def phi(self, block: BasicBlock, name: Typed, incoming: Sequence[tuple[Typed, BasicBlock]]) -> None:
        """Define ``name`` at the start of ``block``."""
        ways = ", ".join(f"[ {v.name}, %{b.label} ]" for v, b in incoming)
        block.lines.insert(1, f"  {name.name} = phi {name.type} {ways}")

    def fresh(self, type: str, hint: str = "p") -> Typed:
        """A value of LLVM type ``type`` with a new name that nothing defines yet."""
        return Typed(type, f"%{self.function.fresh(hint)}")


@dataclass(slots=True)
class Level:
    """One open loop. ``current`` is where code goes that runs once per iteration."""

    header: BasicBlock
    current: BasicBlock
    index: Typed
    count: int
    step: int
    carried: list[Typed] = field(default_factory=list)
    inits: list[Typed] = field(default_factory=list)


class Nest:
    """A stack of counted loops. Level 0 is the code before the outermost one.

    ``unroll``: LLVM may unroll them. It pays for copies; loops that compute are no faster and take longer to compile.
    """

    def __init__(self, blocks: Blocks, *, unroll: bool = True) -> None:
        self.blocks = blocks
        self.unroll = unroll
        self.levels = [Level(blocks.here, blocks.here, ZERO.base, 1, 0)]
        self.trivial: list[bool] = []

    @property
    def depth(self) -> int:
        """Number of open loops that run more than once."""
        return len(self.levels) - 1

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Emit into the body of ``level``; branches made there move its end."""
        outer = self.blocks.here
        self.blocks.enter(self.levels[level].current)
        try:
            yield
        finally:
            self.levels[level].current = self.blocks.here
            self.blocks.enter(outer)

    def open(
        self,
        count: int,
        step: int = 1,
        start: int = 0,
        carried: Sequence[Typed] = (),
        stride: int = 0,
    ) -> tuple[Coord, list[Typed]]:
        """Begin a loop of ``count`` iterations; the index runs from ``start`` in steps.

        ``carried`` are initial values of what changes from iteration to iteration. Returns the index as a coordinate
        whose lanes are ``stride`` apart, and the carried values inside.
        """
        if count == 1:
            self.trivial.append(True)
            divisor = power_of_two_divisor(start)
            return Coord(Typed("i32", str(start)), stride, 0, divisor), list(carried)
        self.trivial.append(False)
        header = self.blocks.new("loop")
        index = self.blocks.fresh("i32", "i")
        inside = [self.blocks.fresh(c.type, "c") for c in carried]
        self.levels.append(Level(header, header, index, count, step, inside, list(carried)))
        self.levels[-1].inits.append(Typed("i32", str(start)))
        divisor = min(power_of_two_divisor(step), power_of_two_divisor(start))
        return Coord(index, stride, self.depth, divisor), inside

    def move(self, e: Emitter, pointer: Typed, index: Coord, stride: int, element: str) -> Typed:
        """``pointer`` moved by index * stride elements, in the innermost loop."""
        with self.at(self.depth):
            count = index.base
            if stride != 1:
                count = e.binary("mul nuw nsw", count, Typed("i32", str(stride)))
            return e.offset(pointer, count, element)

    def close(self, carried: Sequence[Typed] = ()) -> list[Typed]:
        """End the innermost loop; ``carried`` are the next values. Returns the last ones, valid after the loop."""
        if self.trivial.pop():
            return list(carried)
        level = self.levels.pop()
        *inits, start = level.inits
        blocks, outer = self.blocks, self.levels[-1]
        exit_block = blocks.new("done")
        after, more = blocks.fresh("i32", "i"), blocks.fresh("i1", "more")
        bound = int(start.name) + level.count * level.step
        blocks.enter(level.current)
        blocks.function.do(f"{after.name} = add nuw nsw i32 {level.index.name}, {level.step}")
        blocks.function.do(f"{more.name} = icmp ne i32 {after.name}, {bound}")
        blocks.branch(more, level.header, exit_block, "" if self.unroll else blocks.rolled())
        blocks.enter(outer.current)
        blocks.jump(level.header)
        for inside, init, following in zip(level.carried, inits, carried, strict=True):
            ways = [(init, outer.current), (following, level.current)]
            blocks.phi(level.header, inside, ways)
        blocks.phi(level.header, level.index, [(start, outer.current), (after, level.current)])
        outer.current = blocks.enter(exit_block)
        return list(carried)
