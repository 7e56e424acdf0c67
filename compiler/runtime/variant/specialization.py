"""One specialisation of a kernel as text, so that a later process can compile it before its first launch."""

from __future__ import annotations

import json
from dataclasses import asdict
from weakref import WeakValueDictionary

from ...errors import KernelMismatch, LaunchError
from ...ir.types import SCALARS, Scalar
from ...launch_recipe import Guard
from ...signature import parse_argument_type
from ...source.kernel import KernelSource, Sourced
from ...target import Target
from .variant import Variant, make_schedule

#: The functions of this process by module and qualified name; of equal names the last one.
functions: WeakValueDictionary[str, Sourced] = WeakValueDictionary()


def specialization_text(variant: Variant) -> str:
    """A JSON object that :func:`variant_from_text` reads back, with the kernel, the target and the variant's key."""
    return json.dumps(
        {
            "name": variant.source.name,
            "source": variant.source.hash,
            "key": variant.key,
            "target": {"backend": variant.target.kind, "name": str(variant.target)},
            "signature": {name: str(kind) for name, kind in variant.signature.items()},
            "constants": {name: _encoded(value) for name, value in variant.constants.items()},
            "schedule": asdict(variant.schedule),
            "denied": [asdict(guard) for guard in variant.denied],
        }
    )


def variant_from_text(source: KernelSource, text: str) -> Variant:
    """The variant of ``source`` that :func:`specialization_text` described.

    Raises:
        KernelMismatch: it is of another kernel, a changed one or another kind of target, or names a function that is
            not here or changed.
        LaunchError: the text is not one of these, or one of its compile-time values cannot be written as text.
        TargetError: its target is unknown.
    """
    try:
        data = json.loads(text)
        name, digest, target = data["name"], data["source"], data["target"]
        signature, constants, schedule = data["signature"], data["constants"], data["schedule"]
        backend, target_name = target["backend"], target["name"]
        denied = [Guard(**guard) for guard in data["denied"]]
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError("this is no specialization data", hint="pass what a compile hook was given") from error
    if (name, digest) != (source.name, source.hash):
        what = f"another version of {name}" if name == source.name else f"the kernel {name}"
        raise KernelMismatch(f"Specialization data is for {what}, and this is {source.name}", hint="make it again")
    if backend != str(target_name).partition(":")[0]:
        raise KernelMismatch(f"Specialization data is for {target}, which is no target of deuteron")
    types = {parameter: parse_argument_type(kind) for parameter, kind in signature.items()}
    values = {parameter: _decoded(parameter, value) for parameter, value in constants.items()}
    return Variant(source, types, values, Target.parse(target_name), make_schedule(schedule)).without(denied)


def function_name(function: Sourced) -> str:
    """The module and the qualified name under which a later process finds a function."""
    python = function.python()
    return f"{python.__module__}.{python.__qualname__}" if python is not None else function.source.name


def _function(parameter: str, name: str, digest: str) -> Sourced:
    found = functions.get(name)
    if found is None or found.source.hash != digest:
        raise KernelMismatch(
            f"Specialization data is for {parameter} = {name}, which {'has another text' if found else 'is not here'}",
            hint="define the function before, or make the data again",
        )
    return found


def _encoded(value: object) -> object:
    """A compile-time value in JSON: numbers, texts and None as they are, the rest as an object that names its kind.
    Values of subclasses, such as members of an IntEnum, are none of these: kernels tell them apart."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, float) and kind is float:
        return {"float": value.hex()}
    if isinstance(value, tuple) and kind is tuple:
        return {"tuple": [_encoded(item) for item in value]}
    if isinstance(value, Scalar):
        return {"dtype": value.code}
    if isinstance(value, Sourced):
        return {"function": function_name(value), "source": value.source.hash}
    return {"other": type(value).__name__}


def _decoded(parameter: str, value: object) -> object:
    match value:
        case {"float": str(text)}:
            return float.fromhex(text)
        case {"tuple": list(items)}:
            return tuple(_decoded(parameter, item) for item in items)
        case {"dtype": str(name)} if name in SCALARS:
            return SCALARS[name]
        case {"function": str(name), "source": str(digest)}:
            return _function(parameter, name, digest)
        case dict():
            raise LaunchError(
                f"the compile-time value of {parameter!r}, {value.get('other', 'unknown')}, is not in the data",
                hint="call warmup with the value itself",
            )
    return value
