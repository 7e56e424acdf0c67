"""How a kernel uses its parameters, read off its syntax tree: which are addresses, which are real numbers, which size
a tile. Nothing is compiled, so it works before any type is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import DeuteronError
from ..language.control import HINTS_WITHOUT_EFFECT
from ..language.inline import Inlinable, LibraryFunction
from ..language.results import gives_floats
from ..language.tensor import tensor
from .kernel import KernelSource, reading_of, source_of
from .modules import LanguageModule

#: Calls that read or write memory; the address, or the descriptor, is their first argument or what they are methods of.
_LOADS = {"load", "load_tensor_descriptor"}
_STORES = {"store", "store_tensor_descriptor"}
_ACCESSES = _LOADS | _STORES
#: Calls of descriptors alone.
_DESCRIPTOR_CALLS = {"load_tensor_descriptor", "store_tensor_descriptor"}
#: Methods of descriptors that read or write rows, with the place of the rows' numbers; tiles have a gather, too.
_ROW_CALLS = {"gather": 0, "scatter": 1}
#: Calls whose result points where their first argument (or ``base``) points.
_POINTER_KEEPERS = {"make_block_ptr", "make_tensor_descriptor", "advance", "multiple_of"} | {
    "max_contiguous",
    "max_constancy",
}
#: Calls whose arguments are whole numbers.
_INTEGER_CALLS = {"range", "static_range", "cdiv", "arange", "num_programs"}
#: Calls whose arguments are the shape of a tile.
_SHAPE_CALLS = {"arange", "zeros", "full", "zeros_like", "reshape", "broadcast_to", "view"}
#: Calls that describe an array; their parameters after the base, of which the last names here make the block.
_ARRAYS = {
    "make_block_ptr": ("shape", "strides", "offsets", "block_shape"),
    "make_tensor_descriptor": ("shape", "strides", "block_shape"),
}
_MAX_DEPTH = 8


@dataclass
class Usage:
    """Names of parameters by what they are used for. ``integer_pointers`` point to indices or offsets; ``loaded`` and
    ``stored`` are the pointers that the kernel reads and writes. ``descriptors`` are tensor descriptors that the host
    makes. ``idle`` are named nowhere but in loop hints that change no code, ``stages`` nowhere but in those and in
    hints of how many slots feed a loop's products."""

    pointers: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    integer_pointers: set[str] = field(default_factory=set)
    descriptors: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    reals: set[str] = field(default_factory=set)
    sizes: set[str] = field(default_factory=set)
    conditions: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    stages: set[str] = field(default_factory=set)
    has_dot: bool = False
    has_while: bool = False

    def of_pointers(self) -> tuple[set[str], ...]:
        """What is known of pointers: a caller's is what an address that it passes is computed from."""
        return self.pointers, self.loaded, self.stored, self.integer_pointers

    def of_values(self) -> tuple[set[str], ...]:
        """What is known of other parameters: a caller's is one that it passes as it is."""
        numbers = self.integers, self.reals, self.sizes, self.conditions
        return (*numbers, self.texts, self.dtypes, self.precisions)


def usage_of(source: KernelSource) -> Usage:
    """What a kernel does with each of its parameters. What cannot be told is in no set."""
    return _Reader(source, 0).read()


