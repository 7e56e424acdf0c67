"""The arguments that a compiled kernel is passed: whether they are what it was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import DeuteronError, LaunchError
from ...signature import ArgumentType, is_hidden
from ..arrays.arguments import NOWHERE, describe, readers, without_memory
from ..arrays.descriptor import TensorDescriptor, spread
from ..device import Device
from ..devices import get_device


def read_arguments(
    kernel: str, signature: Mapping[str, ArgumentType], args: tuple[object, ...], where: Device | None
) -> tuple[Device | None, tuple[Any, ...]]:
    """The device where the arrays are, ``where`` if that is given, and the machine values of the arguments; raises
    LaunchError that names the argument which does not fit."""
    names = shown(signature)
    if len(args) != len(names):
        raise LaunchError(
            f"{kernel} takes {len(names)} run-time arguments ({', '.join(names) or 'none'}), got {len(args)}"
        )
    flat = spread(dict(zip(names, args, strict=True)))
    _check_descriptors(kernel, signature, dict(zip(names, args, strict=True)))
    values = []
    for name, wanted in signature.items():
        value = flat[name]
        key, machine_value = _read_argument(kernel, name, value)
        place = _check_argument(kernel, name, wanted, key, value, machine_value)
        if place is not None and place != (where.name if where else place):
            raise LaunchError(
                f"{kernel}: argument {name!r} ({describe(value)}) is on {place}, the launch on "
                f"{where.name if where else place}",
                hint="pass all arrays on one device",
            )
        where = where or (get_device(place) if place else None)
        values.append(machine_value)
    return where, tuple(values)


def _read_argument(kernel: str, name: str, value: object) -> tuple[object, Any]:
    try:
        return readers[type(value)](value)
    except DeuteronError as error:
        raise LaunchError(f"{kernel}: argument {name!r}: {error.message}", hint=error.hint) from error


def _check_argument(
    kernel: str, name: str, wanted: ArgumentType, key: object, value: object, machine_value: Any
) -> str | None:
    """Check one argument against the compiled signature; returns the device of an array."""
    text, _, device = str(key).partition("@") if isinstance(key, str) else ("", "", "")
    base = text.partition(":")[0].removeprefix("*const ").removeprefix("*")
    if wanted.pointer:
        good = text.startswith("*") and base == wanted.dtype
    else:
        good = bool(text) and not text.startswith("*") and _converts(base, wanted.dtype)
    if not good:
        raise LaunchError(
            f"{kernel}: argument {name!r} is a {describe(value)}, the kernel was compiled for {wanted}",
            hint=f"pass {'an array' if wanted.pointer else 'a number'} of {wanted.dtype}",
        )
    if device == NOWHERE:
        raise without_memory(kernel, name, value)
    if wanted.divisibility > 1 and machine_value % wanted.divisibility:
        raise LaunchError(
            f"{kernel}: argument {name!r} is not a multiple of {wanted.divisibility}, as the signature promised "
            f"({wanted})",
            hint=f'compile for "{str(wanted).partition(":")[0]}", or align the argument',
        )
    return (device or "cpu") if wanted.pointer else None


def shown(signature: Mapping[str, ArgumentType]) -> list[str]:
    """The run-time parameters that a caller gives: all but the hidden ones of descriptors."""
    return [name for name in signature if not is_hidden(name)]


def _check_descriptors(kernel: str, signature: Mapping[str, ArgumentType], given: Mapping[str, object]) -> None:
    """Raise LaunchError where a descriptor is not what the kernel was compiled for, or is one where none is wanted."""
    for name, value in given.items():
        wanted = signature[name]
        found = value.kind if isinstance(value, TensorDescriptor) else None
        fits = found is not None and replace(wanted, const=found.const) == found if wanted.block else found is None
        if not fits:
            raise LaunchError(
                f"{kernel}: argument {name!r} is a {found or describe(value)}, the kernel was compiled for {wanted}",
                hint=f"pass a TensorDescriptor of {wanted.dtype} with block_shape={list(wanted.block)}"
                if wanted.block
                else "pass the array itself",
            )


def _converts(given: str, wanted: str) -> bool:
    """Whether a Python number of type ``given`` may be passed as ``wanted``."""
    if wanted[0] == "f" or wanted == "bf16":
        return True
    return given[0] in "iu" and (given == wanted or int(given[1:]) <= int(wanted[1:]))
