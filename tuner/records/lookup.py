"""Finding the configuration for a launch among stored records, and saying why it was chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..codec import Document, Scalar, canonical_json
from ..errors import RecordNotFound
from ..job import shape_key
from .fingerprint import DeviceFingerprint
from .record import ConfigRecord

if TYPE_CHECKING:
    import numpy as np

Match: TypeAlias = Literal["exact", "nearest_shape", "other_toolchain", "default"]

# Below this many shapes a plain loop is faster than calling NumPy.
_VECTOR_FROM = 64


class Answer(Document, frozen=True):
    """The configuration to use and why. With the match ``default`` there is no record and ``config`` is empty: the
    kernel's own defaults apply."""

    record: ConfigRecord | None
    config: Mapping[str, Scalar]
    match: Match
    reason: str


class _Table:
    """Records of one kernel, device, dtype and toolchain by shape; of two for one shape the newer."""

    def __init__(self) -> None:
        self.by_key: dict[str, ConfigRecord] = {}
        self._vectors: dict[tuple[str, ...], tuple[list[str], np.ndarray]] | None = None

    def add(self, record: ConfigRecord) -> None:
        old = self.by_key.get(record.shape_key)
        if old is None or (old.created_at, old.id) <= (record.created_at, record.id):
            self.by_key[record.shape_key] = record
            self._vectors = None

    def nearest(self, shape: Mapping[str, int]) -> ConfigRecord | None:
        """The record of the shape with the same dims at the least :func:`shape_distance`; the smaller key wins a tie,
        so every process answers alike."""
        if len(self.by_key) >= _VECTOR_FROM:
            return self._nearest_of_many(tuple(sorted(shape)), shape)
        fitting = [record for record in self.by_key.values() if record.shape.keys() == shape.keys()]
        return min(fitting, key=lambda r: (shape_distance(r.shape, shape), r.shape_key), default=None)

    def _nearest_of_many(self, dims: tuple[str, ...], shape: Mapping[str, int]) -> ConfigRecord | None:
        import numpy as np

        if self._vectors is None:
            groups: dict[tuple[str, ...], list[str]] = {}
            for key in sorted(self.by_key):
                groups.setdefault(tuple(sorted(self.by_key[key].shape)), []).append(key)
            self._vectors = {
                names: (
                    keys,
                    np.log2([[max(1, self.by_key[k].shape[d]) for d in names] for k in keys]),
                )
                for names, keys in groups.items()
            }
        if dims not in self._vectors:
            return None
        keys, logs = self._vectors[dims]
        wanted = np.log2([max(1, shape[dim]) for dim in dims])
        # Rounded, so that shapes at the same distance tie exactly and the order of the keys decides.
        distances = np.round(np.square(logs - wanted).sum(axis=1), 12)
        return self.by_key[keys[int(np.argmin(distances))]]


