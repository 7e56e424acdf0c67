"""Early exits: ``return``, ``break`` and ``continue`` as values.

Structured code has no jumps. Whether control has left is therefore a value like any other: flags of the scope, beside
the variables, merged by branches and carried by loops as variables are. The rest of a body runs only if nobody has
left; it is compiled once. Where the answer is known while compiling, nothing is emitted. Where it is not, the rest goes
into one side of a conditional that stays *open*: what follows, in whatever nesting of compile-time branches and
unrolled loops, is appended there, until :func:`close` ends it at the boundary that catches the exit (a function, a
loop's body) or that must be a block of its own (a run-time branch).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..ir.core import Block
from ..language import conditions
from ..language.tensor import tensor
from .frame import Frame, OpenConditional
from .merging import merge
from .scope import LocalScope, Undefined

#: Most conditionals that stay open inside each other in one function; more are closed and opened again, so that a long
#: list of early returns does not nest deeper than the passes can follow.
MAX_OPEN = 32


def leave_function(frame: Frame, value: object) -> None:
    """Return ``value`` from here."""
    frame.scope.left = frame.scope.returned = True
    frame.scope.value = value


def leave_loop(frame: Frame) -> None:
    """Break from here."""
    frame.scope.left = frame.scope.broke = True


def leave_iteration(frame: Frame) -> None:
    """Continue from here."""
    frame.scope.left = True


def goes_on(frame: Frame, node: ast.AST) -> bool:
    """Whether control may reach ``node``; from here on code runs only if it did."""
    left = frame.scope.left
    if not isinstance(left, tensor):
        return not left
    if not _may_open(frame):
        close(frame, frame.mark)
        left = frame.scope.left
        assert isinstance(left, tensor)  # noqa: S101 -- some paths left and some did not, before and after
    here, gone = frame.scope, frame.scope.copy()
    gone.left = True
    gone.returned = here.returned is left or here.returned
    gone.broke = here.broke is left or here.broke
    here.left = here.returned = here.broke = False
    blocks = (Block(), Block())
    _open(frame, OpenConditional(node, left, blocks, 0, gone, frame.builder.block), here)
    return True


def split(
    frame: Frame, node: ast.AST, condition: tensor, blocks: tuple[Block, Block], scopes: tuple[LocalScope, LocalScope]
) -> None:
    """Go on after a conditional whose two sides are compiled.

    Where just one side has left for certain the conditional stays open and the rest goes into the other side; otherwise
    both sides are merged here.
    """
    gone = [scope.left is True for scope in scopes]
    if gone[0] == gone[1] or not _may_open(frame):
        frame.scope = merge(frame, node, condition, blocks, scopes)
        return
    side = gone.index(True)
    _open(frame, OpenConditional(node, condition, blocks, side, scopes[side], frame.builder.block), scopes[1 - side])


def _may_open(frame: Frame) -> bool:
    return len(frame.open) < MAX_OPEN or len(frame.open) == frame.mark


def _open(frame: Frame, conditional: OpenConditional, scope: LocalScope) -> None:
    frame.open.append(conditional)
    frame.builder.block = conditional.blocks[1 - conditional.gone]
    frame.scope = scope


def close(frame: Frame, mark: int, *, final: bool = False) -> None:
    """End the conditionals opened since ``mark``, innermost first.

    Their sides meet in the scope; at the end of a function (``final``) only the returned value matters.
    """
    while len(frame.open) > mark:
        ended = frame.open.pop()
        frame.builder.block = ended.outer
        scopes = (ended.scope, frame.scope) if ended.gone == 0 else (frame.scope, ended.scope)
        frame.scope = merge(frame, ended.node, ended.condition, ended.blocks, scopes, final=final)


@contextmanager
def boundary(frame: Frame) -> Iterator[None]:
    """Conditionals opened inside are closed at the end."""
    outer, frame.mark = frame.mark, len(frame.open)
    yield
    close(frame, frame.mark)
    frame.mark = outer


@contextmanager
def unrolled_loop(frame: Frame) -> Iterator[None]:
    """The iterations of a loop are compiled inside; those who left by ``break`` are back behind it. Names that are
    doubtful for the sake of the loop around it are not forgotten here, and doubtful again behind it."""
    outer, frame.scope.doubtful = frame.scope.doubtful, frozenset()
    with boundary(frame), frame.looping():
        yield
    catch_break(frame)
    _forget_doubtful(frame)
    frame.scope.doubtful = outer


def compile_region(frame: Frame, block: Block, scope: LocalScope, body: Callable[[], None]) -> LocalScope:
    """Compile ``body`` into ``block``, starting with ``scope``; returns the scope at its end."""
    outer, frame.scope = frame.scope, scope
    with frame.builder.into(block), boundary(frame):
        body()
    end, frame.scope = frame.scope, outer
    return end


def catch_continue(frame: Frame) -> None:
    """At the end of an iteration: those who left by ``continue`` are back."""
    frame.scope.left = either(frame.scope.returned, frame.scope.broke)
    _forget_doubtful(frame)


def catch_break(frame: Frame) -> None:
    """After a loop: those who left by ``break`` are back."""
    frame.scope.broke = False
    frame.scope.left = frame.scope.returned


def _forget_doubtful(frame: Frame) -> None:
    """Where those who left come back, names that only the others defined are not defined."""
    skipped = Undefined(
        "a 'break' or 'continue' may skip its definition in the loop above", "give it a value before the loop"
    )
    frame.scope.names |= dict.fromkeys(frame.scope.doubtful, skipped)
    frame.scope.doubtful = frozenset()


def either(a: object, b: object) -> object:
    """Whether one of two flags is set: True, False, or a run-time i1."""
    if a is True or b is True:
        return True
    if isinstance(a, tensor) and isinstance(b, tensor):
        return a if a is b else conditions.logical_or(a, b)
    return a if isinstance(a, tensor) else b
