"""The configurations that a kernel's autotune decorator lists, worked out from the text without running it.

Authors write them as literals, as comprehensions over literals, as constants of the file, or as a function of the file
that returns such a list. What is more than that is left out, and said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import DeuteronError
from ..options import SCHEDULE_OPTIONS
from ..syntax import module_tree
from . import constants
from .kernel import KernelSource

#: Most configurations that are read, and most steps of comprehensions.
MOST_CONFIGS, MOST_STEPS = 4096, 100_000


@dataclass(frozen=True)
class ListedConfigs:
    """``configs``: constexprs and schedule options of each, in order. ``unread``: why some were not read, if so."""

    configs: tuple[Mapping[str, object], ...] = ()
    unread: str | None = None


class _Unknown(Exception):
    """An expression whose value the text alone does not tell."""


def listed_configs(source: KernelSource) -> ListedConfigs:
    """What the autotune decorators of ``source`` list."""
    found: list[Mapping[str, object]] = []
    unread = None
    for decorator in source.node.decorator_list:
        if isinstance(decorator, ast.Call) and _last_name(decorator.func) == "autotune":
            named = (k.value for k in decorator.keywords if k.arg == "configs")
            configs = next(named, decorator.args[0] if decorator.args else None)
            if configs is None:
                continue
            for part in _summands(configs):
                try:
                    found += _as_configs(_Reader(_module_of(source)).value(part, {}))
                except (_Unknown, DeuteronError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
                    unread = f"{ast.unparse(part)[:60]} is not known without running the file ({error})"
    return ListedConfigs(tuple(found[:MOST_CONFIGS]), unread)


def _summands(node: ast.expr) -> Iterator[ast.expr]:
    """The lists that are added up: of each as much as is known."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _summands(node.left)
        yield from _summands(node.right)
    else:
        yield node


@dataclass(frozen=True)
class _Config:
    values: Mapping[str, object]


