"""Which device a configuration is for: canonical identity, with the many spellings of GPU names resolved."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from ..codec import Count, Document, Finite
from ..errors import SchemaError

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

GIB = 1 << 30
# Drivers reserve a varying part of the memory; boards differ by 8 GiB and more.
MEMORY_STEP_GIB = 4

# Words that some tools print and others leave out. What distinguishes boards stays: PCIe, NVL, Ti, SUPER, Max-Q. Memory
# sizes go because the fingerprint has the memory itself; SXM goes because a board without a suffix means that one.
_NOISE = re.compile(
    r"^(nvidia|amd|intel|geforce|tesla|quadro|radeon|instinct|graphics|gpu|corporation|\(r\)|\(tm\)|cpu|processor"
    r"|\d+\s?g[ib]?b?|hbm\d*e?|gddr\d*x?|sxm\d?|mig|\d+g\.\d+gb|@|[\d.]+ghz|\d+-core)$"
)
_SEPARATORS = re.compile(r"[\s_/\-]+")


# Parts of a key after kind and name, and the fields that each gives.
_KEY_PARTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, object]]], ...] = (
    (re.compile(r"cc(\d+)(\d)"), lambda m: {"compute_capability": [int(m[1]), int(m[2])]}),
    (re.compile(r"(?:sm|cores)(\d+)"), lambda m: {"sm_count": int(m[1])}),
    (re.compile(r"(\d+)gib"), lambda m: {"memory_bytes": int(m[1]) * GIB}),
    (re.compile(r"mig-(.+)"), lambda m: {"mig": m[1]}),
    (re.compile(r"(\d+)w"), lambda m: {"power_cap_watts": int(m[1])}),
)


@lru_cache(maxsize=1024)
def canonical_name(name: str) -> str:
    """``h100`` for "NVIDIA H100", "NVIDIA_H100_80GB_HBM3" and "NVIDIA H100 80GB HBM3"; ``h100-pcie`` for "NVIDIA H100
    PCIe"; ``mi308x`` for "AMD_Instinct_MI308X". The name itself, lower case, if nothing else is left."""
    words = [word.lower() for word in _SEPARATORS.split(name) if word]
    kept = [cleaned for word in words if (cleaned := re.sub(r"\((r|tm)\)", "", word)) and not _NOISE.match(cleaned)]
    return "-".join(kept or words)


class DeviceFingerprint(Document, frozen=True, gc=False):
    """What makes two devices tune alike. Fields that are not known are None and match anything."""

    noun: ClassVar[str] = "device"

    kind: str
    name: str
    pci_device_id: str | None = None
    sm_count: Count | None = None
    memory_bytes: Count | None = None
    compute_capability: tuple[Count, Count] | None = None
    mig: str | None = None
    power_cap_watts: Finite | None = None

    @property
    def canonical(self) -> str:
        """:func:`canonical_name` of the name."""
        return canonical_name(self.name)

    @property
    def memory_gib(self) -> int | None:
        """Memory rounded to the nearest 4 GiB; not counted on a CPU, where it says nothing about a kernel."""
        if self.memory_bytes is None or self.kind == "cpu":
            return None
        return max(1, round(Fraction(self.memory_bytes, GIB * MEMORY_STEP_GIB))) * MEMORY_STEP_GIB

    @property
    def key(self) -> str:
        """The canonical text: ``cuda/h100/cc90/sm132/80gib/700w``, unknown parts left out."""
        return _key(self)

    @classmethod
    def from_key(cls, key: str) -> DeviceFingerprint:
        """A fingerprint with this :attr:`key`, as far as a key tells: the PCI id and the exact memory are not in it.

        Raises:
            SchemaError: no fingerprint has this key.
        """
        kind, _, rest = key.partition("/")
        name, *parts = rest.split("/")
        known: dict[str, object] = {}
        for part in parts:
            for pattern, read in _KEY_PARTS:
                found = pattern.fullmatch(part)
                if found is not None:
                    known |= read(found)
        made = cls.from_json({"kind": kind, "name": name, **known})
        if made.key != key:
            raise SchemaError(f"{key!r} is the key of no device", hint="such as cuda/h200/cc90/sm132/144gib/700w")
        return made

    def matches(self, other: DeviceFingerprint) -> bool:
        """Whether nothing known about both differs, after canonical naming."""
        pairs = (
            (self.kind, other.kind),
            (self.canonical, other.canonical),
            (self.sm_count, other.sm_count),
            (self.memory_gib, other.memory_gib),
            (self.compute_capability, other.compute_capability),
            (self.mig or "", other.mig or ""),
            (_watts(self), _watts(other)),
        )
        return all(a == b or a is None or b is None for a, b in pairs)

    @staticmethod
    def of(properties: DeviceProperties) -> DeviceFingerprint:
        """The fingerprint of a device of this machine."""
        return DeviceFingerprint(
            kind=properties.kind,
            name=properties.name,
            pci_device_id=properties.pci_device_id,
            sm_count=properties.sm_count,
            memory_bytes=properties.memory_bytes,
            compute_capability=properties.compute_capability,
            mig="on" if properties.mig else None,
            power_cap_watts=properties.power_cap_watts,
        )


def _watts(device: DeviceFingerprint) -> int | None:
    return None if device.power_cap_watts is None else round(device.power_cap_watts)


@lru_cache(maxsize=4096)
def _key(device: DeviceFingerprint) -> str:
    """Kept, because thousands of records are of one device."""
    parts = [device.kind, device.canonical]
    if device.compute_capability is not None:
        parts.append("cc{}{}".format(*device.compute_capability))
    if device.sm_count is not None:
        parts.append(f"{'sm' if device.kind == 'cuda' else 'cores'}{device.sm_count}")
    if device.memory_gib is not None:
        parts.append(f"{device.memory_gib}gib")
    if device.mig:
        parts.append(f"mig-{device.mig}")
    if device.power_cap_watts is not None:
        parts.append(f"{device.power_cap_watts:.0f}w")
    return "/".join(parts)
