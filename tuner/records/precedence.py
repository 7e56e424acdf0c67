"""Which of several records counts: lookups and exports follow the same rule.

Of the records of one kernel, device, dtype and shape, that of the launch's toolchain counts, else the newest. A name
that several texts of a kernel have stands for the text of the newest record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from .fingerprint import DeviceFingerprint
from .predictor import Predictor
from .record import ConfigRecord

#: The toolchain key of launches on a device; None where it is not known.
ToolchainKeyOf: TypeAlias = Callable[[DeviceFingerprint], str | None]


def age(stored: ConfigRecord | Predictor) -> tuple[str, str]:
    """What is larger for the newer of two; of two of one moment ids decide."""
    return stored.created_at, stored.id


def newest_texts(stored: Iterable[ConfigRecord | Predictor]) -> dict[str, str]:
    """The hash of the newest text of each kernel name."""
    newest: dict[str, ConfigRecord | Predictor] = {}
    for one in stored:
        held = newest.setdefault(one.kernel_name, one)
        if age(held) < age(one):
            newest[one.kernel_name] = one
    return {name: one.kernel_hash for name, one in newest.items()}


def ranked(records: Iterable[ConfigRecord], toolchain_key_of: ToolchainKeyOf) -> Iterator[ConfigRecord]:
    """All records in the order in which a lookup prefers them where they are equally near: by kernel, device and dtype
    those of the launch's toolchain first, these by shape, and of one shape the newest first."""
    groups: dict[tuple[str, str, str], list[ConfigRecord]] = {}
    for record in sorted(records, key=age, reverse=True):
        groups.setdefault((record.kernel_hash, record.device.key, record.dtype), []).append(record)
    for _, members in sorted(groups.items()):
        several = len({record.toolchain_key for record in members}) > 1
        key = toolchain_key_of(members[0].device) if several else None
        yield from sorted(members, key=lambda record: (key not in (None, record.toolchain_key), record.shape_key))


def standing(records: Iterable[ConfigRecord], toolchain_key_of: ToolchainKeyOf) -> list[ConfigRecord]:
    """Of each kernel, device, dtype and shape the record that counts, in the order of :func:`ranked`."""
    found: dict[tuple[str, ...], ConfigRecord] = {}
    for record in ranked(records, toolchain_key_of):
        found.setdefault(record.key[:4], record)
    return list(found.values())
