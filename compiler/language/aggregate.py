"""Aggregates: classes of the program whose instances are values of several parts, with functions as methods.

A field is annotated with what it holds: ``tl.tensor``, ``tl.constexpr``, ``tl.tuple``, another aggregate, or any other
class of the language. Methods are decorated with ``@jit`` or ``@constexpr_function``; the text of one that has no
decorator is read as if it were ``@jit``. Instances do not change: :func:`aggregate_replace` makes others.
"""

from __future__ import annotations

import inspect
import typing
from abc import ABCMeta
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import TypeMismatch, UnknownName, UnsupportedSyntax
from ..printable import shown
from .arithmetic import as_tensor
from .builtin import builtin
from .constexpr import constexpr, unwrap
from .context import active
from .declared import BoundMethod, Declared, Initializer, fields_of, function_of
from .extent import bounded
from .inline import Inlinable
from .structure import Structure
from .tensor import tensor

ClassT = TypeVar("ClassT")


class AggregateType(ABCMeta):
    """The class of aggregates."""

    _declared: Declared

    def __new__(
        mcs, name: str, bases: tuple[type, ...], body: dict[str, object], *, is_text: bool = False
    ) -> AggregateType:
        """Take the functions and the defaults out of a class body. ``is_text``: of a class that is read and never
        executed, whose annotations are what they stand for."""
        inherited = [base for base in reversed(bases) if isinstance(base, AggregateType)]
        if not inherited:  # Aggregate itself
            made = super().__new__(mcs, name, bases, body)
            made._declared = Declared({}, {}, {}, {})
            return made
        functions = {key: found for key, value in body.items() if (found := function_of(f"{name}.{key}", value))}
        kept = {key: value for key, value in body.items() if key not in functions}
        made = super().__new__(mcs, name, bases, {"__slots__": (), **kept})
        own = list(inspect.get_annotations(made))
        defaults = {key: kept[key] for key in own if key in kept}
        for key in defaults:
            if isinstance(getattr(mcs, key, None), property):
                raise TypeError(f"the field {key!r} of the aggregate {name} cannot have a default: choose another name")
            type.__delattr__(made, key)
        fields = fields_of(made, own, _merged(inherited, "fields"), is_text)
        methods = {key: held for key, held in functions.items() if not isinstance(body[key], property)}
        properties = {key: held for key, held in functions.items() if isinstance(body[key], property)}
        made._declared = Declared(
            fields,
            _merged(inherited, "defaults") | defaults,
            _merged(inherited, "methods") | methods,
            _merged(inherited, "properties") | properties,
        )
        return made

    # Properties of the class, and not of its instances: those may have fields of these names.
    @property
    def fields(cls) -> Mapping[str, object]:
        """What each field is annotated with; those of base classes first."""
        return cls._declared.fields

    @property
    def defaults(cls) -> Mapping[str, object]:
        """What some of the fields hold by default."""
        return cls._declared.defaults

    @property
    def methods(cls) -> Mapping[str, Inlinable]:
        """The functions of the class."""
        return cls._declared.methods

    @property
    def properties(cls) -> Mapping[str, Inlinable]:
        """Its functions that are read as attributes."""
        return cls._declared.properties

    def __call__(cls, *args: object, **kwargs: object) -> Aggregate:
        """A new instance, in a kernel or outside; raises TypeError, in kernels as UnsupportedSyntax."""
        return construct(cls, args, kwargs)

    def __getattr__(cls, name: str) -> object:
        declared = cls.__dict__.get("_declared")
        if declared is not None and name in declared.methods:
            return declared.methods[name]
        raise AttributeError(f"the aggregate {cls.__name__} has no attribute {name!r}")

    def function(cls, name: str) -> object:
        """What a kernel may ask the class for: functions. Raises UnknownName."""
        if name in cls.methods:
            return cls.methods[name]
        raise UnknownName(
            f"the aggregate {cls.__name__} has no function {name!r}", hint=f"it has: {', '.join(cls.methods) or 'none'}"
        )

    @property
    def initializer(cls) -> Inlinable | None:
        """The ``__init__`` that the program wrote; None where fields are filled in order."""
        return cls.methods.get("__init__")


def _merged(bases: Sequence[AggregateType], table: str) -> dict[str, Any]:
    return {key: value for base in bases for key, value in getattr(base._declared, table).items()}


