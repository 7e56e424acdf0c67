"""From the arguments of a launch to the variant it needs."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import LaunchError
from ...signature import ArgumentType, flattened, parse_argument_type
from ...target import Target
from ..arrays.arguments import describe, readers
from ..arrays.dtypes import canonical_dtype
from ..device import Device
from ..devices import default_device, get_device
from ..variant.constants import ConstantKey
from ..variant.variant import Variant, make_schedule
from .binding import KernelParameter
from .kernel import Kernel, Launch


def specialize(
    kernel: Kernel,
    arguments: Mapping[str, object],
    options: Mapping[str, object],
    *,
    placeholders: bool = False,
) -> Launch:
    """Types and constants of a launch.

    Raises:
        LaunchError: an argument that kernels cannot take, or arrays on different devices.
    """
    types: dict[str, ArgumentType] = {}
    constants: dict[str, object] = {}
    homes: dict[str, str] = {}
    passed: list[int] = []
    known: dict[str, object] = {}
    position = 0
    for parameter in kernel.parameters:
        name, value = parameter.name, arguments[parameter.name]
        stand_in = _placeholder(parameter, value) if placeholders else None
        key = stand_in or kernel.read(parameter, value)
        if isinstance(key, ConstantKey):
            constants[name] = key.value
        else:
            text, _, device = str(key).partition("@")
            kind = parse_argument_type(text)
            if kind.pointer:
                homes[name] = device or "cpu"
            if kind.is_one:
                constants[name] = 1
            else:
                flat = flattened(name, kind)
                types |= flat
                passed.append(position)
                if stand_in is None:
                    _, read = readers[type(value)](value)
                    known |= zip(flat, read if kind.block else (read,), strict=True)
        position += not parameter.constexpr
    device_ = _common_device(kernel, arguments, homes)
    schedule = make_schedule({"debug": kernel.debug, **options})
    ordered = {p.name: constants[p.name] for p in kernel.parameters if p.name in constants}
    variant = Variant(kernel.source, types, ordered, Target.parse(device_.target), schedule)
    return Launch(variant, device_, tuple(passed), known)


def _common_device(kernel: Kernel, arguments: Mapping[str, object], homes: Mapping[str, str]) -> Device:
    if not homes:
        return default_device()
    (first, home), *rest = homes.items()
    for name, other in rest:
        if other != home:
            raise LaunchError(
                f"{kernel.__name__}: argument {name!r} ({describe(arguments[name])}) is on {other}, but {first!r} is "
                f"on {home}",
                hint=f"copy one of them: all arrays of a launch are on one device, e.g. "
                f"get_device({home!r}).array(...)",
            )
    return get_device(home)


def _placeholder(parameter: KernelParameter, value: object) -> str | None:
    """For warm-ups: a type given as text, or a dtype that stands for a pointer to it."""
    if parameter.constexpr:
        return None
    if isinstance(value, str):
        return value
    kinds = {base.__name__ for base in type(value).__mro__}
    if "dtype" in kinds or "Scalar" in kinds:
        return f"*{canonical_dtype(value)}:16"
    return None