class _Reader:
    """Reads one function; calls of other jit functions are read in turn and mapped to the caller's names."""

    def __init__(self, source: KernelSource, depth: int) -> None:
        self.source = source
        self.depth = depth
        self.parameters = {a.name for a in source.arguments}
        self.found = Usage()
        self.bindings: dict[str, list[ast.expr]] = {}
        self.nodes = [node for statement in source.node.body for node in ast.walk(statement)]

    def read(self) -> Usage:
        for node in self.nodes:
            self._bind(node)
        self.found.has_while = any(isinstance(node, ast.While) for node in self.nodes)
        for node in self.nodes:
            match node:
                case ast.Call():
                    self._call(node)
                case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                    self.found.conditions |= self._bare_names(test)
                case ast.Compare(left=left, comparators=[right]):
                    self._compare(left, right)
                case _:
                    pass
        # Afterwards: whether an operand is a real number depends on which pointers hold indices.
        for node in self.nodes:
            if isinstance(node, ast.BinOp):
                self._mix(node.left, node.right)
            elif isinstance(node, ast.Compare):
                self._mix(node.left, node.comparators[0])
        self.found.integers -= self.found.pointers
        self.found.reals -= self.found.pointers | self.found.integers
        self.found.idle = self.parameters - self._named(HINTS_WITHOUT_EFFECT)
        self.found.stages = self.parameters - self._named((*HINTS_WITHOUT_EFFECT, "num_stages")) - self.found.idle
        return self.found

    def _named(self, left_out: Sequence[str]) -> set[str]:
        """Names in the function, but for those in the loop hints ``left_out``."""
        hints = {
            id(part)
            for node in self.nodes
            if isinstance(node, ast.Call) and _called(node) == "range"
            for keyword in node.keywords
            if keyword.arg in left_out
            for part in ast.walk(keyword.value)
        }
        return {node.id for node in self.nodes if isinstance(node, ast.Name) and id(node) not in hints}

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.bindings.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                # x += y: x also stands for what it was, which its other bindings say.
                self.bindings.setdefault(name, []).append(value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self.bindings.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.bindings.setdefault(name, []).append(value)
            case _:
                pass

    # ---- calls ------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> None:
        name = _called(call)
        if name in _ACCESSES or name.startswith("atomic_") or name in _POINTER_KEEPERS:
            self._access(call, name)
        if name in _ROW_CALLS and isinstance(call.func, ast.Attribute) and self._describes(call.func.value):
            self._rows(call, name, call.func.value)
        if name in _INTEGER_CALLS:
            for argument in call.args:
                self.found.integers |= self._reachable(argument)
        if name in _ARRAYS:
            self._array(call, _ARRAYS[name])
        if name in _SHAPE_CALLS:
            for argument in call.args:
                self.found.sizes |= self._bare_names(argument)
        self.found.has_dot |= name == "dot"
        if name == "to" and call.args:
            self.found.dtypes |= self._bare_names(call.args[0])
        for keyword in call.keywords:
            if keyword.arg == "dtype":
                self.found.dtypes |= self._bare_names(keyword.value)
            if keyword.arg == "input_precision":
                self.found.precisions |= self._bare_names(keyword.value)
        self._inlined(call)

    def _access(self, call: ast.Call, name: str) -> None:
        address = self._address(call)
        if address is None:
            return
        pointer = self._pointer(address)
        if pointer is not None:
            self.found.pointers.add(pointer)
            if name in _LOADS or name.startswith("atomic_"):
                self.found.loaded.add(pointer)
            if name in _STORES or name.startswith("atomic_"):
                self.found.stored.add(pointer)
        self.found.integers |= self._reachable(address)
        self._indices(address)
        if name in _DESCRIPTOR_CALLS or (self._is_method(call) and name in _ACCESSES):
            self._descriptor(call, address)
            return
        mask = _argument(call, 1 if name == "load" else 2, "mask")
        if mask is not None and name in _ACCESSES:
            self.found.integers |= self._reachable(mask)

    def _descriptor(self, call: ast.Call, descriptor: ast.expr) -> None:
        """An access through a descriptor: one that is a parameter comes from the host."""
        self.found.descriptors |= self._bare_names(descriptor) - self.bindings.keys()
        offsets = _argument(call, 0 if self._is_method(call) else 1, "offsets")
        if offsets is not None:
            self.found.integers |= self._reachable(offsets)

    def _describes(self, owner: ast.expr) -> bool:
        """Whether ``owner`` is a descriptor: one that the kernel makes, or a parameter with methods that tiles lack."""
        if not isinstance(owner, ast.Name):
            return isinstance(owner, ast.Call) and _called(owner) == "make_tensor_descriptor"
        made = self.bindings.get(owner.id, ())
        return any(map(self._describes, made)) if made else owner.id in self.parameters

    def _rows(self, call: ast.Call, name: str, descriptor: ast.expr) -> None:
        """Rows that are read or written through a descriptor."""
        self.found.descriptors |= self._bare_names(descriptor) - self.bindings.keys()
        pointer = self._pointer(descriptor)
        if pointer is not None:
            self.found.pointers.add(pointer)
            (self.found.loaded if name == "gather" else self.found.stored).add(pointer)
        first = _ROW_CALLS[name]
        for place, argument in ((first, "x_offsets"), (first + 1, "y_offset")):
            given = _argument(call, place, argument)
            if given is not None:
                self.found.integers |= self._reachable(given)
                self._indices(given)

    def _array(self, call: ast.Call, names: tuple[str, ...]) -> None:
        """The description of an array: sizes, strides and offsets are integers, and a block has a shape."""
        for place, name in enumerate(names, 1):
            given = _argument(call, place, name)
            if given is not None and name == "block_shape":
                self.found.sizes |= self._bare_names(given)
            elif given is not None:
                self.found.integers |= self._reachable(given)

    def _address(self, call: ast.Call) -> ast.expr | None:
        """The address or descriptor that a call is about: its owner where it is a method, else its first argument."""
        if isinstance(call.func, ast.Attribute) and self._is_method(call):
            return call.func.value
        return _argument(call, 0, "pointer", "base", "desc")

    def _is_method(self, call: ast.Call) -> bool:
        """Whether a call is a method of a value, and not a function of a module such as tl."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        while isinstance(owner, ast.Attribute | ast.Subscript):
            owner = owner.value
        if isinstance(owner, ast.Name):
            return owner.id in self.parameters or owner.id in self.bindings
        return owner is not None

    def _indices(self, address: ast.expr) -> None:
        """What is loaded to compute an address is an integer."""
        for expression in self._closure(address):
            for node in ast.walk(expression):
                if isinstance(node, ast.Call) and _called(node) in _LOADS:
                    source = self._address(node)
                    pointer = self._pointer(source) if source is not None else None
                    if pointer is not None:
                        self.found.integer_pointers.add(pointer)

    def _inlined(self, call: ast.Call) -> None:
        """Carry over what a called jit function does with its parameters."""
        if self.depth >= _MAX_DEPTH:
            return
        try:
            callee = dict(self.source.captured()).get(ast.unparse(call.func))
        except DeuteronError:
            return  # not a function of this text; the compilation says so at its place
        if not isinstance(callee, Inlinable) or isinstance(callee, LibraryFunction) or reading_of(callee).runs:
            return
        inner = _Reader(source_of(callee), self.depth + 1).read()
        self.found.has_dot |= inner.has_dot
        self.found.has_while |= inner.has_while
        names = [a.name for a in source_of(callee).arguments]
        given = [*zip(names, call.args, strict=False)]
        given += [(k.arg, k.value) for k in call.keywords if k.arg]
        for name, value in given:
            if name in inner.pointers:
                pointer = self._pointer(value)
                if name in inner.descriptors:
                    self.found.descriptors |= self._bare_names(value) - self.bindings.keys()
                for ours, theirs in zip(self.found.of_pointers(), inner.of_pointers(), strict=True):
                    if pointer and name in theirs:
                        ours.add(pointer)
            for ours, theirs in zip(self.found.of_values(), inner.of_values(), strict=True):
                if name in theirs:
                    ours |= self._bare_names(value)

    # ---- expressions ------------------------------------------------------------------------------------------

    def _compare(self, left: ast.expr, right: ast.expr) -> None:
        for one, other in ((left, right), (right, left)):
            if isinstance(other, ast.Constant) and isinstance(other.value, str):
                self.found.texts |= self._bare_names(one)

    def _mix(self, left: ast.expr, right: ast.expr) -> None:
        """A scalar combined with a floating-point value is one itself, unless it is used as an integer elsewhere."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ast.Name) and one.id in self.parameters and self._is_real(other):
                self.found.reals.add(one.id)

    def _is_real(self, expression: ast.expr) -> bool:
        for part in self._closure(expression):
            match part:
                case ast.Constant(value=float()):
                    return True
                case ast.Call() if _called(part) in _LOADS:
                    source = self._address(part)
                    pointer = self._pointer(source) if source is not None else None
                    if pointer not in self.found.integer_pointers:
                        return True
                case ast.Call() if gives_floats(self._function(part)):
                    return True
                case _:
                    pass
        return False

    def _function(self, call: ast.Call) -> object:
        """The function that a call is of, if it is one of the language or a method of tensors."""
        if isinstance(call.func, ast.Attribute) and self._is_method(call):
            return getattr(tensor, call.func.attr, None)
        return self._named_by(call.func)

    def _named_by(self, expression: ast.expr) -> object:
        """What a name of the language, or a path to one, stands for; None for others."""
        match expression:
            case ast.Name(id=name) if name in self.source.free_names:
                try:
                    return self.source.namespace.lookup(name)
                except (KeyError, DeuteronError):
                    return None  # of Python, or wrong: the compilation says so at its place
            case ast.Attribute(value=owner, attr=name):
                home = self._named_by(owner)
                return home.members.get(name) if isinstance(home, LanguageModule) else None
            case _:
                return None

    def _pointer(self, address: ast.expr) -> str | None:
        """The parameter that an address is computed from: the one called a pointer, else the leftmost summand."""
        summands = list(dict.fromkeys(self._summands(address, set())))
        named = [name for name in summands if name.lower().endswith(("ptr", "ptrs", "pointer"))]
        return next(iter(named or summands), None)

    def _summands(self, expression: ast.expr, seen: set[str]) -> Iterator[str]:
        match expression:
            case ast.Name(id=name):
                if name not in seen:
                    seen.add(name)
                    if name in self.parameters:
                        yield name
                    for value in self.bindings.get(name, ()):
                        yield from self._summands(value, seen)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                yield from self._summands(left, seen)
                yield from self._summands(right, seen)
            case ast.Subscript(value=value):
                yield from self._summands(value, seen)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._summands(body, seen)
                yield from self._summands(orelse, seen)
            case ast.Call() if _called(expression) in _POINTER_KEEPERS | {"to"}:
                inner = self._address(expression)
                if inner is not None:
                    yield from self._summands(inner, seen)
            case _:
                pass

    def _closure(self, expression: ast.expr) -> Iterator[ast.expr]:
        """An expression and all that its local names were assigned, transitively."""
        pending, seen = [expression], set[str]()
        while pending:
            current = pending.pop()
            for node in ast.walk(current):
                if isinstance(node, ast.expr):
                    yield node
                if isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    pending.extend(self.bindings.get(node.id, ()))

    def _reachable(self, expression: ast.expr) -> set[str]:
        names = {node.id for node in self._closure(expression) if isinstance(node, ast.Name)}
        return names & self.parameters

    def _bare_names(self, expression: ast.expr) -> set[str]:
        """Parameters that stand alone, in a tuple, or behind ``not``, ``and``, ``or``."""
        match expression:
            case ast.Name(id=name) if name in self.parameters:
                return {name}
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.BoolOp(values=items):
                return {name for item in items for name in self._bare_names(item)}
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._bare_names(operand)
            case _:
                return set()


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    if position < len(call.args):
        return call.args[position]
    return next((k.value for k in call.keywords if k.arg in names), None)