class Aggregate(Structure, metaclass=AggregateType):
    """An instance of an aggregate. Its parts are the fields that may be tensors, its form the ``tl.constexpr`` ones."""

    __slots__ = ("_held", "_open")

    _held: dict[str, object]
    _open: bool

    @staticmethod
    def blank(cls: AggregateType, held: Mapping[str, object], *, open: bool = False) -> Aggregate:
        """An instance that holds ``held``; ``open``: fields may still be set."""
        made: Aggregate = object.__new__(cls)  # type: ignore[arg-type]
        object.__setattr__(made, "_held", dict(held))
        object.__setattr__(made, "_open", open)
        return bounded(made)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.member(name)
        except UnknownName as error:
            raise AttributeError(error.message) from None

    def __setattr__(self, name: str, value: object) -> None:
        if not self._open:
            raise AttributeError(f"cannot assign to field {name!r} on immutable aggregate {type(self).__name__}")
        self._held[name] = self._taken(name, value)

    def member(self, name: str) -> object:
        """A field or a method; in a kernel compile-time values are plain. Raises UnknownName."""
        cls = type(self)
        if name in self._held:
            return unwrap(self._held[name]) if active() is not None else self._held[name]
        if name in cls.properties:
            return BoundMethod(cls.properties[name], self)()
        if name in cls.methods:
            return BoundMethod(cls.methods[name], self)
        if name in cls.fields:
            raise UnknownName(f"the field {name!r} of {cls.__name__} has no value yet")
        known = [*cls.fields, *cls.properties, *cls.methods]
        raise UnknownName(
            f"the aggregate {cls.__name__} has no attribute {name!r}", hint=f"it has: {', '.join(known) or 'nothing'}"
        )

    def method(self, name: str) -> BoundMethod | None:
        """The method called ``name``, if there is one."""
        found = type(self).methods.get(name)
        return BoundMethod(found, self) if found else None

    def _taken(self, name: str, value: object) -> object:
        fields = type(self).fields
        if name not in fields:
            raise AttributeError(f"the aggregate {type(self).__name__} has no field {name!r}")
        return _converted(f"{type(self).__name__}.{name}", fields[name], value)

    def with_field(self, name: str, value: object) -> Aggregate:
        """A copy in which a field that is still open has a value; raises UnknownName, TypeMismatch."""
        if not self._open:
            raise UnsupportedSyntax(
                f"cannot assign to field {name!r} on immutable aggregate {type(self).__name__}",
                hint=f"write x = tl.aggregate_replace(x, {name}=...)",
            )
        try:
            taken = self._taken(name, value)
        except AttributeError as error:
            raise UnknownName(str(error)) from None
        return Aggregate.blank(type(self), {**self._held, name: taken}, open=True)

    def closed(self) -> Aggregate:
        """The same value, in the order of its fields, that cannot be changed; raises TypeError for a missing field."""
        cls = type(self)
        if missing := [name for name in cls.fields if name not in self._held]:
            raise TypeError(f"the aggregate {cls.__name__} gets no value for its field {missing[0]!r}")
        return Aggregate.blank(cls, {name: self._held[name] for name in cls.fields})

    @property
    def parts(self) -> tuple[object, ...]:
        """The fields that are not ``tl.constexpr``, in order."""
        return tuple(value for name, value in self._held.items() if not self._is_known(name))

    @property
    def contents(self) -> tuple[object, ...]:
        """All fields."""
        return tuple(self._held.values())

    def with_parts(self, parts: tuple[object, ...]) -> Aggregate:
        """The same aggregate of other parts."""
        given = iter(parts)
        held = {name: value if self._is_known(name) else next(given) for name, value in self._held.items()}
        return Aggregate.blank(type(self), held, open=self._open)

    @property
    def form(self) -> Hashable:
        """Which fields there are, and the values of those that are compile-time values."""
        known = {name: unwrap(value) for name, value in self._held.items() if self._is_known(name)}
        return tuple((name, type(known.get(name)), known.get(name)) for name in self._held)

    def _is_known(self, name: str) -> bool:
        return type(self).fields[name] is constexpr

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Aggregate) or type(self) is not type(other) or self.form != other.form:
            return False
        parts = zip(self.parts, other.parts, strict=True)
        return all(a is b or (not isinstance(a, tensor) and a == b) for a, b in parts)

    __hash__ = object.__hash__

    def __getitem__(self, key: object) -> object:
        return self.operate("__getitem__", key)

    def operate(self, name: str, *others: object) -> object:
        """What the method behind an operator gives; raises UnsupportedSyntax where the class has none."""
        found = self.method(name)
        if found is None:
            raise UnsupportedSyntax(f"the aggregate {type(self).__name__} has no {name}")
        return found(*others)

    def __str__(self) -> str:
        held = ", ".join(f"{name}={value!r}" for name, value in self._held.items())
        return f"{type(self).__name__}({held})"


def _operator(name: str) -> Callable[[Aggregate, object], object]:
    return lambda self, other: self.operate(name, other)


#: Methods behind operators whose left side is an aggregate.
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
for _name in OPERATORS:
    setattr(Aggregate, f"__{_name}__", _operator(f"__{_name}__"))