def shape_distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Squared Euclidean distance of two shapes with the same dims in log2 of their sizes, rounded to 12 digits."""
    return round(sum((math.log2(max(1, a[d])) - math.log2(max(1, b[d]))) ** 2 for d in a), 12)


class RecordIndex:
    """Records arranged for lookup: among 100,000 an answer takes microseconds. Iterates in order of insertion."""

    def __init__(self, records: Iterable[ConfigRecord] = ()) -> None:
        self._records: list[ConfigRecord] = []
        self._devices: dict[tuple[str, str], dict[str, DeviceFingerprint]] = {}
        self._tables: dict[tuple[str, str, str], dict[str, _Table]] = {}
        self._by_hash: dict[str, ConfigRecord] = {}
        for record in records:
            self.add(record)

    def add(self, record: ConfigRecord) -> None:
        """Add a record; of two for one kernel, device, dtype, toolchain and shape the newer answers."""
        self._records.append(record)
        kernel_hash, device_key, dtype, _, toolchain_key = record.key
        self._devices.setdefault((kernel_hash, dtype), {})[device_key] = record.device
        tables = self._tables.setdefault((kernel_hash, device_key, dtype), {})
        tables.setdefault(toolchain_key, _Table()).add(record)
        self._by_hash.setdefault(kernel_hash, record)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConfigRecord]:
        return iter(self._records)

    def of_kernel(self, kernel_hash: str) -> ConfigRecord | None:
        """Some record of the kernel: all of one kernel agree on where the shape is found among its arguments."""
        return self._by_hash.get(kernel_hash)

    def tables(self, kernel_hash: str, device: DeviceFingerprint, dtype: str) -> list[tuple[str, _Table]]:
        """(toolchain key, records) for the devices that are this one: the same key first, then those that match in
        all that is known of both."""
        known = self._devices.get((kernel_hash, dtype), {})
        keys = [device.key] if device.key in known else []
        keys += [k for k, other in known.items() if k != device.key and other.matches(device)]
        return [item for key in keys for item in sorted(self._tables[kernel_hash, key, dtype].items())]


def lookup(
    records: Iterable[ConfigRecord] | RecordIndex,
    kernel_hash: str,
    device: DeviceFingerprint,
    shape: Mapping[str, int],
    dtype: str,
    *,
    strict: bool = False,
    toolchain: Mapping[str, str] | None = None,
) -> Answer:
    """The configuration for a launch: exactly this shape; else the nearest shape; else, flagged as unverified, one that
    another toolchain found; else the default. Kernel, device and dtype always have to fit.

    ``toolchain``: what the launch will be compiled with; None accepts any. ``strict``: only an exact match will do, all
    else raises :class:`RecordNotFound`.
    """
    index = records if isinstance(records, RecordIndex) else RecordIndex(records)
    tables = index.tables(kernel_hash, device, dtype)
    wanted = shape_key(shape)
    chain = None if toolchain is None else canonical_json(dict(toolchain))
    fitting = [table for key, table in tables if chain is None or key == chain]
    others = [table for key, table in tables if chain is not None and key != chain]
    exact = _exact(fitting, wanted)
    if exact is not None:
        return Answer(exact, exact.config, "exact", f"tuned for {wanted} on {exact.device.key}")
    if strict:
        raise RecordNotFound(
            f"no configuration for {wanted} {dtype} on {device.key}: {_why_not(index, kernel_hash, tables)}",
            hint="tune this shape, or look up without strict",
        )
    near = _nearest(fitting, shape)
    if near is not None:
        reason = f"{wanted} was not tuned on {near.device.key}; the nearest shape is {near.shape_key}"
        return Answer(near, near.config, "nearest_shape", reason)
    unverified = _exact(others, wanted) or _nearest(others, shape)
    if unverified is not None:
        return Answer(unverified, unverified.config, "other_toolchain", _unverified(unverified, wanted))
    return Answer(None, {}, "default", _why_not(index, kernel_hash, tables))


def _exact(tables: list[_Table], wanted: str) -> ConfigRecord | None:
    """The newest record of exactly this shape."""
    found = [table.by_key[wanted] for table in tables if wanted in table.by_key]
    return max(found, key=lambda record: (record.created_at, record.id), default=None)


def _nearest(tables: list[_Table], shape: Mapping[str, int]) -> ConfigRecord | None:
    found = [record for table in tables if (record := table.nearest(shape)) is not None]
    return min(found, key=lambda r: (shape_distance(r.shape, shape), r.shape_key), default=None)


def _unverified(record: ConfigRecord, wanted: str) -> str:
    chain = ", ".join(f"{name} {value}" for name, value in sorted(record.toolchain.items()))
    return f"found for {record.shape_key} with another toolchain ({chain}); not verified with this one for {wanted}"


def _why_not(index: RecordIndex, kernel_hash: str, tables: list[tuple[str, _Table]]) -> str:
    if tables:
        return "only other shapes or toolchains were tuned"
    if index.of_kernel(kernel_hash) is None:
        return f"no record of the kernel {kernel_hash[:12]} (its source may have changed since it was tuned)"
    return "the kernel was tuned for other devices or dtypes only"
