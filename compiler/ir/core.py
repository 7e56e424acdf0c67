"""The SSA core: values, operations declared as dataclasses, blocks and functions.

An operation class *is* its declaration. Fields annotated ``Value`` are operands, ``Value | None`` optional operands,
``tuple[Value, ...]`` variadic operands, ``Block`` nested regions; every other field is an attribute. Printer, parser,
cloning and verification follow from that declaration, so adding an operation is adding one class.

Control flow is structured: a region is always one :class:`Block`, ended by a terminator where its op expects values.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, dataclass_transform, get_type_hints

from ..errors import IRError, Location, TypeMismatch
from .types import Element, Tile

OpT = TypeVar("OpT", bound="Op")


class Value:
    """One SSA value: a block argument or a result of one operation."""

    __slots__ = ("type", "owner", "index", "name")

    def __init__(self, type: Tile, owner: Op | Block | None = None, index: int = 0, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name  # a hint for the printer, from the user's source

    @property
    def op(self) -> Op | None:
        """The operation that defines this value; None for block arguments."""
        return self.owner if isinstance(self.owner, Op) else None

    def __repr__(self) -> str:
        return f"<Value {self.name or '?'}: {self.type}>"


class Effect(enum.Enum):
    """What an operation does besides computing its results."""

    PURE = "pure"  # may be removed, duplicated, moved
    READ = "read"  # reads memory: may be removed, not moved across writes
    WRITE = "write"  # writes memory or talks to the user: stays where it is
    CONTROL = "control"  # effects are those of its regions
    TERMINATOR = "terminator"  # ends a block


class FieldKind(enum.Enum):
    OPERAND = "operand"
    OPTIONAL = "optional"
    VARIADIC = "variadic"
    BLOCK = "block"
    ATTRIBUTE = "attribute"


Attribute = int | float | str | bool | None | tuple[int, ...] | Tile | Element

REGISTRY: dict[str, type[Op]] = {}


@dataclass_transform(eq_default=False, field_specifiers=(field,))
class Op:
    """Base of all operations; see the module docstring for how a subclass declares itself.

    Subclasses pass ``mnemonic`` (and ``effect`` unless pure) as class keywords and define :meth:`infer`, which checks
    operands and attributes and returns the result types: verification and typing are one method.
    """

    mnemonic: ClassVar[str] = ""
    effect: ClassVar[Effect] = Effect.PURE
    elementwise: ClassVar[bool] = False
    kinds: ClassVar[Mapping[str, FieldKind]] = {}
    hints: ClassVar[Mapping[str, object]] = {}

    results: tuple[Value, ...] = dataclasses.field(init=False, repr=False)
    location: Location | None = dataclasses.field(init=False, default=None, repr=False)

    def __init_subclass__(
        cls,
        /,
        mnemonic: str = "",
        effect: Effect | None = None,
        elementwise: bool | None = None,
    ) -> None:
        if effect is not None:
            cls.effect = effect
        if elementwise is not None:
            cls.elementwise = elementwise
        # One without fields of its own, as a third are, has all of its base's; declaring them anew takes 10 ms.
        if Op in cls.__bases__ or "__annotations__" in cls.__dict__:
            cls._declare()
        cls.mnemonic = mnemonic
        if mnemonic and REGISTRY.setdefault(mnemonic, cls) is not cls:  # an abstract base such as Binary has none
            raise TypeError(f"two operations are called {mnemonic!r}")

    @classmethod
    def _declare(cls) -> None:
        dataclass(eq=False, repr=False)(cls)
        hints = get_type_hints(cls)
        names = [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]
        cls.hints = {n: hints[n] for n in names}
        cls.kinds = {n: _kind(hints[n]) for n in names}
        cls._operand_fields = tuple(
            (n, k is FieldKind.VARIADIC)
            for n, k in cls.kinds.items()
            if k in (FieldKind.OPERAND, FieldKind.OPTIONAL, FieldKind.VARIADIC)
        )
        cls._block_fields = tuple(n for n, k in cls.kinds.items() if k is FieldKind.BLOCK)

    # By kind, because passes ask for them thousands of times a kernel. Operands with whether they are variadic.
    _operand_fields: ClassVar[tuple[tuple[str, bool], ...]] = ()
    _block_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        types = self.infer()
        self.results = tuple(Value(t, self, i) for i, t in enumerate(types))

    def infer(self) -> tuple[Tile, ...]:
        """Check operands and attributes; return the result types. Raises TypeMismatch."""
        return ()

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def operands(self) -> list[Value]:
        """All operands in declaration order; absent optional ones are left out."""
        out: list[Value] = []
        for name, variadic in self._operand_fields:
            held = getattr(self, name)
            if variadic:
                out.extend(held)
            elif held is not None:
                out.append(held)
        return out

    @property
    def reads(self) -> set[Value]:
        """The operands, and those of all operations in its regions."""
        return {value for op in self.walk() for value in op.operands}

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The fields that are neither operands nor blocks, by name in declaration order."""
        return {n: getattr(self, n) for n, k in self.kinds.items() if k is FieldKind.ATTRIBUTE}

    @property
    def blocks(self) -> list[Block]:
        """The regions in declaration order; empty for an operation without."""
        return [getattr(self, name) for name in self._block_fields] if self._block_fields else []

    def walk(self) -> Iterator[Op]:
        """Itself, and every operation in its regions, outer before inner, in order."""
        yield self
        for name in self._block_fields:
            yield from getattr(self, name).walk()

    def map_operands(self, replace: Callable[[Value], Value]) -> None:
        """Replace every operand in place. Types must not change."""
        for name, variadic in self._operand_fields:
            held = getattr(self, name)
            if variadic:
                setattr(self, name, tuple(map(replace, held)))
            elif held is not None:
                setattr(self, name, replace(held))

    def replace_operands(self, replaced: Mapping[Value, Value]) -> None:
        """Read the values of ``replaced`` instead of its keys, in place; what is in its regions stays as it is."""
        self.map_operands(lambda value: replaced.get(value, value))

    def replace_uses(self, replaced: Mapping[Value, Value]) -> None:
        """The same for it and for all operations in its regions."""
        for op in self.walk():
            op.replace_operands(replaced)

    def clone(self, env: dict[Value, Value], **changes: object) -> Op:
        """A copy whose operands are looked up in ``env`` (missing ones stay); blocks are cloned too.

        ``changes`` replaces fields. ``env`` is extended with the results, in order.
        """
        made: dict[str, object] = {}
        for name, kind in self.kinds.items():
            if name in changes:
                made[name] = changes[name]
                continue
            held = getattr(self, name)
            if kind is FieldKind.VARIADIC:
                made[name] = tuple(env.get(v, v) for v in held)
            elif kind is FieldKind.BLOCK:
                made[name] = held.clone(env)
            elif kind is FieldKind.ATTRIBUTE or held is None:
                made[name] = held
            else:
                made[name] = env.get(held, held)
        copy = type(self)(**made)
        copy.location = self.location
        for old, new in zip(self.results, copy.results, strict=True):
            env[old] = new
            new.name = old.name
            if old.type.layout is not None and not changes:
                new.type = old.type
        return copy

    @property
    def written(self) -> str:
        """What authors of kernels write for it."""
        return self.mnemonic

    def fail(self, why: str, hint: str | None = None) -> TypeMismatch:
        """A TypeMismatch at this operation that shows its operand types."""
        types = ", ".join(str(v.type) for v in self.operands)
        shown = f"{self.written}({types}): {why}" if types else why
        return TypeMismatch(shown, location=self.location, hint=hint)

    def __repr__(self) -> str:
        return f"<{self.mnemonic} -> {', '.join(str(r.type) for r in self.results)}>"


