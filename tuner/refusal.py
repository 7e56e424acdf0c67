"""msgspec's refusals in words: which field, what it holds, what would have worked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import msgspec.inspect

from deuteron.compiler.errors import DeuteronError

from .errors import SchemaError

# msgspec's names of JSON types, in the order in which an error lists them, and what people call them.
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_EXPECTED = re.compile(r"Expected `([a-z |]+)`, got `\w+`")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+)\]|(?P<entry>\[\.\.\.\])")


def describe(value: object) -> str:
    """A short name for a JSON value, for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            digits = str(value)
            return f"the number {digits}" if len(digits) <= 40 else f"the number {digits[:37]}..."
        case str():
            return f"the text {value[:40]!r}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case Mapping():
            return f"an object with {len(value)} fields"
        case _:
            return f"a {type(value).__name__}"


def refusal(error: msgspec.ValidationError, value: object, kind: object, where: str) -> SchemaError:
    """Why msgspec refuses ``value`` as a ``kind``: the full path below ``where``, what was found there, what would
    do."""
    message = str(error)
    text, _, at = message.partition(" - at `")
    steps: list[str | int] = []
    schema: msgspec.inspect.Type | None = _type_info(kind)
    reduced, found = value, value
    for step in _STEP.finditer(at.rstrip("`")):
        key: str | int = step["field"] or ""
        if step["index"]:
            key = int(step["index"])
        elif step["entry"] and isinstance(found, Mapping):
            key = _failing_key(message, reduced, steps, found, kind)
            reduced = _only(reduced, steps, key)
        steps.append(key)
        found = _member(found, key)
        schema = _schema_below(schema, key)
        where += f"[{key}]" if isinstance(key, int) else f".{key}"
    return _worded(text, found, schema, where)


@lru_cache(maxsize=128)
def _type_info(kind: object) -> msgspec.inspect.Type:
    """What msgspec knows of a type: milliseconds for one of many classes, which a thousand refusals would pay again."""
    return msgspec.inspect.type_info(kind)


def _worded(text: str, found: object, schema: msgspec.inspect.Type | None, where: str) -> SchemaError:
    if match := _EXPECTED.fullmatch(text):
        wanted = set(match[1].split(" | "))
        if {"int", "float"} <= wanted:
            wanted.remove("int")
        names = [name for kind, name in _TYPE_NAMES.items() if kind in wanted]
        listed = ", ".join(names[:-1]) + " or " * (len(names) > 1) + names[-1]
        return SchemaError(f"{where}: expected {listed}, found {describe(found)}")
    if match := _MISSING.fullmatch(text):
        return SchemaError(f"{where}: the field {match[1]!r} is missing")
    if match := _UNKNOWN.fullmatch(text):
        known = _field_names(schema)
        return SchemaError(f"{where}: unknown field {match[1]!r}", hint=f"known fields: {', '.join(known)}")
    allowed = _allowed(schema)
    if text.startswith("Invalid ") and allowed:
        return SchemaError(f"{where}: {found!r} is not possible", hint=f"one of {', '.join(allowed)}")
    found_there = f", found {describe(found)}" if text.startswith(("Expected ", "Invalid ")) else ""
    return SchemaError(f"{where}: {text[:1].lower()}{text[1:]}{found_there}")


def _failing_key(
    message: str, document: object, steps: list[str | int], entries: Mapping[str, object], kind: object
) -> str:
    """Which entry of the object at ``steps`` is refused; msgspec does not say. It is the one that fails on its own."""
    for key in entries:
        try:
            msgspec.convert(_only(document, steps, key), kind)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return key
        except (DeuteronError, UnicodeEncodeError):
            continue  # the whole, which is not so without the other entries, or a text of it, is refused
    return "..."


def _only(document: object, steps: list[str | int], key: str | int) -> object:
    """A copy of ``document`` in which the object at ``steps`` has the entry ``key`` alone."""
    if not steps:
        return {key: _member(document, key)}
    below = _only(_member(document, steps[0]), steps[1:], key)
    if isinstance(document, Mapping):
        return {**document, steps[0]: below}
    return (
        [below if i == steps[0] else item for i, item in enumerate(document)] if isinstance(document, list) else below
    )


def _member(value: object, key: str | int) -> object:
    if isinstance(value, Mapping):
        return value.get(key)
    return value[key] if isinstance(value, list | tuple) and isinstance(key, int) and key < len(value) else value


def _schema_below(schema: msgspec.inspect.Type | None, key: str | int) -> msgspec.inspect.Type | None:
    """The schema of a member, None where there are several that it might be."""
    for choice in _choices(schema):
        match choice:
            case msgspec.inspect.StructType(fields=fields):
                if choice.tag_field == key:
                    structs = [other for other in _choices(schema) if isinstance(other, msgspec.inspect.StructType)]
                    return msgspec.inspect.LiteralType(tuple(str(struct.tag) for struct in structs))
                found = next((field.type for field in fields if field.encode_name == key), None)
                if found is not None:
                    return found
            case msgspec.inspect.DictType(value_type=below) if isinstance(key, str):
                return below
            case msgspec.inspect.VarTupleType(item_type=below) if isinstance(key, int):
                return below
            case _:
                continue
    return None


def _choices(schema: msgspec.inspect.Type | None) -> tuple[msgspec.inspect.Type, ...]:
    if isinstance(schema, msgspec.inspect.UnionType):
        return schema.types
    return () if schema is None else (schema,)


def _field_names(schema: msgspec.inspect.Type | None) -> list[str]:
    structs = [choice for choice in _choices(schema) if isinstance(choice, msgspec.inspect.StructType)]
    return sorted(field.encode_name for struct in structs for field in struct.fields)


def _allowed(schema: msgspec.inspect.Type | None) -> list[str]:
    """The values of a Literal."""
    literals = [choice for choice in _choices(schema) if isinstance(choice, msgspec.inspect.LiteralType)]
    return [str(value) for literal in literals for value in literal.values]
