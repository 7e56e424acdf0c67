"""Reading JSON field by field, with errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from .errors import SchemaError

JsonObject: TypeAlias = dict[str, object]
Scalar: TypeAlias = int | float | str | bool
T = TypeVar("T")


def describe(value: object) -> str:
    """A short name for a JSON value, for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case Mapping():
            return f"an object with {len(value)} fields"
        case _:
            return f"a {type(value).__name__}"


def parse_json(text: str | bytes, where: str) -> object:
    """Parse JSON text; ``where`` names the source in the :class:`SchemaError` raised when it is not JSON."""
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"{where}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{where}: not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise SchemaError(f"{where}: JSON is nested too deeply") from None
    return value


def canonical_json(value: object) -> str:
    """The one text of a JSON value: sorted keys, no spaces, no NaN. Equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def expect_object(value: object, where: str) -> JsonObject:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise SchemaError(f"{where}: expected an object, found {describe(value)}")
    return dict(value)


def expect_list(value: object, where: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise SchemaError(f"{where}: expected a list, found {describe(value)}")
    return list(value)


def expect_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{where}: expected text, found {describe(value)}")
    return value


def expect_integer(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SchemaError(f"{where}: expected a whole number, found {describe(value)}")
    return value


def expect_number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{where}: expected a number, found {describe(value)}")
    return float(value)


def expect_boolean(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: expected true or false, found {describe(value)}")
    return value


def expect_scalar(value: object, where: str) -> Scalar:
    if not isinstance(value, int | float | str | bool):
        raise SchemaError(f"{where}: expected a number, text, true or false, found {describe(value)}")
    return value


class Fields:
    """One JSON object being read. Each accessor raises :class:`SchemaError` naming ``where.field``.

    ``finish()`` rejects fields that nobody asked for; call it for what users write by hand, where an unknown
    field is a spelling mistake, and leave it out for what other versions of deuteron write.
    """

    def __init__(self, value: object, where: str) -> None:
        self._values = expect_object(value, where)
        self._where = where
        self._asked: set[str] = set()

    def where(self, name: str) -> str:
        return f"{self._where}.{name}"

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        self._asked.add(name)
        return self._values.get(name) is not None

    def get(self, name: str) -> object:
        self._asked.add(name)
        if name not in self._values:
            raise SchemaError(f"{self._where}: the field {name!r} is missing")
        return self._values[name]

    def text(self, name: str) -> str:
        return expect_text(self.get(name), self.where(name))

    def integer(self, name: str) -> int:
        return expect_integer(self.get(name), self.where(name))

    def number(self, name: str) -> float:
        return expect_number(self.get(name), self.where(name))

    def boolean(self, name: str) -> bool:
        return expect_boolean(self.get(name), self.where(name))

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise SchemaError(
                f"{self.where(name)}: {value!r} is not possible",
                hint=f"one of {', '.join(allowed)}",
            )
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self.has(name) else None

    def optional_integer(self, name: str) -> int | None:
        return self.integer(name) if self.has(name) else None

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if self.has(name) else None

    def items(self, name: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
        """A list field, each element read by ``read(value, where)``."""
        values = expect_list(self.get(name), self.where(name))
        return tuple(read(value, f"{self.where(name)}[{i}]") for i, value in enumerate(values))

    def mapping(self, name: str, read: Callable[[object, str], T]) -> dict[str, T]:
        """An object field, each value read by ``read(value, where)``."""
        values = expect_object(self.get(name), self.where(name))
        return {key: read(value, f"{self.where(name)}.{key}") for key, value in values.items()}

    def finish(self) -> None:
        unknown = sorted(set(self._values) - self._asked)
        if unknown:
            raise SchemaError(
                f"{self._where}: unknown field {unknown[0]!r}",
                hint=f"known fields: {', '.join(sorted(self._asked))}",
            )