def _as_configs(value: object) -> Iterator[Mapping[str, object]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _Unknown("it is no list")
    for item in value:
        if not isinstance(item, _Config):
            raise _Unknown("an element is no Config")
        yield item.values


def _module_of(source: KernelSource) -> ast.Module:
    try:
        return module_tree("\n".join(source.lines))
    except SyntaxError:  # the text of one function, indented: its decorators are literals or unknown
        return ast.Module([], [])


class _Reader:
    """Values of expressions of a module: literals, names assigned once at its top level, comprehensions, ``Config``."""

    def __init__(self, module: ast.Module) -> None:
        self.names: dict[str, ast.expr | ast.FunctionDef] = {}
        self.steps = 0
        for statement in module.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.names[name] = value
                case ast.FunctionDef(name=name):
                    self.names[name] = statement
                case _:
                    pass

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise _Unknown("it takes too long")

    def value(self, node: ast.expr, scope: Mapping[str, object]) -> object:
        """What an expression gives; raises _Unknown."""
        self._spend(1)
        match node:
            case ast.Constant(value=int() | float() | str() | bool() | None):
                return node.value
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [part for item in items for part in self._parts(item, scope)]
            case ast.Dict():
                return self._dict(node, scope)
            case ast.UnaryOp(op=op, operand=operand):
                return constants.unary(op, self.value(operand, scope))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(self.value(left, scope), self.value(right, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self.value(left, scope), self.value(right, scope))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return constants.compare(op, self.value(left, scope), self.value(right, scope))
            case ast.BoolOp(op=op, values=values):
                wanted = isinstance(op, ast.Or)
                return any(map(bool, self._all(values, scope))) if wanted else all(self._all(values, scope))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, scope) else orelse, scope)
            case (
                ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators)
            ):
                return [self.value(element, inner) for inner in self._scopes(generators, scope)]
            case ast.Call():
                return self._call(node, scope)
            case _:
                raise _Unknown(f"{ast.unparse(node)[:40]!r}")

    def _name(self, name: str, scope: Mapping[str, object]) -> object:
        if name in scope:
            return scope[name]
        bound = self.names.get(name)
        if not isinstance(bound, ast.expr):
            raise _Unknown(f"what is {name!r}?")
        del self.names[name]  # a name that stands for itself is unknown
        try:
            return self.value(bound, {})
        finally:
            self.names[name] = bound

    def _parts(self, item: ast.expr, scope: Mapping[str, object]) -> list[object]:
        if not isinstance(item, ast.Starred):
            return [self.value(item, scope)]
        return self._items(item.value, scope)

    def _items(self, node: ast.expr, scope: Mapping[str, object]) -> list[object]:
        found = self.value(node, scope)
        if not isinstance(found, list | range | dict):
            raise _Unknown(f"{ast.unparse(node)[:40]!r} is no list")
        if isinstance(found, range) and found[MOST_STEPS:]:  # len() counts to 2**63 alone
            raise _Unknown("it takes too long")
        self._spend(len(found))
        return list(found)

    def _dict(self, node: ast.Dict, scope: Mapping[str, object]) -> dict[object, object]:
        made: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            found = self.value(value, scope)
            if key is not None:
                made[self.value(key, scope)] = found
            elif isinstance(found, dict):
                self._spend(len(found))
                made |= found
        return made

    def _sum(self, left: object, right: object) -> object:
        if isinstance(left, list) and isinstance(right, list):
            self._spend(len(left) + len(right))
            return left + right
        return self._arithmetic(ast.Add(), left, right)

    def _arithmetic(self, op: ast.operator, left: object, right: object) -> object:
        if isinstance(left, list | dict | range) or isinstance(right, list | dict | range):
            raise _Unknown("arithmetic of lists")
        return constants.binary(op, left, right)

    def _all(self, nodes: Sequence[ast.expr], scope: Mapping[str, object]) -> Iterator[object]:
        return (self.value(node, scope) for node in nodes)

    def _scopes(
        self, generators: Sequence[ast.comprehension], scope: Mapping[str, object]
    ) -> Iterator[dict[str, object]]:
        if not generators:
            yield dict(scope)
            return
        first, *rest = generators
        for item in self._items(first.iter, scope):
            inner = {**scope, **_unpacked(first.target, item)}
            if all(self._all(first.ifs, inner)):
                yield from self._scopes(rest, inner)

    def _call(self, node: ast.Call, scope: Mapping[str, object]) -> object:
        name = _last_name(node.func)
        if name == "Config":
            return self._config(node, scope)
        if name in ("range", "list", "tuple"):
            if name != "range":
                return self._items(node.args[0], scope) if node.args else []
            return range(*(_whole(argument) for argument in self._all(node.args, scope)))
        function = self.names.get(name)
        if isinstance(function, ast.FunctionDef) and not node.args and not node.keywords:
            return self._body(function)
        raise _Unknown(f"the call of {name!r}")

    def _body(self, function: ast.FunctionDef) -> object:
        """What a function without arguments returns, whose statements are assignments of names and a return."""
        scope: dict[str, object] = {}
        for statement in function.body:
            match statement:
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    scope[name] = self.value(value, scope)
                case ast.Return(value=ast.expr() as value):
                    return self.value(value, scope)
                case _:
                    break
        raise _Unknown(f"what {function.name!r} returns")

    def _config(self, node: ast.Call, scope: Mapping[str, object]) -> _Config:
        found = self.value(node.args[0], scope) if node.args else {}
        if not isinstance(found, dict):
            raise _Unknown("a Config without a dictionary")
        options = {k.arg: self.value(k.value, scope) for k in node.keywords if k.arg and k.arg != "pre_hook"}
        placed = dict(zip(("num_warps", "num_stages"), self._all(node.args[1:], scope), strict=False))
        kwargs = options.pop("kwargs", {})
        named = {str(n): v for n, v in {**found, **(kwargs if isinstance(kwargs, dict) else {})}.items()}
        return _Config(named | {n: v for n, v in {**placed, **options}.items() if n in SCHEDULE_OPTIONS})


def _unpacked(target: ast.expr, item: object) -> dict[str, object]:
    match target:
        case ast.Name(id=name):
            return {name: item}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(item, list) and len(item) == len(parts):
            return {n: v for part, value in zip(parts, item, strict=True) for n, v in _unpacked(part, value).items()}
        case _:
            raise _Unknown(f"the loop over {ast.unparse(target)!r}")


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise _Unknown("a range over no whole numbers")
    return value


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]
