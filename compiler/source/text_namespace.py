"""What names mean in a source text, which is parsed and never executed: its imports of the language, constants, jit
functions, aggregates and classes of constants."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import CompilationError, UnsupportedSyntax
from ..language.aggregate import Aggregate, AggregateType
from ..language.constexpr import constexpr, unwrap
from ..language.extent import extent
from ..language.inline import Inlinable
from .namespace import HelperModule, Namespace, decorator, evaluate_constant, is_aggregate, is_jit
from .parsing import place
from .top_level import Binding, Definition, bindings_of

#: Elements of tuples and strings that operations on the constants of one text may make in all, which takes a second or
#: two: each makes few, but a text has room for a hundred thousand operations.
MOST_ELEMENTS = 1_000_000


@dataclass(eq=False, slots=True)
class _Named:
    """A binding, the number of those before it, and what it stands for once that was asked for."""

    binding: Binding
    number: int
    made: tuple[object, ...] = ()


class TextNamespace:
    """The names of a whole text, as its functions see them: the last binding of each counts."""

    def __init__(
        self,
        tree: ast.Module,
        filename: str,
        lines: Sequence[str],
        make_function: Callable[[ast.FunctionDef], Inlinable],
    ) -> None:
        self._filename, self._lines = filename, lines
        self._make_function = make_function
        #: How many names are being made: what one is defined by is made in between.
        self._under_way = 0
        self._elements = 0
        self._named: defaultdict[str, list[_Named]] = defaultdict(list)
        self._places: dict[ast.AST, int] = {}
        for number, binding in enumerate(bindings_of(tree.body)):
            self._named[binding.name].append(_Named(binding, number))
            if binding.definition is not None:
                self._places[binding.definition] = number

    def lookup(self, name: str) -> object:
        """What ``name`` means in a kernel; functions and constants are made when first asked for.

        Raises KeyError where the text has no such name, UnsupportedSyntax where its value is no constant or cannot be
        told.
        """
        return self.lookup_before(name, None)

    def at(self, definition: ast.AST) -> Namespace:
        """What names meant where a function of the top level was defined; for others what they mean in the end."""
        number = self._places.get(definition)
        return self if number is None else _Before(self, number)

    def lookup_before(self, name: str, number: int | None) -> object:
        """What ``name`` meant before the binding of that number, of all of the text; raises as :meth:`lookup`."""
        bound = [named for named in self._named.get(name, ()) if number is None or named.number < number]
        if not bound:
            raise KeyError(name)
        named = bound[-1]
        if not named.made:
            named.made = (self._stands_for(named),)
        return named.made[0]

    def _stands_for(self, named: _Named) -> object:
        binding = named.binding
        if binding.unsure is not None:
            error = UnsupportedSyntax(
                f"{binding.name!r} is bound under a condition, and a text is not executed: nobody can tell what it is",
                hint="bind it once, at the top level of the text",
            )
            raise self._placed(error, binding.unsure)
        if binding.definition is None:
            if binding.member is None:
                raise KeyError(binding.name)
            return binding.member
        self._under_way += 1
        try:
            return self._made(binding.definition, _Before(self, named.number))
        except RecursionError:
            if self._under_way > 1:
                raise  # a class passes over what is no constant, but not over this
            error = UnsupportedSyntax(f"{binding.name!r} is defined by too many other constants, one by the other")
            raise self._placed(error, binding.definition) from None
        except CompilationError as error:
            if error.location is None:
                self._placed(error, binding.definition)
            raise
        finally:
            self._under_way -= 1

    def count(self, value: object) -> None:
        """Add what an operation made to what all operations on the text's constants have made.

        Raises:
            UnsupportedSyntax: that is more than :data:`MOST_ELEMENTS`.
        """
        self._elements += extent(value)
        if self._elements > MOST_ELEMENTS:
            raise UnsupportedSyntax(f"the constants of the text take more than {MOST_ELEMENTS} elements to make")

    def _made(self, definition: Definition, before: Namespace) -> object:
        if isinstance(definition, ast.FunctionDef):
            if not any(map(is_jit, definition.decorator_list)):
                raise KeyError(definition.name)  # of Python
            return self._make_function(definition)
        if isinstance(definition, ast.ClassDef):
            aggregate = any(map(is_aggregate, definition.decorator_list))
            return self._make_class(definition, before) if aggregate else self._make_holder(definition, before)
        return unwrap(evaluate_constant(definition, before))

    def _placed(self, error: CompilationError, node: ast.stmt | ast.expr) -> CompilationError:
        error.place(place(self._filename, self._lines, node), self._lines[node.lineno - 1])
        return error

    def _make_holder(self, node: ast.ClassDef, before: Namespace) -> HelperModule:
        """A class that is not for kernels itself: its constants and jit functions are."""
        body: dict[str, object] = {}
        for statement in node.body:
            match statement:
                case ast.FunctionDef(name=name) if any(map(is_jit, statement.decorator_list)):
                    body[name] = self._make_function(statement)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    with suppress(KeyError, CompilationError):  # what is no constant is host code
                        body[name] = constexpr(evaluate_constant(value, before))
                case _:
                    pass
        body = {name: value for name, value in body.items() if not _is_pythons(name)}
        if not body:
            raise KeyError(node.name)  # nothing of it is for kernels
        return HelperModule(type(node.name, (), body))

    def _make_class(self, node: ast.ClassDef, before: Namespace) -> AggregateType:
        """The aggregate of a class statement; raises UnsupportedSyntax for what aggregates do not have."""
        annotations: dict[str, object] = {}
        body: dict[str, object] = {"__module__": __name__, "__annotations__": annotations}
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)) if _is_pythons(name):
                    message = f"the aggregate {node.name} cannot have a field {name!r}: choose another name"
                    raise self._placed(UnsupportedSyntax(message), statement)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value):
                    annotations[name] = _field_kind(node.name, name, kind, before)
                    if value is not None:
                        body[name] = evaluate_constant(value, before)
                case ast.FunctionDef(name=name):
                    function = self._make_function(statement)
                    is_property = any(decorator(d) == "property" for d in statement.decorator_list)
                    body[name] = property(function) if is_property else function  # type: ignore[arg-type]
                case _:
                    pass  # as at the top level, anything else is host code
        try:
            bases = [before.lookup(ast.unparse(base)) for base in node.bases]
            if other := [base for base in bases if not isinstance(base, AggregateType)]:
                raise TypeError(f"it can only inherit from other aggregates, not from {other[0]!r}")
            return AggregateType(node.name, tuple(bases) or (Aggregate,), body, is_text=True)  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise self._placed(UnsupportedSyntax(f"the aggregate {node.name}: {error}"), node) from error


@dataclass(frozen=True, slots=True)
class _Before:
    """The names of a text as they are before the binding of some number: what constants and classes are made of."""

    whole: TextNamespace
    number: int

    def lookup(self, name: str) -> object:
        """As :meth:`TextNamespace.lookup`."""
        return self.whole.lookup_before(name, self.number)

    def at(self, definition: ast.AST) -> Namespace:
        """As :meth:`TextNamespace.at`."""
        return self.whole.at(definition)

    def count(self, value: object) -> None:
        """As :meth:`TextNamespace.count`."""
        self.whole.count(value)


def _field_kind(aggregate: str, field: str, annotation: ast.expr, before: Namespace) -> object:
    """What an annotation stands for. Python executes those that are strings: here they are refused."""
    kind = evaluate_constant(annotation, before)
    if isinstance(kind, str):
        raise UnsupportedSyntax(
            f"the field {field!r} of the aggregate {aggregate} is annotated with a string",
            hint="write the type itself, without quotes",
        )
    return kind


def _is_pythons(name: str) -> bool:
    """Whether Python itself reads an attribute of this name when it makes a class."""
    return name.startswith("__") and name.endswith("__")
