"""Loops: unrolled at compile time (static_range, tuples, those of functions of compile-time values) or emitted with
loop-carried values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ..errors import TypeMismatch
from ..ir.core import Block, Value
from ..ir.types import I32, I64
from ..language import arithmetic, conditions
from ..language.control import counting, static_range
from ..language.control import range as dynamic_range
from ..language.tensor import Operand, tensor
from ..printable import shown
from ..tile import control
from .assignment import assign
from .branches import scalar_condition
from .carried import Carried, Exits
from .dispatch import evaluate, execute, statement
from .exits import boundary, catch_continue, goes_on, unrolled_loop
from .frame import Frame
from .merging import Meeting, emit_conditional
from .python_builtins import known_items
from .scope import LocalScope

#: Most iterations of a compile-time loop: each one is compiled.
MAX_STATIC_ITERATIONS = 4096


@statement(ast.For)
def _for(frame: Frame, node: ast.For) -> None:
    """A for loop over range, tl.range, tl.static_range or a tuple."""
    if node.orelse:
        raise frame.error(node, "'else' of a loop is not part of the kernel language")
    iterable = evaluate(frame, node.iter)
    known = known_items(iterable) if frame.source.compile_time else None
    if known is not None:
        _unrolled(frame, node, known)
    elif isinstance(iterable, static_range):
        with frame.at(node.iter):
            _check_static(iterable)
        _unrolled(frame, node, iterable.values())
    elif isinstance(iterable, tuple):
        _unrolled(frame, node, iterable)
    elif isinstance(iterable, dynamic_range):
        with frame.at(node):
            _runtime_for(frame, node, iterable)
    else:
        raise frame.error(
            node.iter, f"cannot loop over {shown(iterable)}", "loop over range, tl.range or tl.static_range"
        )


def _check_static(loop: static_range) -> None:
    for bound in (loop.arg1, loop.arg2, loop.step):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TypeMismatch("the bounds of tl.static_range must be known at compile time", hint="use tl.range")
    if loop.step == 0 or loop.values()[MAX_STATIC_ITERATIONS:]:  # not by len(), which counts to 2**63 alone
        raise TypeMismatch(
            f"tl.static_range unrolls at most {MAX_STATIC_ITERATIONS} iterations",
            hint="use tl.range",
        )


# Compile-time loops ------------------------------------------------------------------------------------------


def _unrolled(frame: Frame, node: ast.For, values: Iterable[object]) -> None:
    """The body once for each value. The budget of statements bounds how often."""
    if not any(_own_exits(node.body)):
        for value in values:
            if not goes_on(frame, node):
                return
            assign(frame, node.target, value)
            execute(frame, node.body)
        return
    with unrolled_loop(frame):
        for value in values:
            if not goes_on(frame, node):
                break
            with boundary(frame):
                assign(frame, node.target, value)
                execute(frame, node.body)
            catch_continue(frame)


def _known_while(frame: Frame, node: ast.While) -> None:
    """A loop of a function of compile-time values, which computes as Python does. The budget of statements bounds how
    often."""
    with unrolled_loop(frame):
        while goes_on(frame, node) and _holds(frame, node.test):
            with boundary(frame):
                execute(frame, node.body)
            catch_continue(frame)


def _holds(frame: Frame, test: ast.expr) -> bool:
    value = evaluate(frame, test)
    if isinstance(value, tensor):
        raise frame.error(test, "a loop of a compile-time function needs a condition that is known while compiling")
    return bool(value)


def _own_exits(body: list[ast.stmt]) -> Iterable[ast.stmt]:
    """The ``break`` and ``continue`` statements of a loop's body that belong to this loop."""
    for node in body:
        if isinstance(node, ast.Break | ast.Continue):
            yield node
        elif isinstance(node, ast.If):
            yield from _own_exits([*node.body, *node.orelse])


# Run-time loops ----------------------------------------------------------------------------------------------


#: Counting is not the kernel's own arithmetic, which is checked for overflow.
_add, _sub, _mul = (partial(f, sanitize_overflow=False) for f in (arithmetic.add, arithmetic.sub, arithmetic.mul))


#: A step that is longer than the largest tile is hardly one of a loop that many kernels run.
_LONG_STEP = 1 << 20
_LARGEST_INT32 = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Counter:
    """The bounds of a run-time loop in one type, and how its index becomes what the program sees. ``rises``: the step
    is known to be positive."""

    lower: tensor
    upper: tensor
    step: tensor
    shown: Callable[[tensor], tensor]
    rises: bool = True

    def last(self) -> tensor:
        """The index of the last iteration, as the program sees it, of a loop that ran to its end."""
        short = 1 if self.rises else conditions.where(self._upwards(), 1, -1)
        steps = arithmetic.floordiv(_sub(_sub(self.upper, self.lower), short), self.step)
        return self.shown(_add(self.lower, _mul(steps, self.step)))

    def inside(self, index: tensor) -> tensor:
        """Whether there is an iteration of this index."""
        below = conditions.compare(index, self.upper, "lt")
        if self.rises:
            return below
        return conditions.where(self._upwards(), below, conditions.compare(index, self.upper, "gt"))

    def _upwards(self) -> tensor:
        return conditions.compare(self.step, 0, "gt")


def _runtime_for(frame: Frame, node: ast.For, loop: dynamic_range) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "the target of a run-time loop must be one name")
    counter, name = _counter(loop), node.target.id
    carried = Carried(frame, node.body, name)

    def start(block: Block, names: dict[str, object]) -> None:
        index = tensor(block.add_argument(counter.lower.value.type, name))
        with frame.builder.into(block):
            names[name] = counter.shown(index)

    body = carried.compile_body(start)
    exits = Exits.of(carried.end)
    if exits is not None:
        _leaving_for(frame, counter, carried, body, exits)
        return
    carried.end_body(body)
    hints = (loop.num_stages or 0, loop.loop_unroll_factor or 1)
    bounds = (counter.lower.value, counter.upper.value, counter.step.value)
    carried.finish(frame.builder.emit(control.For(*bounds, carried.inits(), *hints, body)).results)
    carried.finish_index(counter.last)


