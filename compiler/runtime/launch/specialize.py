"""From the arguments of a launch to the variant it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import LaunchError
from ...signature import ArgumentType, flattened, parse_argument_type
from ...target import Target
from ..arrays.arguments import NOWHERE, describe, readers, without_memory
from ..arrays.dtypes import canonical_dtype
from ..arrays.placeholder import PlaceholderArray
from ..device import Device
from ..devices import default_device, get_device
from ..variant.constants import ConstantKey
from ..variant.variant import Variant, launch_target, make_schedule
from . import lines
from .binding import KernelParameter, parts_of
from .kernel import Kernel, Launch
from .recording import recording


def specialize(
    kernel: Kernel,
    arguments: Mapping[str, object],
    options: Mapping[str, object],
    *,
    placeholders: bool = False,
) -> Launch:
    """Types and constants of a launch, of a tuple those of its leaves.

    Raises:
        LaunchError: an argument that kernels cannot take, or arrays on different devices.
        SignatureError, TargetError: as :func:`launch_target` and :func:`make_schedule`.
    """
    found = _Found()
    position = 0
    for parameter in kernel.parameters:
        for leaf, value in parts_of(parameter, arguments[parameter.name]):
            stand_in = _placeholder(leaf, value) if placeholders else None
            key = stand_in or kernel.read(leaf, value)
            if isinstance(key, str):
                found.add(leaf.name, position, key, None if stand_in else value)
            else:
                found.constants[leaf.name] = key.value if isinstance(key, ConstantKey) else key
        position += not parameter.constexpr
    device = _common_device(kernel, found)
    target = launch_target(Target.parse(device.target), options.get("arch"))
    schedule = make_schedule({"debug": kernel.debug, **options, "arch": None})
    variant = Variant(
        kernel.source,
        found.types,
        found.constants,
        target,
        schedule,
        records=recording.value.form if recording.value is not None else None,
        lined=lines.wanted.value and target.kind == "cuda",
    )
    return Launch(kernel.called(variant), device, tuple(found.passed), found.known, anywhere=not found.homes)


def refuse_described(kernel: Kernel, arguments: Mapping[str, object]) -> None:
    """Raise LaunchError if one of the arguments of a launch is an array without memory."""
    for parameter in kernel.parameters:
        for leaf, value in parts_of(parameter, arguments[parameter.name]):
            if str(kernel.read(leaf, value)).endswith(f"@{NOWHERE}"):
                raise without_memory(kernel.__name__, leaf.name, value)


def describes(kernel: Kernel, arguments: Mapping[str, object]) -> bool:
    """Whether some of the arguments of a warm-up only say what will be passed."""
    leaves = [part for p in kernel.parameters for part in parts_of(p, arguments[p.name])]
    return any(_placeholder(leaf, value) is not None for leaf, value in leaves)


@dataclass
class _Found:
    """What is known so far, by the names of arguments and leaves; ``homes`` are the devices of the arrays in
    ``arrays``."""

    types: dict[str, ArgumentType] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    arrays: dict[str, object] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    passed: list[tuple[int, ...]] = field(default_factory=list)
    known: dict[str, object] = field(default_factory=dict)

    def add(self, name: str, position: int, key: str, value: object) -> None:
        """An argument with a type; ``value`` is None where it was only described."""
        text, _, device = key.partition("@")
        kind = parse_argument_type(text)
        if kind.pointer and (device or value is not None) and device != NOWHERE:
            self.arrays[name], self.homes[name] = value, device or "cpu"
        if kind.is_one:
            self.constants[name] = 1
            return
        flat = flattened(name, kind)
        self.types |= flat
        self.passed.append((position, *map(int, name.split(".")[1:])))
        if value is not None:
            _, read = readers[type(value)](value)
            self.known |= zip(flat, read if kind.block else (read,), strict=True)


def _common_device(kernel: Kernel, found: _Found) -> Device:
    if not found.homes:
        return default_device()
    (first, home), *rest = found.homes.items()
    for name, other in rest:
        if other != home:
            raise LaunchError(
                f"{kernel.__name__}: argument {name!r} ({describe(found.arrays[name])}) is on {other}, but {first!r} "
                f"is on {home}",
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
    if isinstance(value, PlaceholderArray):
        value = value.dtype
    kinds = {base.__name__ for base in type(value).__mro__}
    if "dtype" in kinds or "Scalar" in kinds:
        return f"*{canonical_dtype(value)}:16"
    return None
