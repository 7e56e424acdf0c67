"""The state of one lowering from GPU IR to LLVM text, and what all rules use.

A rule gets the state and one operation, and defines :class:`~.registers.Registers` for its results. Rules are found
through :data:`RULES`; those of elementwise operations are functions of one element (:func:`elementwise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar, cast

from ...errors import CompilationError, IRError
from ...gpu.memory.scratch import GpuFunction
from ...hardware import LANE_BITS, threads_of
from ...ir.core import Block, FunctionParameter, Op, Value, uses
from ...ir.rules import RuleSet
from ...ir.types import Element, Pointer, Scalar
from ...layout import LinearLayout, shift_terms
from ...llvm.lines import SourceLines
from ...llvm.symbols import symbol_of
from ...llvm.text import FunctionText, ModuleText, float_constant
from ...options import Schedule
from ...tile.axis import AxisFacts, analyze
from ...tile.formats import f8_bits
from .machine import SimtTarget
from .registers import GLOBAL_POINTER, Registers, equal_registers, memory_type, register_type

OpT = TypeVar("OpT", bound=Op)
Rule = Callable[["Lowering", Op], None]
ElementRule = Callable[["Lowering", Op, list[str]], str]

#: What all SIMT targets share; each extends a copy (:attr:`.machine.SimtTarget.rules`).
RULES: RuleSet[Rule] = RuleSet("simt")
ELEMENT_RULES: dict[type[Op], ElementRule] = {}


def rule(
    kind: type[OpT], rules: RuleSet[Rule] = RULES
) -> Callable[[Callable[[Lowering, OpT], None]], Callable[[Lowering, OpT], None]]:
    """Register the decorated function as the rule for ``kind`` in ``rules``: those of all targets, or of one."""

    def register(function: Callable[[Lowering, OpT], None]) -> Callable[[Lowering, OpT], None]:
        rules(kind)(cast(Rule, function))
        return function

    return register


def elementwise(
    kind: type[OpT],
) -> Callable[[Callable[[Lowering, OpT, list[str]], str]], Callable[[Lowering, OpT, list[str]], str]]:
    """Register a function from one element of each operand to one of the result as the rule for ``kind``."""

    def register(
        function: Callable[[Lowering, OpT, list[str]], str],
    ) -> Callable[[Lowering, OpT, list[str]], str]:
        RULES(kind)(lower_elementwise)
        return element_rule(kind)(function)

    return register


def element_rule(
    kind: type[OpT],
) -> Callable[[Callable[[Lowering, OpT, list[str]], str]], Callable[[Lowering, OpT, list[str]], str]]:
    """Register a function from one element of each operand to one of the result for ``kind``, whose tiles have a rule
    of their own."""

    def register(
        function: Callable[[Lowering, OpT, list[str]], str],
    ) -> Callable[[Lowering, OpT, list[str]], str]:
        ELEMENT_RULES[kind] = cast(ElementRule, function)
        return function

    return register


def lower_elementwise(state: Lowering, op: Op) -> None:
    """The rule for tiles of an operation that has an element's: each register from those of the operands."""
    element = ELEMENT_RULES[type(op)]
    operands = [state.values[v] for v in op.operands]
    equal = state.equal_registers(op.result)
    state.define_lazily(op.result, operands, lambda i: element(state, op, [o[i] for o in operands]), equal)


@dataclass(frozen=True, slots=True)
class WarpTrack:
    """Where a warp records (:mod:`...record_buffer`).

    ``start``: the address of its first word, for each lane a record further (i64); ``blocks``: which bits of a record's
    number say where its block is in the ring (i32); ``lane`` (i32); ``chosen``: whether the warp records (i1).
    Variables: ``count``, of its records (i32), and ``kept``, this lane's newest one (``word``).
    """

    word: str
    record_bytes: int
    start: str
    blocks: str
    lane: str
    chosen: str
    count: str
    kept: str


