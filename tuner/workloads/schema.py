"""The form of a workload as JSON Schema: made from the classes that read it, with the abbreviations they accept."""

from __future__ import annotations

from functools import cache
from typing import cast

import msgspec

from ..codec import JsonObject
from .spec import DEVICE_KINDS, DTYPES, FILLS, ROLES, WorkloadSpec

_EXPRESSION: JsonObject = {
    "description": "An expression such as `cdiv(N, BLOCK)`, as in Python; a number stands for itself.",
    "anyOf": [{"type": "string"}, {"type": "number"}],
}

#: What each field means, for who writes one by hand.
DESCRIPTIONS: dict[str, str] = {
    "name": "Name of the workload; the kernel's if left out.",
    "kernel": 'The kernel\'s text, or `{"hash": ...}` of a stored kernel. It is parsed, never executed as Python.',
    "dims": "Names of the sizes that make a shape, such as M and N.",
    "tensors": "The pointer arguments, in any order.",
    "scalars": "The other run-time arguments: name to expression over the dims.",
    "constexprs": "Constexprs that the shape fixes: name to value, or to an expression (a text value in quotes).",
    "grid": "One to three expressions over the dims and the parameters of the space.",
    "spaces": "What is searched, by kind of device.",
    "space": "What is searched, on any device.",
    "defaults": "The configuration to beat, by kind of device; the first choice of each parameter if left out.",
    "default": "The configuration to beat, on any device.",
    "flops": "Floating-point operations of one launch, an expression over the dims.",
    "bytes": "Bytes that one launch has to move, an expression over the dims and `element_bytes`.",
    "tolerance": "How far results may be off; by dtype if left out.",
    "reference": "`interpreter`, or the name of a built-in NumPy reference.",
    "dtypes": "What `$dtype` may be.",
    "shapes": "What is tuned when a job names no shapes.",
    "dims_from_arguments": "How a launch reveals the shape: dim to argument, or `argument.shape[axis]`.",
}

_TENSOR_DESCRIPTIONS: dict[str, str] = {
    "name": "The kernel's parameter.",
    "shape": "Expressions over the dims.",
    "dtype": "A dtype, or `$dtype` for the one that the job names.",
    "role": "What the kernel does with it.",
    "init": "How inputs are filled, freshly for each check.",
}


@cache
def workload_schema() -> JsonObject:
    """JSON Schema (2020-12, without references) of what :meth:`WorkloadSpec.from_json` reads."""
    components = msgspec.json.schema(WorkloadSpec)
    definitions = cast("dict[str, JsonObject]", components["$defs"])
    workload = cast(JsonObject, _inlined(definitions["WorkloadSpec"], definitions))
    fields = cast("dict[str, JsonObject]", workload["properties"])
    space = _space(definitions)
    fields["space"] = space
    fields["spaces"] = _by_kind(space)
    fields["default"] = {"type": "object"}
    fields["grid"] = {"type": "array", "items": _EXPRESSION, "minItems": 1, "maxItems": 3}
    fields["scalars"] = {"type": "object", "additionalProperties": _EXPRESSION}
    fields["flops"] = fields["bytes"] = dict(_EXPRESSION)
    fields["kernel"] = _kernel()
    fields["tensors"] = {"type": "array", "items": _tensor(), "minItems": 1}
    fields["dtypes"] = {"type": "array", "items": {"enum": list(DTYPES)}, "minItems": 1}
    fields["tolerance"] = {"anyOf": [_without_null(fields["tolerance"]), {"type": "null"}]}
    workload["required"] = ["kernel", "dims", "tensors", "grid"]
    workload["title"] = "Workload"
    workload["properties"] = {name: {**fields[name], "description": DESCRIPTIONS[name]} for name in fields}
    return workload


def _kernel() -> JsonObject:
    text: JsonObject = {"type": "string"}
    return {
        "type": "object",
        "properties": {"name": text, "source": text, "filename": text, "hash": {**text, "pattern": "^[0-9a-f]{64}$"}},
        "anyOf": [{"required": ["name"]}, {"required": ["hash"]}],
        "additionalProperties": False,
    }


def _tensor() -> JsonObject:
    fields: dict[str, JsonObject] = {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": _EXPRESSION, "minItems": 1},
        "dtype": {"enum": ["$dtype", *DTYPES], "default": "$dtype"},
        "role": {"enum": list(ROLES), "default": "input"},
        "init": {"enum": list(FILLS), "default": "normal"},
    }
    described = {name: {**field, "description": _TENSOR_DESCRIPTIONS[name]} for name, field in fields.items()}
    return {"type": "object", "properties": described, "required": ["name", "shape"], "additionalProperties": False}


def _space(definitions: dict[str, JsonObject]) -> JsonObject:
    """A space whose parameters may be written as ``{"BLOCK": [64, 128]}``."""
    space = cast(JsonObject, _inlined(definitions["Space"], definitions))
    fields = cast("dict[str, JsonObject]", space["properties"])
    choices: JsonObject = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
    fields["parameters"] = {
        "description": '`{"BLOCK": [64, 128]}`, or a list of objects where a parameter has a default or a condition.',
        "anyOf": [choices, fields["parameters"]],
    }
    return space


def _by_kind(space: JsonObject) -> JsonObject:
    return {"type": "object", "properties": dict.fromkeys(DEVICE_KINDS, space), "additionalProperties": False}


def _without_null(field: JsonObject) -> JsonObject:
    options = cast("list[JsonObject]", field.get("anyOf", [field]))
    return next(option for option in options if option.get("type") != "null")


def _inlined(value: object, definitions: dict[str, JsonObject]) -> object:
    """``value`` with every reference replaced by what it stands for. Workloads contain no class twice in a row."""
    match value:
        case {"$ref": str(reference)}:
            return _inlined(definitions[reference.rpartition("/")[2]], definitions)
        case dict():
            return {key: _inlined(item, definitions) for key, item in value.items()}
        case list():
            return [_inlined(item, definitions) for item in value]
        case _:
            return value
