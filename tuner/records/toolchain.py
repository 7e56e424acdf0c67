"""What a configuration was measured with, and how two such toolchains differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from deuteron.compiler.runtime.variant.toolchain import toolchain
from deuteron.compiler.target import Target

from ..codec import Document

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

# Digests are shown by their beginning; versions and builds are shorter than this.
_SHOWN = 40


def current_toolchain(device: Device) -> dict[str, str]:
    """What code for ``device`` is compiled with and timed under now: the compiler's own definition
    (:func:`deuteron.compiler.runtime.variant.toolchain.toolchain`), with the driver of a GPU."""
    return toolchain(Target.parse(device.target), device.properties.driver)


class Difference(Document, frozen=True):
    """One part of two toolchains that is not the same; None where one of them does not name it."""

    noun: ClassVar[str] = "difference"

    name: str
    recorded: str | None = None
    current: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {_show(self.recorded)}, here {_show(self.current)}"


def differences(recorded: Mapping[str, str], current: Mapping[str, str]) -> tuple[Difference, ...]:
    """Where a record's toolchain differs from the one of a launch, by name. Records of older versions name fewer
    parts."""
    names = sorted({*recorded, *current})
    return tuple(
        Difference(name, recorded.get(name), current.get(name))
        for name in names
        if recorded.get(name) != current.get(name)
    )


def _show(value: str | None) -> str:
    if value is None:
        return "not named"
    return (value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...") or "none"