def _counter(loop: dynamic_range) -> _Counter:
    """A negative constant step counts up from 0 and maps the index back."""
    parts = [arithmetic.as_tensor(b) for b in loop.bounds]
    for part in parts:
        if part.shape or not part.value.type.is_integer:
            raise TypeMismatch(f"loop bounds must be scalar integers, got {part.type}")
    counted, shown = counting(loop.bounds)
    if counted == I32 and _may_pass_int32(loop.bounds):
        counted = I64

    def show(index: tensor) -> tensor:
        return arithmetic.cast_to(index, shown)

    step = loop.bounds[2]
    if not isinstance(step, tensor) and step == 0:
        raise TypeMismatch("the step of a loop must not be zero")
    lower, upper, stride = (arithmetic.cast_to(p, counted) for p in parts)
    if isinstance(step, tensor) or step > 0:
        return _Counter(lower, upper, stride, show, not isinstance(step, tensor) or not counted.is_signed)
    zero, one = arithmetic.constant(0, counted), arithmetic.constant(1, counted)
    distance = _sub(lower, upper)
    if not counted.is_signed:  # below upper it wraps
        distance = conditions.where(conditions.compare(lower, upper, "gt"), distance, zero)
    magnitude = arithmetic.constant(-int(step), counted)
    count = arithmetic.floordiv(_add(distance, -int(step) - 1), magnitude)
    return _Counter(zero, count, one, lambda index: show(_add(lower, _mul(index, stride))))


def _may_pass_int32(bounds: Iterable[Operand]) -> bool:
    """Whether a loop may count beyond int32 before it ends, where that is known, or likely by how long its step is."""
    lower, upper, step = (None if isinstance(bound, tensor) else int(bound) for bound in bounds)
    if step is None or abs(step) > _LONG_STEP:
        return step is not None
    if step < 0:
        return lower is not None and upper is not None and lower - upper - step - 1 > _LARGEST_INT32
    return upper is not None and upper + step - 1 > _LARGEST_INT32


def _leaving_for(frame: Frame, counter: _Counter, carried: Carried, body: Block, exits: Exits) -> None:
    """A for loop that may end early: a while loop that carries its index, the variables and the exits."""
    with frame.builder.into(body):
        following = _add(tensor(body.args[0]), counter.step)
        ends = exits.ends()
    exits.carry(body)
    carried.end_body(body, first=(following.value,), last=ends)
    before = Block()
    for argument in body.args:
        before.add_argument(argument.type, argument.name)
    with frame.builder.into(before):
        inside = counter.inside(tensor(before.args[0]))
        flag = conditions.logical_and(inside, conditions.logical_not(exits.left(before)))
        frame.builder.emit(control.Condition(flag.value, tuple(before.args)))
    inits = (counter.lower.value, *carried.inits(), *exits.inits())
    results = frame.builder.emit(control.While(inits, before, body)).results
    carried.finish(results[1:])
    carried.finish_index(lambda: counter.shown(_sub(tensor(results[0]), counter.step)))
    exits.finish(frame, results)


@statement(ast.While)
def _while(frame: Frame, node: ast.While) -> None:
    if node.orelse:
        raise frame.error(node, "'else' of a loop is not part of the kernel language")
    if frame.source.compile_time:
        _known_while(frame, node)
        return
    node = _with_assignments_inside(node)
    with frame.at(node):
        carried = Carried(frame, node.body, None)
        body = carried.compile_body(lambda block, names: None)
        exits = Exits.of(carried.end)
        ends: tuple[Value, ...] = ()
        before = Block()
        scope = carried.scope_in(before)
        if exits is not None:
            exits.carry(before)
            exits.carry(body)
            with frame.builder.into(body):
                ends = exits.ends()
        with frame.builder.into(before):
            flag = _condition(frame, node.test, scope, exits.left(before) if exits else None)
            frame.builder.emit(control.Condition(flag.value, tuple(before.args)))
        carried.end_body(body, last=ends)
        inits = (*carried.inits(), *(exits.inits() if exits else ()))
        results = frame.builder.emit(control.While(inits, before, body)).results
        carried.finish(results)
        if exits:
            exits.finish(frame, results)


def _with_assignments_inside(node: ast.While) -> ast.While:
    """``while (x := f()): ...`` as ``while True: if not (x := f()): break; ...``, where ``x`` is a variable of the
    body."""
    if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test)):
        return node
    leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
    made = ast.While(ast.Constant(True), [leave, *node.body], [])
    for new in (made, made.test, leave, leave.test, leave.body[0]):
        ast.copy_location(new, node.test)
    return made


def _condition(frame: Frame, test: ast.expr, scope: LocalScope, left: tensor | None) -> tensor:
    """The condition of a while loop in the current block, evaluated only by those who have not left."""
    outer, frame.scope = frame.scope, scope
    stays = frame.builder.block if left is None else Block()
    with frame.builder.into(stays):
        flag = scalar_condition(frame, test, evaluate(frame, test))
    frame.scope = outer
    if left is None:
        return flag
    meeting = Meeting()
    slot = meeting.join("the condition", False, flag)
    made = meeting.rebuild(slot, emit_conditional(frame, left, (Block(), stays), meeting))
    return conditions.as_condition(made)  # type: ignore[arg-type]