class Lowering:
    """One kernel on its way to LLVM text."""

    def __init__(
        self, function: GpuFunction, machine: SimtTarget, schedule: Schedule, lines: SourceLines | None = None
    ) -> None:
        self.source = function
        self.lines = lines
        self.machine = machine
        self.schedule = schedule
        self.allocation = function.allocation
        self.warps = function.warps
        self.used = uses(function)
        self.values: dict[Value, Registers] = {}
        #: Tiles in shared memory: their first byte (i32).
        self.places: dict[Value, str] = {}
        #: Whether code is that of the warp that only copies.
        self.in_producer = False
        #: The number of threads that meet at a barrier where those are not all of the program.
        self.group_threads: int | None = None
        #: 32-bit words that hold several neighbouring registers of a value, by the first of them.
        self.words: dict[Value, dict[int, str]] = {}
        #: Which f32 was rounded to each f16, bf16 or 8-bit float: pairs are rounded by one instruction.
        self.narrowed: dict[tuple[str, Element], str] = {}
        #: The 32-bit word and the place in it from which each bf16 was taken, and the bf16 that each f32 was.
        self.halves: dict[str, tuple[str, int]] = {}
        self.widened: dict[str, str] = {}
        #: Where the warp records, in a kernel that does.
        self.track: WarpTrack | None = None
        self.contract = "contract " if schedule.enable_fp_fusion else ""
        self.module = ModuleText(machine.triple)
        self.text = FunctionText(self.module, "")
        self._once: dict[object, str] = {}
        self.entry = self.text.current
        self.text.label("entry")
        self.block = "entry"  # the basic block that code is appended to
        self.thread = machine.thread_id(self)
        self.text.chunk()

    @property
    def threads(self) -> int:
        """Threads that hold tiles."""
        return threads_of(self.warps)

    @property
    def launched_threads(self) -> int:
        """Threads of one program, those of helpers included; they have the highest numbers."""
        return self.source.recipe.threads or self.threads

    # Values --------------------------------------------------------------------------------------------------

    def define_lazily(
        self,
        value: Value,
        operands: Sequence[Registers],
        element: Callable[[int], str],
        equal: tuple[int, ...] | None = None,
    ) -> None:
        """Let ``element(i)`` compute register i of ``value``, here, when somebody needs it, and once for those that are
        ``equal``."""
        chunk = self.text.chunk()
        text = self.text
        after = text.after

        def make(index: int) -> str:
            outer, text.current = text.current, chunk
            outer_after, text.after = text.after, after
            try:
                return element(index)
            finally:
                text.current, text.after = outer, outer_after

        depth = 1 + max((o.depth for o in operands), default=0)
        self.values[value] = Registers.lazy(value.type, make, depth, equal)
        text.chunk()

    @cached_property
    def _facts(self) -> AxisFacts:
        return analyze(self.source)

    def equal_registers(self, value: Value) -> tuple[int, ...] | None:
        """Which registers of a tile of integers, truth values or pointers hold equal values, as masks of whole vectors
        do; None where that is not known of more than copies."""
        layout = value.type.layout
        if layout is None or value.type.is_float or layout.registers == 1:
            return None
        constancy = self._facts[value].constancy
        return equal_registers(layout, constancy) if max(constancy) > 1 else None

    def define(self, value: Value, names: Sequence[str | None]) -> None:
        """Give ``value`` its registers."""
        self.values[value] = Registers.fixed(value.type, names)

    def scalar(self, value: Value) -> str:
        """The one register of a scalar."""
        return self.values[value][0]

    def lower(self, op: Op) -> None:
        """Lower one operation, by the rule that the target has for it. What it refuses has the operation's place."""
        rule = self.machine.rules.find(op)
        try:
            self._apply(rule, op)
        except CompilationError as error:
            if error.location is None and op.location is not None:
                error.place(op.location, None)
            raise

    def _apply(self, rule: Rule, op: Op) -> None:
        if self.lines is None:
            rule(self, op)
            return
        text, outer = self.text, self.text.after
        text.after = self.lines.after(op.location)
        try:
            rule(self, op)
        finally:
            text.after = outer

    def lower_block(self, block: Block) -> None:
        """Lower all operations of ``block`` but its terminator."""
        end = block.terminator
        for op in block.ops:
            if op is not end:
                self.lower(op)

    def begin(self, label: str) -> None:
        """Start basic block ``label``; the one before has ended in a branch."""
        self.text.chunk()
        self.text.label(label)
        self.block = label
        self.text.chunk()

    def constant(self, element: Element, value: int | float | bool) -> str:
        """A constant of ``element``, as LLVM text."""
        name = register_type(element)
        if name == "i1":
            return "true" if value else "false"
        if not isinstance(element, Scalar):
            return "null"
        if element.is_float and name != "i8":
            return float_constant(float(value), name)
        if element.is_float:
            value = f8_bits(float(value), element)
        wrapped = int(value) & ((1 << element.bits) - 1)
        return str(wrapped - (1 << element.bits) if wrapped >> (element.bits - 1) else wrapped)

    # Threads -------------------------------------------------------------------------------------------------

    def thread_bits(self, lane: Sequence[int], warp: Sequence[int]) -> str:
        """XOR of the bases at the set bits of this thread's lane and warp, as i32; computed once per kernel."""
        bases = (*lane, *warp)
        return self.once(bases, lambda state: state.emit_linear(state.thread, bases))

    def once(self, key: object, emit: Callable[[Lowering], str]) -> str:
        """What ``emit`` appends and returns, at the beginning of the kernel and only once for each ``key``."""
        if (known := self._once.get(key)) is None:
            outer, self.text.current = self.text.current, self.entry
            known = self._once[key] = emit(self)
            self.text.current = outer
        return known

    def emit_linear(self, x: str, bases: tuple[int, ...]) -> str:
        """XOR of ``bases`` at the set bits of ``x`` (i32)."""
        result = ""
        reached = 0
        everything = (1 << len(bases)) - 1
        for term in shift_terms(bases):
            part = x if term.mask == everything else self.text.op(f"and i32 {x}, {term.mask}")
            moved = term.mask << term.shift if term.shift >= 0 else term.mask >> -term.shift
            if term.shift:
                how = "shl" if term.shift > 0 else "lshr"
                part = self.text.op(f"{how} i32 {part}, {abs(term.shift)}")
            if result:
                how = "xor" if reached & moved else "or disjoint"
                result = self.text.op(f"{how} i32 {result}, {part}")
            else:
                result = part
            reached |= moved
        return result or "0"

    def coordinate(self, layout: LinearLayout, axis: int) -> str:
        """This thread's part of the coordinate along ``axis``."""
        return self.thread_bits([b[axis] for b in layout.lane], [b[axis] for b in layout.warp])

    def add_bits(self, thread: str, reach: int, constant: int) -> str:
        """``thread XOR constant``, as an addition where ``reach`` (the bits that threads set) allows it."""
        if not constant:
            return thread
        if thread == "0":
            return str(constant)
        if reach & constant:
            return self.text.op(f"xor i32 {thread}, {constant}")
        return self.text.op(f"add nuw nsw i32 {thread}, {constant}")

    def only_thread(self, layout: LinearLayout | None) -> str | None:
        """An i1 that is true in one thread per element; None where no two threads share one."""
        free = self.threads - 1 if layout is None else thread_free_bits(layout)
        if not free:
            return None
        if free == self.threads - 1:
            return self.text.op(f"icmp eq i32 {self.thread}, 0")
        masked = self.text.op(f"and i32 {self.thread}, {free}")
        return self.text.op(f"icmp eq i32 {masked}, 0")

    def both(self, x: str | None, y: str | None) -> str | None:
        """Conjunction of two predicates, None meaning always."""
        if x is None or y is None:
            return x or y
        return self.text.op(f"and i1 {x}, {y}")

    # Shared memory -------------------------------------------------------------------------------------------

    def shared(self, offset: str | int) -> str:
        """The address of a byte of shared memory."""
        name = "@shared_memory"
        if name not in self.module.globals:
            self.module.globals[name] = f"{name} = external addrspace(3) global [0 x i8], align 1024"
        if offset in (0, "0"):
            return name
        return self.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {name}, i32 {offset}")

    def scratch(self, op: Op) -> int:
        """The first byte of the scratch of ``op``. Raises IRError where none was asked for."""
        place = self.allocation.places.get(op)
        if place is None:
            raise IRError(f"{op!r} at {op.location} has no shared memory: gpu/memory/scratch.py says how much it needs")
        return place.start

    def barrier(self) -> None:
        """All threads that share the work wait for each other."""
        self.machine.barrier(self)

    def plus(self, x: str, y: str | int) -> str:
        """The sum of two i32 that do not overflow."""
        if not x.startswith("%") and not str(y).startswith("%"):
            return str(int(x) + int(y))
        return x if str(y) == "0" else self.text.op(f"add nuw nsw i32 {x}, {y}")


