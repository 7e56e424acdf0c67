"""Values with a JSON form: decoding, checking and encoding by msgspec, with errors that name the field.

A class that derives from :class:`Document` is its own schema: annotations are checked strictly (a whole number is no
truth value, 1.5 is no whole number, NaN is no number), an integer is accepted where a number is wanted, and what other
versions of deuteron add is ignored unless the class forbids it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self, TypeAlias, TypeVar

import msgspec

from .errors import SchemaError
from .refusal import describe, refusal

JsonObject: TypeAlias = dict[str, object]
Scalar: TypeAlias = int | float | str | bool
# What JSON can say and arithmetic can use: comparisons with NaN are false, so the bounds keep it out, too.
Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
#: Sizes and counts: what databases and other languages can hold, and arithmetic with floats takes.
MOST_INTEGER = (1 << 63) - 1
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_INTEGER)]
T = TypeVar("T")
#: What msgspec says of where a text is malformed.
_BYTE = re.compile(r"\(byte (\d+)\)")


class Document(msgspec.Struct, frozen=True):
    """Base of everything that is stored or sent as a JSON object."""

    noun: ClassVar[str] = "value"

    def to_json(self) -> JsonObject:
        """The value as dicts, lists and scalars."""
        built: JsonObject = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_json(cls, value: object, where: str | None = None) -> Self:
        """The value out of parsed JSON. Raises :class:`SchemaError` naming ``where.field`` and what would have
        worked."""
        where = where or cls.noun
        return convert(cls.spelled_out(value, where), cls, where)

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """``value`` with the abbreviations that people may use replaced by the full form."""
        return value


def plain(value: object) -> object:
    """A number, text or truth value of NumPy, or of a class derived from Python's, as Python's own; else the value."""
    if type(value) in (int, float, str, bool):
        return value
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return item()
    if isinstance(value, str):
        return str.__str__(value)
    return next((kind(value) for kind in (int, float) if isinstance(value, kind)), value)


def convert(value: object, kind: type[T], where: str) -> T:
    """Parsed JSON as a value of ``kind``; raises :class:`SchemaError` naming the field below ``where``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise refusal(error, value, kind, where) from None
    except RecursionError:
        raise SchemaError(f"{where}: JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise SchemaError(f"{where}: a text has half of a surrogate pair") from None


def decode(text: str | bytes, kind: type[T], where: str) -> T:
    """JSON text as a value of ``kind``; raises :class:`SchemaError` naming the place in ``where``."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Slower, but the errors have line and column, and for a field that does not fit the value that it has.
        value = parse_json(text, where)
        if isinstance(error, msgspec.ValidationError):
            raise refusal(error, value, kind, where) from None
        raise SchemaError(f"{where}: not valid JSON{_place(text, error)}: {error}") from None


def _place(text: str | bytes, error: Exception) -> str:
    """Line and column of what msgspec refuses and Python takes, such as NaN; empty where it does not say the byte."""
    found = _BYTE.search(str(error))
    if found is None:
        return ""
    before = (text.encode() if isinstance(text, str) else text)[: int(found[1])]
    line = before.rpartition(b"\n")[2]
    lines, column = before.count(b"\n") + 1, len(line.decode(errors="replace")) + 1
    return f" at line {lines}, column {column}"


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
    except ValueError as error:  # a number of thousands of digits
        raise SchemaError(f"{where}: not valid JSON: {error}") from None
    return value


def canonical_json(value: object) -> str:
    """The one text of a JSON value: sorted keys, no spaces, no NaN. Equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def expect_object(value: object, where: str) -> JsonObject:
    """``value`` if it is a JSON object; raises :class:`SchemaError` otherwise."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise SchemaError(f"{where}: expected an object, found {describe(value)}")
    return dict(value)


def without_nulls(value: object, where: str) -> JsonObject:
    """The fields of an object that are not null: in what people write, null is the same as leaving the field out."""
    return {name: item for name, item in expect_object(value, where).items() if item is not None}
