"""What kernels that run as Python are rewritten to where Python means something else than compiled kernels do.

``and`` and ``or`` are those of the language (language/truth.py), which give a boolean of two tensors, and ``not`` of
tiles is elementwise. Python would ask a tile for one truth value: ``x and y`` calls :func:`_joined`. And numbers get
types that are assigned to names, or among which run time chooses (:mod:`.numbers`). Functions that have such things are
compiled anew from their text.
Everything else, names, lines and closures among it, stays as it was.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeGuard, TypeVar, cast

from ...language.conditions import as_condition, logical_not
from ...language.tensor import tensor
from ...language.truth import decides, joined
from ...language.typed import Typed
from ...python_text import PythonText, text_of
from ...source import returns
from ...syntax import module_tree
from .numbers import UNREAD, annotated, assigned, chosen, negated, noted, returned

#: Names with a dot are nobody else's in a kernel.
_JOINED, _SETTLED, _NEGATED, _UNREAD = "joined.tiles", "joined.settled", "joined.negated", UNREAD
_ASSIGNED, _ANNOTATED, _CHOSEN = "number.assigned", "number.annotated", "number.chosen"
_NOTED, _RETURNED, _ASKED, _AT_RUN_TIME = "returned.noted", "returned.value", "returned.asked", "is.tensor"


def _is_tile(value: object) -> TypeGuard[tensor]:
    return isinstance(value, tensor) and value.numel != 1


def _settled(value: object, by: bool, effects: bool) -> bool:
    """Whether the other operand is not evaluated; ``by``: the truth value that decides, True for ``or``. One that has
    ``effects``, a load perhaps, is not where the first decides at run time, though compiled kernels would."""
    return decides(value, by) or (effects and not _is_tile(value) and bool(value) is by)


def _joined(first: object, second: object, by: bool) -> object:
    if second is not UNREAD:
        return joined(first, second, by)
    return as_condition(first) if isinstance(first, tensor) else bool(first) if isinstance(first, Typed) else first


def _negated(value: object) -> object:
    return logical_not(value) if _is_tile(value) else negated(value)


def _at_run_time(condition: object) -> bool:
    return isinstance(condition, tensor)


#: What the code of :func:`rewritten` needs among its globals.
HELPERS: dict[str, object] = {
    _JOINED: _joined,
    _SETTLED: _settled,
    _NEGATED: _negated,
    _UNREAD: UNREAD,
    _ASSIGNED: assigned,
    _ANNOTATED: annotated,
    _CHOSEN: chosen,
    _NOTED: noted,
    _RETURNED: returned,
    _AT_RUN_TIME: _at_run_time,
}


_Binding = TypeVar("_Binding", ast.Assign, ast.NamedExpr)


class _Rewriting(ast.NodeTransformer):
    """``x and y`` becomes ``joined(held := x, unread if settled(held, False, effects) else y, False)``, so do chains of
    comparisons, and ``n = x`` becomes ``n = assigned(x)``."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.chooses = _chooses(function)
        #: Of what a function returns, the items that need no types (see source/returns.py): beside what it returns
        #: behind it, and beside all that it returns.
        self._plain = _plain(function)
        self.held = 0
        self.changed = False
        #: Names that were declared to be constexpr and have no value yet, as in frontend/frame.py.
        self._announced: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        match node.targets:
            case [ast.Name(id=name)]:
                return self._typed(node, name)
            case [ast.Tuple(elts=parts) | ast.List(elts=parts)]:
                plain = [at for at, part in enumerate(parts) if isinstance(part, ast.Name) and self._takes(part.id)]
                self.changed = True
                node.value = _call(_ASSIGNED, node.value, _numbers(plain))
            case [_, _, *_]:  # x = y = value
                self.changed = True
                node.value = _call(_ASSIGNED, node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        name = node.target.id
        value = ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
        return self._typed(ast.copy_location(ast.Assign([node.target], value), node), name)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            self._announced.add(node.target.id)
            return node
        self.changed = True
        value = _call(_ANNOTATED, node.value, node.annotation)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        self.generic_visit(node)
        return self._typed(node, node.target.id)

    def _typed(self, node: _Binding, name: str) -> _Binding:
        """``node``, of whose value numbers get types, unless ``name`` was announced."""
        if not self._takes(name):
            self.changed = True
            node.value = _call(_ASSIGNED, node.value)
        return node

    def _takes(self, name: str) -> bool:
        """Whether the name was announced, and now has the value that it was announced for."""
        announced = name in self._announced
        self._announced.discard(name)
        return announced

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        effects = [_has_effects(value) for value in node.values]
        self.generic_visit(node)
        return ast.copy_location(self._joined(node.values, effects, isinstance(node.op, ast.Or)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """``x < y < z`` is ``x < y and y < z``, with ``y`` evaluated once."""
        effects = [_has_effects(value) for value in node.comparators]
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        left = node.left
        pairs: list[ast.expr] = []
        for op, right in zip(node.ops, node.comparators, strict=True):
            held, again = self._hold(right) if len(pairs) < len(node.ops) - 1 else (right, right)
            pairs.append(ast.Compare(left, [op], [held]))
            left = again
        return ast.copy_location(self._joined(pairs, effects, by=False), node)

    def _joined(self, operands: Sequence[ast.expr], effects: Sequence[bool], by: bool) -> ast.expr:
        """``and`` of the operands, or, ``by`` True, ``or``."""
        first = operands[0]
        for other, has_effects in zip(operands[1:], effects[1:], strict=True):
            held, again = self._hold(first)
            settled = _call(_SETTLED, again, ast.Constant(by), ast.Constant(has_effects))
            unread = ast.Name(_UNREAD, ast.Load())
            first = _call(_JOINED, held, ast.IfExp(settled, unread, other), ast.Constant(by))
        return first

    def _hold(self, value: ast.expr) -> tuple[ast.expr, ast.expr]:
        """``value`` with a name for what it gives, and that name."""
        self.held += 1
        name = f"joined.{self.held}"
        return ast.NamedExpr(ast.Name(name, ast.Store()), value), ast.Name(name, ast.Load())

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        self.held += 1
        return ast.copy_location(_call(_NEGATED, node.operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """``a if c else b`` becomes ``chosen(held := c, a if held else b, b if held else a)``, the last of which is
        evaluated with a condition of run time alone, and only where it does no more than compute."""
        computes = not any(map(_has_effects, (node.body, node.orelse)))
        sides = copy.deepcopy((node.orelse, node.body))
        self.generic_visit(node)
        held, again = self._hold(node.test)
        unread = ast.Name(_UNREAD, ast.Load())
        other: ast.expr = unread
        if computes:
            turned = ast.IfExp(again, *map(self.visit, sides))
            other = ast.IfExp(_call(_AT_RUN_TIME, again), turned, unread)
        return ast.copy_location(_call(_CHOSEN, held, ast.IfExp(again, node.body, node.orelse), other), node)

    def visit_If(self, node: ast.If) -> ast.stmt:
        return self._noting(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._noting(node)

    def _noting(self, node: ast.If | ast.While) -> ast.stmt:
        self.generic_visit(node)
        if self.chooses:
            node.test = _call(_NOTED, ast.Name(_ASKED, ast.Load()), node.test)
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None:
            return node
        later, elsewhere = self._plain[node]
        if later is not None:
            self.changed = True
            node.value = _call(_ASSIGNED, node.value, _numbers(later))
        elif self.chooses and elsewhere is not None:
            node.value = _call(_RETURNED, ast.Name(_ASKED, ast.Load()), node.value, _numbers(elsewhere))
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        return node  # in whose iterables nothing can be assigned

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        return node


def _chooses(node: ast.FunctionDef) -> bool:
    """Whether a function returns literals, and not always the same."""
    values = returns.returned(node)
    literal = not any(isinstance(part, ast.Name) for value in values for part in ast.walk(value))
    return literal and len(set(map(ast.unparse, values))) > 1


def _plain(function: ast.FunctionDef) -> dict[ast.Return, tuple[tuple[int, ...] | None, tuple[int, ...] | None]]:
    every = returns.returned(function)
    return {
        node: (
            returns.alike(node.value, returns.reached_after(function.body, node)),
            returns.alike(node.value, every),
        )
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    }


def _has_effects(node: ast.expr) -> bool:
    """Whether the evaluation may do more than compute: read memory, bind a name, or fail."""
    return any(isinstance(part, ast.Call | ast.Subscript | ast.NamedExpr) for part in ast.walk(node))


def _numbers(numbers: Sequence[int]) -> ast.expr:
    return ast.Tuple([ast.Constant(number) for number in numbers], ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def rewritten(function: FunctionType) -> CodeType:
    """The code of a function that means what it means compiled; its own where nothing differs, or where it has no
    text."""
    try:
        return _rewritten(function.__code__, text_of(function))
    except OSError:
        return function.__code__


@lru_cache(maxsize=1024)
def _rewritten(code: CodeType, text: PythonText) -> CodeType:
    try:
        module = module_tree(textwrap.dedent("".join(text.lines)))
    except SyntaxError:
        return code
    node = module.body[0]
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        return code
    _place(module, text)
    node.decorator_list = []
    rewriting = _Rewriting(node)
    node.body = [rewriting.visit(statement) for statement in node.body]
    if not (rewriting.held or rewriting.changed or rewriting.chooses):
        return code
    if rewriting.chooses:
        none_yet = ast.Assign([ast.Name(_ASKED, ast.Store())], ast.List([], ast.Load()))
        node.body.insert(0, ast.copy_location(none_yet, node.body[0]))
    if code.co_freevars:  # they are free again as what a function around it binds
        module = module_tree(f"def around({', '.join(code.co_freevars)}): pass")
        cast(ast.FunctionDef, module.body[0]).body = [node]
    made = compile(ast.fix_missing_locations(module), code.co_filename, "exec", dont_inherit=True)
    return _inside(_inside(made, "around") if code.co_freevars else made, code.co_name)


def _place(module: ast.Module, text: PythonText) -> None:
    """Lines and columns of a function whose text was parsed by itself, without its indentation, as in its file."""
    indent = len(text.lines[0]) - len(text.lines[0].lstrip())
    for node in ast.walk(module):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno += text.first_line - 1
            node.col_offset += indent
            if node.end_lineno is not None and node.end_col_offset is not None:
                node.end_lineno += text.first_line - 1
                node.end_col_offset += indent


def _inside(code: CodeType, name: str) -> CodeType:
    return next(held for held in code.co_consts if isinstance(held, CodeType) and held.co_name == name)
