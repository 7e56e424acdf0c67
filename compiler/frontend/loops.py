"""Loops: unrolled at compile time (static_range, tuples) or emitted with loop-carried values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import TypeMismatch
from ..ir.core import Block, Value
from ..ir.types import I32, Scalar
from ..language import arithmetic
from ..language.control import range as dynamic_range
from ..language.control import static_range
from ..language.promotion import spelled
from ..language.tensor import tensor
from ..tile import control
from .branches import leaf_types, leaves, rebuild, same_constant
from .expressions import evaluate, scalar_condition
from .frame import Frame, Undefined

if TYPE_CHECKING:
    from .statements import Returned

#: Most iterations of a compile-time loop: each one is compiled.
MAX_STATIC_ITERATIONS = 4096


def execute_for(frame: Frame, node: ast.For) -> Returned | None:
    """A for loop over range, tl.range, tl.static_range or a tuple."""
    if node.orelse:
        raise frame.error(node, "'else' of a loop is not part of the kernel language")
    iterable = evaluate(frame, node.iter)
    if isinstance(iterable, static_range):
        with frame.at(node.iter):
            _check_static(iterable)
        return _unrolled(frame, node, iterable.values())
    if isinstance(iterable, tuple):
        return _unrolled(frame, node, iterable)
    if isinstance(iterable, dynamic_range):
        with frame.at(node):
            _runtime_for(frame, node, iterable)
        return None
    raise frame.error(node.iter, f"cannot loop over {iterable!r}", "loop over range, tl.range or tl.static_range")


def _check_static(loop: static_range) -> None:
    for bound in (loop.arg1, loop.arg2, loop.step):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TypeMismatch("the bounds of tl.static_range must be known at compile time", hint="use tl.range")
    if loop.step == 0 or len(loop.values()) > MAX_STATIC_ITERATIONS:
        raise TypeMismatch(
            f"tl.static_range unrolls at most {MAX_STATIC_ITERATIONS} iterations",
            hint="use tl.range",
        )


def _unrolled(frame: Frame, node: ast.For, values: Iterable[object]) -> Returned | None:
    from .statements import assign, execute

    for value in values:
        assign(frame, node.target, value)
        returned = execute(frame, node.body)
        if returned is not None:
            return returned
    return None


def _runtime_for(frame: Frame, node: ast.For, loop: dynamic_range) -> None:
    if not isinstance(node.target, ast.Name):
        raise frame.error(node.target, "the target of a run-time loop must be one name")
    lower, upper, step, reverse = _bounds(loop)
    name = node.target.id

    def body(block: Block, scope: dict[str, object]) -> None:
        index = tensor(block.add_argument(lower.type, name))
        with frame.builder.into(block):
            scope[name] = index if reverse is None else reverse(index)

    carried = _Carried(frame, node.body)
    block = carried.compile_body(body)
    op = control.For(
        lower.value,
        upper.value,
        step.value,
        carried.inits(),
        loop.num_stages or 0,
        loop.loop_unroll_factor or 1,
        block,
    )
    carried.finish(frame.builder.emit(op).results)


def _bounds(
    loop: dynamic_range,
) -> tuple[tensor, tensor, tensor, Callable[[tensor], tensor] | None]:
    """lower, upper, step in one type; a negative constant step counts up and maps the index back."""
    parts = [arithmetic.as_tensor(b) for b in loop.bounds]
    for part in parts:
        if part.shape or not part.type.is_integer:
            raise TypeMismatch(f"loop bounds must be scalar integers, got {part.type}")
    widest = I32
    for part in parts:
        if isinstance(part.dtype, Scalar) and part.dtype.bits > widest.bits:
            widest = part.dtype
    step = loop.bounds[2]
    if not isinstance(step, tensor) and step == 0:
        raise TypeMismatch("the step of a loop must not be zero")
    lower, upper, stride = (arithmetic.cast_to(p, widest) for p in parts)
    if isinstance(step, tensor) or step > 0:
        return lower, upper, stride, None
    distance = arithmetic.sub(lower, upper)
    magnitude = arithmetic.constant(-int(step), widest)
    count = arithmetic.floordiv(arithmetic.add(distance, -int(step) - 1), magnitude)
    zero, one = arithmetic.constant(0, widest), arithmetic.constant(1, widest)
    return (
        zero,
        count,
        one,
        lambda index: arithmetic.add(lower, arithmetic.mul(index, stride)),
    )


def execute_while(frame: Frame, node: ast.While) -> None:
    """A while loop with a run-time condition."""
    if node.orelse:
        raise frame.error(node, "'else' of a loop is not part of the kernel language")
    carried = _Carried(frame, node.body)

    def nothing(block: Block, scope: dict[str, object]) -> None:
        return None

    body = carried.compile_body(nothing)
    before = Block()
    with frame.branch(before, carried.scope_in(before)):
        condition = evaluate(frame, node.test)
        with frame.at(node.test):
            if not isinstance(condition, tensor):
                condition = arithmetic.as_condition(bool(condition))
            flag = scalar_condition(frame, node.test, condition)
            frame.builder.emit(control.Condition(flag.value, tuple(before.args)))
    with frame.at(node):
        op = frame.builder.emit(control.While(carried.inits(), before, body))
        carried.finish(op.results)


class _Carried:
    """The variables that a loop body changes.

    Their types are those before the loop; a plain number that the body turns into something else takes the body's type,
    for which the body is compiled once more.
    """

    def __init__(self, frame: Frame, body: list[ast.stmt]) -> None:
        self.frame = frame
        self.body = body
        self.outer = dict(frame.scope)
        self.inner: dict[str, object] = {}
        stored = assigned_names(body)
        self.names = [n for n in self.outer if n in stored and _can_carry(self.outer[n])]
        self.types = {n: leaf_types(n, self.outer[n], self.outer[n]) for n in self.names}

    def scope_in(self, block: Block) -> dict[str, object]:
        """The scope inside the loop: carried variables are arguments of ``block``."""
        scope = dict(self.outer)
        for name in self.names:
            args = [tensor(block.add_argument(t, name)) for t in self.types[name]]
            scope[name] = rebuild(self.outer[name], args)
        return scope

    def compile_body(self, prepare: Callable[[Block, dict[str, object]], None]) -> Block:
        """Compile the body, ended by a yield; ``prepare`` adds leading arguments and names."""
        while True:
            block = Block()
            leading: dict[str, object] = {}
            prepare(block, leading)
            with self.frame.branch(block, {**self.scope_in(block), **leading}):
                if self._compile_into():
                    self.inner = self.frame.scope
                    return block

    def _compile_into(self) -> bool:
        """Compile the body once; False if a variable needs another type from the start."""
        from .statements import execute

        if execute(self.frame, self.body) is not None:
            returning = next(n for s in self.body for n in ast.walk(s) if isinstance(n, ast.Return))
            raise self.frame.error(
                returning,
                "'return' inside a run-time loop is not supported",
                "use a while loop with the condition to go on, and return after it",
            )
        yielded = []
        for name in self.names:
            value = self.frame.scope[name]
            if self._must_widen(name, value):
                return False
            yielded += [leaf.value for leaf in leaves(value, self.types[name])]
        self._check_constants()
        self.frame.builder.emit(control.Yield(tuple(yielded)))
        return True

    def _must_widen(self, name: str, value: object) -> bool:
        """Check the type at the end of the body; True if a plain number has to start in a wider type."""
        wanted, after = self.types[name], leaf_types(name, value, value)
        is_number = isinstance(value, bool | int | float)
        if after == wanted or (is_number and len(wanted) == 1):
            return False
        start = self.outer[name]
        if isinstance(start, bool | int | float) and wanted != after:
            met = leaf_types(name, start, value)
            if met != wanted:
                self.types[name] = met
                return True
        raise self.frame.located(
            TypeMismatch(
                f"the loop-carried variable {name!r} is {wanted[0]} before the loop and "
                f"{after[0]} at the end of its body",
                hint=f"give it one type: start with the wider one or end with .to({spelled(wanted[0].elem)})",
            ),
            self.body[0],
        )

    def _check_constants(self) -> None:
        """Compile-time values that are no numbers must not change in a run-time loop."""
        for name, start in self.outer.items():
            if name in self.names or isinstance(start, Undefined):
                continue
            if not same_constant(start, self.frame.scope.get(name, start)):
                raise self.frame.located(
                    TypeMismatch(f"{name!r} changes in a run-time loop but is not a tensor or number"),
                    self.body[0],
                )

    def inits(self) -> tuple[Value, ...]:
        """The carried values before the loop, as constants where they are numbers."""
        return tuple(leaf.value for n in self.names for leaf in leaves(self.outer[n], self.types[n]))

    def finish(self, results: tuple[Value, ...]) -> None:
        """Bind the carried variables to the loop's results; what only the body defined is gone."""
        parts = [tensor(r) for r in results]
        for name in self.inner.keys() - self.outer.keys():
            self.frame.scope[name] = Undefined(
                "it is defined only inside the loop above", "give it a value before the loop"
            )
        for name in self.names:
            self.frame.scope[name] = rebuild(self.outer[name], parts)


def _can_carry(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_can_carry(v) for v in value)
    return isinstance(value, tensor | bool | int | float)


def assigned_names(body: list[ast.stmt]) -> set[str]:
    """Every name that the statements assign."""
    return {
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
