"""Loops and branches as basic blocks, with one phi per register that somebody needs.

A phi is made when its value is asked for. Its operand from the back edge is asked for once the body is lowered, which
may bring in further phis: so a loop carries exactly the registers that its results depend on. Tiles of 8-bit
floats, with which nothing computes as they are, travel in whole words: GPUs have no registers of a byte. So do sums
that tensor cores keep two in a register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import UnsupportedOp
from ...gpu.asynchronous import Await, Wgmma
from ...gpu.latency.plain import is_plain
from ...gpu.ops import Mma
from ...hardware import REGISTER_BITS
from ...ir.core import Value
from ...ir.types import F8E4M3, F8E5M2, F16
from ...tile.control import Condition, For, If, While, Yield, handed_on
from ...tile.elementwise import Constant
from .lowering import RULES, Lowering, rule
from .registers import Registers, canonical_of, register_type
from .vectors import define_words, packed_words

_AS_IT_IS = '!{!"llvm.loop.unroll.disable"}'

for _kind in (Yield, Condition):
    RULES.unsupported(_kind, "the operation that owns the region lowers its end")


def when(state: Lowering, predicate: str | None, emit: Callable[[], None]) -> None:
    """Run the code that ``emit`` appends in the threads where ``predicate`` holds; None: in all."""
    if predicate is None:
        emit()
        return
    inside, after = state.text.fresh("when"), state.text.fresh("after")
    state.text.do(f"br i1 {predicate}, label %{inside}, label %{after}")
    state.begin(inside)
    emit()
    state.text.do(f"br label %{after}")
    state.begin(after)


class _Header:
    """The phis at the head of one loop."""

    def __init__(self, state: Lowering, before: str) -> None:
        self.state = state
        self.before = before
        self.latch = ""
        self.chunk = state.text.chunk()
        state.text.chunk()
        self._inits: list[Registers] = []
        self._backs: list[Registers] = []
        self._words: dict[int, tuple[dict[int, str], dict[int, str]]] = {}
        self._waiting: list[tuple[int, int, str]] = []
        self._busy = False

    def carry(self, init: Value, argument: Value, words: dict[int, str] | None = None) -> None:
        """Make ``argument`` the phi of ``init`` and of what the body hands on in its place; or phis of ``words``, those
        of ``init`` by their first registers, which were made before the loop."""
        place = len(self._inits)
        self._inits.append(self.state.values[init])
        if words is not None:
            phis = {first: "%" + self.state.text.fresh("p") for first in words}
            self._words[place] = words, phis
            define_words(self.state, argument, phis, _per_word(argument))
            return

        def make(index: int) -> str:
            name = "%" + self.state.text.fresh("p")
            self._waiting.append((place, index, name))
            if self.latch:
                self._settle()
            return name

        self.state.values[argument] = Registers.lazy(argument.type, make, 0)

    def close(self, latch: str, handed_on: Sequence[Value]) -> None:
        """The body is lowered: its last block is ``latch``, the current one, and not ended yet."""
        self.latch = latch
        self._backs = [self.state.values[v] for v in handed_on]
        for place, (inits, phis) in self._words.items():
            for first, back in _words(self.state, handed_on[place]).items():
                arms = f"[{inits[first]}, %{self.before}], [{back}, %{latch}]"
                self.chunk.append(f"  {phis[first]} = phi i32 {arms}")
        self._settle()

    def _settle(self) -> None:
        if self._busy:
            return
        self._busy = True
        while self._waiting:
            place, index, name = self._waiting.pop()
            init, back = self._inits[place], self._backs[place]
            kind = register_type(init.type.elem)
            self.chunk.append(f"  {name} = phi {kind} [{init[index]}, %{self.before}], [{back[index]}, %{self.latch}]")
        self._busy = False


def _per_word(value: Value) -> int:
    return REGISTER_BITS // value.type.elem.bits


def _travels_in_words(value: Value, next: Value) -> bool:
    """Whether a loop that hands on ``next`` carries ``value`` so: 8-bit floats, or sums of tensor cores in f16, that
    fill words, without copies."""
    elem = value.type.elem
    if elem not in (F8E4M3, F8E5M2) and not (elem == F16 and isinstance(next.op, Mma | Wgmma | Await)):
        return False
    registers = canonical_of(value.type)
    return registers == tuple(range(len(registers))) and len(registers) % _per_word(value) == 0


def _words(state: Lowering, value: Value) -> dict[int, str]:
    """The words of a tile, by their first registers."""
    per_word = _per_word(value)
    runs = (range(first, first + per_word) for first in range(0, len(canonical_of(value.type)), per_word))
    return {run[0]: packed_words(state, value, run)[0] for run in runs}


@rule(For)
def _for(state: Lowering, op: For) -> None:
    text = state.text
    index_type = register_type(op.lower.type.elem)
    lower, upper, step = (state.scalar(v) for v in (op.lower, op.upper, op.step))
    head, body, latch, after = (text.fresh(n) for n in ("head", "body", "latch", "after"))
    index = "%" + text.fresh("i")
    following = "%" + text.fresh("n")

    before = state.block
    carried = zip(op.inits, handed_on(op.body), strict=True)
    words = [_words(state, init) if _travels_in_words(init, next) else None for init, next in carried]
    text.do(f"br label %{head}")
    state.begin(head)
    header = _Header(state, before)
    header.chunk.append(f"  {index} = phi {index_type} [{lower}, %{before}], [{following}, %{latch}]")
    for init, argument, packed in zip(op.inits, op.carried, words, strict=True):
        header.carry(init, argument, packed)
    go_on = _in_range(state, op, index, upper, step)
    text.do(f"br i1 {go_on}, label %{body}, label %{after}")

    state.begin(body)
    state.define(op.body.args[0], [index])
    state.lower_block(op.body)
    text.do(f"br label %{latch}")
    state.begin(latch)
    text.do(f"{following} = add {index_type} {index}, {step}")
    header.close(latch, handed_on(op.body))
    hints = "" if all(map(is_plain, op.body.ops)) else f", !llvm.loop {loop_hints(state)}"
    text.do(f"br label %{head}{hints}")

    state.begin(after)
    for result, argument in zip(op.results, op.carried, strict=True):
        state.values[result] = state.values[argument]
        if argument in state.words:
            state.words[result] = state.words[argument]


def _in_range(state: Lowering, op: For, index: str, upper: str, step: str) -> str:
    name = register_type(op.lower.type.elem)
    if not op.lower.type.scalar.is_signed:
        return state.text.op(f"icmp ult {name} {index}, {upper}")
    made = op.step.op
    if isinstance(made, Constant):
        predicate = "slt" if made.value >= 0 else "sgt"
        return state.text.op(f"icmp {predicate} {name} {index}, {upper}")
    up = state.text.op(f"icmp slt {name} {index}, {upper}")
    down = state.text.op(f"icmp sgt {name} {index}, {upper}")
    falling = state.text.op(f"icmp slt {name} {step}, 0")
    return state.text.op(f"select i1 {falling}, i1 {down}, i1 {up}")


def loop_hints(state: Lowering) -> str:
    """Metadata that keeps LLVM and the assembler from unrolling: it is where most of their time would go. Loops for
    which it pays are unrolled before (:mod:`...gpu.latency.unroll`); of others that only load, compute and store both
    unroll those that are very short."""
    tail = state.module.tail
    held = next((i for i, line in enumerate(tail) if line.endswith(f"= {_AS_IT_IS}")), None)
    if held is None:
        held = len(tail)
        tail.append(f"!{held} = {_AS_IT_IS}")
    number = len(tail)
    tail.append(f"!{number} = distinct !{{!{number}, !{held}}}")
    return f"!{number}"


@rule(While)
def _while(state: Lowering, op: While) -> None:
    text = state.text
    head, body, after = (text.fresh(n) for n in ("head", "body", "after"))
    before = state.block
    text.do(f"br label %{head}")
    state.begin(head)
    header = _Header(state, before)
    for init, argument in zip(op.inits, op.carried, strict=True):
        header.carry(init, argument)
    state.lower_block(op.before)
    end = op.before.terminator
    if not isinstance(end, Condition):
        raise UnsupportedOp("a while loop has no condition", location=op.location)
    text.do(f"br i1 {state.scalar(end.condition)}, label %{body}, label %{after}")

    state.begin(body)
    for value, argument in zip(end.values, op.body.args, strict=True):
        state.values[argument] = state.values[value]
    state.lower_block(op.body)
    text.do(f"br label %{head}, !llvm.loop {loop_hints(state)}")
    header.close(state.block, handed_on(op.body))

    state.begin(after)
    for result, value in zip(op.results, end.values, strict=True):
        state.values[result] = state.values[value]


@rule(If)
def _if(state: Lowering, op: If) -> None:
    text = state.text
    then, otherwise, after = (text.fresh(n) for n in ("then", "else", "after"))
    text.do(f"br i1 {state.scalar(op.condition)}, label %{then}, label %{otherwise}")
    leaving: list[str] = []
    for label, block in ((then, op.then), (otherwise, op.otherwise)):
        state.begin(label)
        state.lower_block(block)
        text.do(f"br label %{after}")
        leaving.append(state.block)
    state.begin(after)
    sides = [handed_on(op.then), handed_on(op.otherwise)]
    phis = text.chunk()
    text.chunk()
    for i, result in enumerate(op.results):
        _merge(state, result, [state.values[s[i]] for s in sides], leaving, phis)


def _merge(state: Lowering, result: Value, sides: list[Registers], blocks: list[str], chunk: list[str]) -> None:
    kind = register_type(result.type.elem)

    def make(index: int) -> str:
        name = "%" + state.text.fresh("p")
        arms = ", ".join(f"[{s[index]}, %{b}]" for s, b in zip(sides, blocks, strict=True))
        chunk.append(f"  {name} = phi {kind} {arms}")
        return name

    depth = 1 + max(s.depth for s in sides)
    state.values[result] = Registers.lazy(result.type, make, depth)