def _converted(field: str, kind: object, value: object) -> object:
    """``value`` as a field of ``kind`` holds it; raises TypeMismatch. Outside kernels compile-time values are
    ``tl.constexpr`` objects, inside plain ones."""
    inside = active() is not None
    if kind is constexpr:
        if isinstance(unwrap(value), tensor):
            raise TypeMismatch(f"{field} is a tl.constexpr, and its value is not known at compile time")
        return unwrap(value) if inside else constexpr(value)
    if kind is tensor:
        plain = unwrap(value)
        if isinstance(plain, int | float) and inside:
            return as_tensor(plain)
        value = plain
    elif kind is tuple:
        value = unwrap(value) if inside else _wrapped(value)
    else:
        value = unwrap(value)
    if isinstance(kind, type) and not isinstance(value, kind):
        raise TypeMismatch(f"{field} holds a {kind.__name__}, got {shown(value)}")
    return value


def _wrapped(value: object) -> object:
    """A tuple whose numbers are ``tl.constexpr``, as those of Triton are outside kernels."""
    if not isinstance(value, tuple):
        return value
    items = [_wrapped(v) if isinstance(v, tuple) else v if isinstance(v, constexpr) else constexpr(v) for v in value]
    return tuple.__new__(type(value), items)


def construct(cls: AggregateType, args: Sequence[object], kwargs: Mapping[str, object]) -> Aggregate:
    """``cls(*args, **kwargs)``: by its ``__init__``, else a value a field in order, and what ``__post_init__`` checks.

    Raises:
        TypeError: the values do not fit the fields.
        TypeMismatch: a value is not what its field is annotated with.
    """
    made = Aggregate.blank(cls, {}, open=True)
    if cls.initializer is not None:
        made = _initialized(Initializer(cls.initializer), made, args, kwargs)
    else:
        for name, value in _bound(cls, args, kwargs).items():
            made = made.with_field(name, value)
    return _checked(made.closed())


def _initialized(
    initializer: Initializer, made: Aggregate, args: Sequence[object], kwargs: Mapping[str, object]
) -> Aggregate:
    context, python = active(), initializer.python()
    if context is not None:
        filled = context.call(initializer, (made, *args), kwargs)
        return filled if isinstance(filled, Aggregate) else made  # Python fills the instance itself
    if python is None:
        raise TypeError(f"{type(made).__name__} is text and can only be made in a kernel")
    python(made, *args, **kwargs)
    return made


def _bound(cls: AggregateType, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    names = list(cls.fields)
    given = dict(zip(names, args, strict=False))
    values = {**{n: cls.defaults[n] for n in names if n in cls.defaults}, **given, **kwargs}
    missing = [name for name in names if name not in values]
    if len(args) > len(names) or given.keys() & kwargs.keys() or kwargs.keys() - set(names) or missing:
        raise TypeError(
            f"{cls.__name__} does not take these {len(args) + len(kwargs)} values; "
            f"its fields: {', '.join(names) or 'none'}"
        )
    return {name: values[name] for name in names}


def _checked(made: Aggregate) -> Aggregate:
    if "__post_init__" in type(made).methods:
        BoundMethod(type(made).methods["__post_init__"], made)()
    return made


@typing.dataclass_transform()
def aggregate(cls: type[ClassT]) -> type[ClassT]:
    """Decorator for a class whose instances are values of kernels: fields are its annotations.

    Raises:
        TypeError: it has a base class that is no aggregate, or a field or function that aggregates cannot have.
    """
    if isinstance(cls, AggregateType):
        return cls
    if cls.__bases__ != (object,):
        raise TypeError(f"Aggregates can only inherit from other aggregates; {cls.__name__} has another base class")
    dropped = ("__dict__", "__weakref__")
    made = AggregateType(cls.__name__, (Aggregate,), {k: v for k, v in vars(cls).items() if k not in dropped})
    return typing.cast(type[ClassT], made)  # what checkers take it for, with the fields that it declares


@builtin
def aggregate_replace(value: Aggregate, **fields: object) -> Aggregate:
    """A copy of an aggregate with other values in some ``fields``.

    Raises:
        TypeError: ``value`` is no aggregate, or has no such field.
        TypeMismatch: a value is not what its field is annotated with.
    """
    if not isinstance(value, Aggregate):
        raise TypeError(f"aggregate_replace expects an aggregate instance, got {shown(value)}")
    cls = type(value)
    if unknown := [name for name in fields if name not in cls.fields]:
        raise TypeError(f"{cls.__name__} has no field {unknown[0]!r}; its fields: {', '.join(cls.fields)}")
    taken = {name: _converted(f"{cls.__name__}.{name}", cls.fields[name], given) for name, given in fields.items()}
    return _checked(Aggregate.blank(cls, {**value._held, **taken}))