def lower_kernel(
    function: GpuFunction, machine: SimtTarget, schedule: Schedule, lines: SourceLines | None = None
) -> Lowering:
    """The LLVM text of ``function``, in the ``module`` of what is returned; with ``lines`` instructions say where they
    come from.

    Kernel parameters are those of the function, in order: pointers as 64-bit addresses, i1 as a byte.

    Raises:
        UnsupportedOp: an operation or element type has no lowering for ``machine``.
    """
    state = Lowering(function, machine, schedule, lines)
    if lines is not None:
        state.text.after = lines.after(None)
    parameters = [_parameter(state, p, f"%a{i}") for i, p in enumerate(function.parameters)]
    declared = ", ".join([*parameters, *machine.hidden_parameters(state)])
    attributes = f"#0{lines.of_kernel}" if lines else "#0"
    symbol = symbol_of(function.name)
    state.text.header = f"define {machine.calling_convention} void @{symbol}({declared}) {attributes}"
    machine.begin(state)
    state.lower_block(function.body)
    machine.end(state)
    state.text.do("ret void")
    if lines is not None:
        state.module.tail += lines.metadata()
    state.module.tail.append(f"attributes #0 = {{ nounwind {' '.join(machine.kernel_attributes(state))} }}")
    return state


def _parameter(state: Lowering, parameter: FunctionParameter, name: str) -> str:
    """Declare a parameter and define its value."""
    elem = parameter.value.type.elem
    if isinstance(elem, Pointer):
        state.define(parameter.value, [name])
        align = f" align {parameter.divisibility}" if parameter.divisibility > 1 else ""
        return f"{GLOBAL_POINTER}{align} {name}"
    kept = memory_type(elem)
    if kept == register_type(elem):
        state.define(parameter.value, [name])
    else:
        truth = state.text.op(f"icmp ne {kept} {name}, 0")
        state.define(parameter.value, [truth])
    return f"{kept} {name}"


@lru_cache(maxsize=1024)
def thread_free_bits(layout: LinearLayout) -> int:
    """Bits of the thread index in which threads hold copies of each other's elements."""
    return layout.free_bits("lane") | layout.free_bits("warp") << LANE_BITS


def reach_of(bases: Sequence[int]) -> int:
    """All bits that any of ``bases`` sets."""
    reach = 0
    for basis in bases:
        reach |= basis
    return reach