# Op is not a dataclass itself (its subclasses are), so nothing has turned the field into a default.
Op.location = None


@dataclass(eq=False)
class Block:
    """Straight-line operations with arguments; the only kind of region."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def add_argument(self, type: Tile, name: str = "") -> Value:
        """A new last argument."""
        value = Value(type, self, len(self.args), name)
        self.args.append(value)
        return value

    @property
    def terminator(self) -> Op | None:
        """The last operation if it ends the block; None while the block is empty or open."""
        last = self.ops[-1] if self.ops else None
        return last if last is not None and last.effect is Effect.TERMINATOR else None

    def clone(self, env: dict[Value, Value]) -> Block:
        """A copy whose operands are looked up in ``env``, which is extended with the arguments and all results."""
        copy = Block()
        for arg in self.args:
            env[arg] = copy.add_argument(arg.type, arg.name)
        copy.ops = [op.clone(env) for op in self.ops]
        return copy

    def walk(self) -> Iterator[Op]:
        """Every operation, outer before inner, in order."""
        for op in self.ops:
            yield op
            for name in op._block_fields:
                yield from getattr(op, name).walk()

    def ops_of(self, kind: type[OpT]) -> list[OpT]:
        """All operations of a kind, inner ones too, in order."""
        return [op for op in self.walk() if isinstance(op, kind)]

    def holder_of(self, op: Op) -> Block:
        """The block that ``op`` is in, this one or one inside it; raises ValueError where there is none."""
        for block in self.nest():
            if op in block.ops:
                return block
        raise ValueError(f"{op!r} is not in the block")

    def replace_uses(self, replaced: Mapping[Value, Value]) -> None:
        """Let all operations, inner ones too, read the values of ``replaced`` instead of its keys, in place."""
        for op in self.walk():
            op.replace_operands(replaced)

    def nest(self) -> Iterator[Block]:
        """This block and all inside it, outer before inner."""
        yield self
        for op in self.ops:
            for block in op.blocks:
                yield from block.nest()


@dataclass(eq=False)
class FunctionParameter:
    """A run-time parameter of a kernel: its value and what the caller promised about it."""

    name: str
    value: Value
    divisibility: int = 1  # pointers: alignment in bytes; integers: the value is a multiple of this


@dataclass(eq=False)
class Function:
    """One kernel. Device functions are inlined by the frontend, so a function is a whole program.

    ``num_warps`` is set from the GPU stage on, when layouts depend on it; before only where the program was told it,
    and nothing may change it.
    """

    name: str
    parameters: list[FunctionParameter] = field(default_factory=list)
    body: Block = field(default_factory=Block)
    num_warps: int | None = None

    @property
    def warps(self) -> int:
        """``num_warps`` where the GPU stage has set it; raises IRError where nobody has."""
        if self.num_warps is None:
            raise IRError(f"{self.name} has no number of warps")
        return self.num_warps

    def add_parameter(self, name: str, type: Tile, divisibility: int = 1) -> Value:
        """A new last parameter and the argument of the body that stands for it.

        ``divisibility``: bytes of alignment for a pointer, a divisor of the value for an integer.
        """
        value = self.body.add_argument(type, name)
        self.parameters.append(FunctionParameter(name, value, divisibility))
        return value

    def walk(self) -> Iterator[Op]:
        """Every operation of the body, outer before inner, in program order."""
        return self.body.walk()

    def ops_of(self, kind: type[OpT]) -> list[OpT]:
        """All operations of a kind, in program order."""
        return self.body.ops_of(kind)

    def replace_uses(self, replaced: Mapping[Value, Value]) -> None:
        """Let all operations read the values of ``replaced`` instead of its keys, in place."""
        self.body.replace_uses(replaced)

    def clone(self) -> Function:
        """A copy that passes may change."""
        env: dict[Value, Value] = {}
        body = self.body.clone(env)
        parameters = [FunctionParameter(p.name, env[p.value], p.divisibility) for p in self.parameters]
        return Function(self.name, parameters, body, self.num_warps)


def _kind(hint: object) -> FieldKind:
    if hint is Value:
        return FieldKind.OPERAND
    if hint == Value | None:
        return FieldKind.OPTIONAL
    if hint == tuple[Value, ...]:
        return FieldKind.VARIADIC
    if hint is Block:
        return FieldKind.BLOCK
    return FieldKind.ATTRIBUTE


def uses(function: Function) -> dict[Value, list[Op]]:
    """For every value the operations that read it (terminators included), in program order."""
    found: dict[Value, list[Op]] = {}
    for op in function.walk():
        for operand in op.operands:
            found.setdefault(operand, []).append(op)
    return found
