"""Answering "which config for this kernel, device, shape and dtype?" fast.

The rules of the answer are the tuner's (:func:`deuteron.tuner.lookup`). Here is only what makes it quick: the
records of one (kernel, device, dtype) are parsed once and kept, with the version counter of that group. What the
names in a question stand for is kept, too, with the counters of everything that a lookup reads. One indexed read of
those tells whether all of it is still current. What it said holds until this process writes, and for TRUST_SECONDS at
most, since other processes write too.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache

from deuteron.compiler import KernelSource
from deuteron.tuner import (
    BUILTINS,
    Answer,
    ConfigRecord,
    DeviceFingerprint,
    RecordIndex,
    builtin_workload,
    canonical_name,
    shape_key,
)
from deuteron.tuner.errors import RecordNotFound
from deuteron.tuner.job import parse_shape
from deuteron.tuner.records.lookup import lookup

from .metrics import Metrics
from .predictors import Predictors
from .problems import HttpProblem
from .store import ServiceStore, StoredDevice, Transaction

_HASH = re.compile(r"^[0-9a-f]{64}$")
# Bounds memory: a record with its JSON takes about 3 KB, so this is some hundred MB at the very most.
_MAX_CACHED_RECORDS = 100_000
_MAX_RESOLVED = 10_000
# Answers that are read one by one before all records of their group are.
_ROWS_READ = 8
# Shapes of a kernel that are looked at to learn its dims, which are the same in all but strange cases.
_SHAPES_READ = 20

#: How long a lookup may miss what another process has stored.
TRUST_SECONDS = 1.0

Group = tuple[str, tuple[str, ...], str]
Versions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """``kernel`` is a hash or a name, ``device`` a key or a name; both as the caller wrote them.
    ``toolchain`` is what the launch will be compiled with, None for any."""

    kernel: str
    device: str
    shape: dict[str, int]
    dtype: str
    toolchain: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Cached:
    versions: tuple[int, ...]
    index: RecordIndex


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What the kernel and device of a question stand for, and the versions of their group, as the store said at the
    versions ``seen``."""

    group: Group
    device: DeviceFingerprint
    versions: tuple[int, ...]
    seen: Versions


@dataclass(frozen=True, slots=True)
class _Trusted:
    """The versions of everything that a lookup reads, and how long they may be believed to be the store's."""

    seen: Versions
    generation: int
    until: float


class Lookups:
    """Answers questions from the store. Safe to share between threads."""

    def __init__(
        self,
        store: ServiceStore,
        metrics: Metrics,
        predictors: Predictors,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._predictors = predictors
        self._clock = clock
        self._resolved: OrderedDict[tuple[str, str, str], _Resolved] = OrderedDict()
        self._trusted: _Trusted | None = None
        self._lock = threading.Lock()
        self._cache: OrderedDict[Group, _Cached] = OrderedDict()
        self._rows_read: OrderedDict[Group, int] = OrderedDict()
        self._size = 0

    def answer(self, question: Question, *, strict: bool = False) -> Answer:
        """The tuner's answer.

        Raises:
            Problem: 404, the kernel is unknown; 422, ``cpu`` or ``cuda`` stands for several devices.
            RecordNotFound: ``strict``, and there is no exact record.
        """
        found = self.recall(question, strict=strict)
        if found is None:
            found = self._answer_from_store(question, strict)
            self._metrics.count("lookups", match=found.match)
        return found

    def recall(self, question: Question, *, strict: bool = False, exact: bool = False) -> Answer | None:
        """The answer if it needs no read of the store, which takes microseconds and never blocks; else None.
        ``exact``: only one that matches exactly.

        Raises:
            RecordNotFound: ``strict``, and there is no exact record.
            ShapeMismatch: the kernel is tuned over other dims.
        """
        trusted = self._trusted
        if trusted is None or trusted.generation != self._store.generation or self._clock() >= trusted.until:
            return None
        resolved = self._resolved_at(question, trusted.seen)
        index = self._cached(resolved.group, resolved.versions) if resolved else None
        if resolved is None or index is None:
            return None
        found = _ask(index, question, resolved, strict=strict)
        if exact and found.match != "exact":
            return None
        self._metrics.count("lookups", match=found.match)
        return found

    def _answer_from_store(self, question: Question, strict: bool) -> Answer:
        # Before reading, so that a write in between makes what is remembered old at once.
        generation, until = self._store.generation, self._clock() + TRUST_SECONDS
        with self._store.read() as tx:
            seen = (*tx.versions(), ("predictors", self._predictors.version()))
            self._trusted = _Trusted(seen, generation, until)
            resolved = self._resolved_at(question, seen) or self._resolve(tx, question, seen)
            index = self._cached(resolved.group, resolved.versions)
            # An empty group's version does not tell when the kernel is tuned elsewhere, which the answer names.
            if index is None or not len(index):
                # An exact answer needs one row; only a nearest one, or many exact ones, need the whole group.
                if self._is_rarely_asked(resolved.group):
                    row = _read(tx, resolved.group, shape_key(question.shape))
                    with suppress(RecordNotFound):
                        return _ask(row, question, resolved, strict=True)
                index = self._load(tx, resolved.group, resolved.versions)
        return _ask(index, question, resolved, strict=strict)

    def index_of(self, tx: Transaction, group: Group) -> RecordIndex:
        """All records and predictors of a group."""
        kernel_hash, keys, dtype = group
        versions = (
            *(tx.configs.group_version(kernel_hash, key, dtype) for key in keys),
            self._predictors.version(),
        )
        return self._cached(group, versions) or self._load(tx, group, versions)

    def versions(self, tx: Transaction) -> tuple[int, int]:
        """Grow when any record or any predictor changes."""
        return tx.configs.version(), self._predictors.version()

    def _is_rarely_asked(self, group: Group) -> bool:
        with self._lock:
            self._rows_read[group] = self._rows_read.pop(group, 0) + 1
            if len(self._rows_read) > _MAX_RESOLVED:
                self._rows_read.popitem(last=False)
            return self._rows_read[group] <= _ROWS_READ

    def _resolved_at(self, question: Question, seen: Versions) -> _Resolved | None:
        with self._lock:
            resolved = self._resolved.get((question.kernel, question.device, question.dtype))
        return resolved if resolved is not None and resolved.seen == seen else None

    def _resolve(self, tx: Transaction, question: Question, seen: Versions) -> _Resolved:
        kernel_hash = resolve_kernel(tx, question.kernel)
        device, keys = resolve_device(tx, question.device)
        groups = (tx.configs.group_version(kernel_hash, key, question.dtype) for key in keys)
        versions = (*groups, dict(seen)["predictors"])
        resolved = _Resolved((kernel_hash, keys, question.dtype), device, versions, seen)
        self._remember(question, resolved)
        return resolved

    def _remember(self, question: Question, resolved: _Resolved) -> None:
        with self._lock:
            self._resolved[(question.kernel, question.device, question.dtype)] = resolved
            while len(self._resolved) > _MAX_RESOLVED:
                self._resolved.popitem(last=False)

    def _cached(self, group: Group, versions: tuple[int, ...]) -> RecordIndex | None:
        with self._lock:
            cached = self._cache.get(group)
            if cached is None or cached.versions != versions:
                return None
            self._cache.move_to_end(group)
            return cached.index

    def _load(self, tx: Transaction, group: Group, versions: tuple[int, ...]) -> RecordIndex:
        index = _read(tx, group, None)
        for predictor in self._predictors.of(group[0]):
            index.add_predictor(predictor)
        if not len(index):
            _tell_what_is_known(tx, index, group[0])
        with self._lock:
            self._rows_read.pop(group, None)
            self._forget(group)
            self._cache[group] = _Cached(versions, index)
            self._size += len(index)
            while self._size > _MAX_CACHED_RECORDS and len(self._cache) > 1:
                self._forget(next(iter(self._cache)))
        return index

    def _forget(self, group: Group) -> None:
        cached = self._cache.pop(group, None)
        if cached is not None:
            self._size -= len(cached.index)


def _ask(index: RecordIndex, question: Question, resolved: _Resolved, *, strict: bool) -> Answer:
    kernel_hash, _, dtype = resolved.group
    return lookup(
        index,
        kernel_hash,
        resolved.device,
        question.shape,
        dtype,
        strict=strict,
        toolchain=question.toolchain,
    )


def _read(tx: Transaction, group: Group, shape: str | None) -> RecordIndex:
    """The stored records of a group; of one shape only, if it is given."""
    kernel_hash, keys, dtype = group
    return RecordIndex(
        ConfigRecord.from_json(json.loads(config.body))
        for key in keys
        for config in tx.configs.candidates(kernel_hash, key, dtype, shape_key=shape)
    )


def _tell_what_is_known(tx: Transaction, index: RecordIndex, kernel_hash: str) -> None:
    """For a group without records: where else the kernel was tuned, and over which dims it is."""
    for device_key, dtype in tx.configs.places(kernel_hash):
        index.add_place(kernel_hash, device_key, dtype)
    for name in BUILTINS:
        if builtin_kernel_hash(name) == kernel_hash:
            index.add_dims(kernel_hash, name, builtin_workload(name).dims)
    for kernel_name, shape in tx.configs.shapes(kernel_hash, limit=_SHAPES_READ):
        index.add_dims(kernel_hash, kernel_name, parse_shape(shape))


def resolve_kernel(tx: Transaction, kernel: str) -> str:
    """The hash that a kernel hash or name stands for.

    Raises:
        Problem: 404, nothing is known under this name.
    """
    if _HASH.match(kernel):
        return kernel
    stored = tx.kernels.newest_named(kernel)
    found = stored.hash if stored is not None else builtin_kernel_hash(kernel)
    if found is None:
        raise HttpProblem(
            404,
            "kernel-not-found",
            f"there is no kernel {kernel!r}",
            hint="a built-in workload, the name of a kernel that was submitted, or its sha256",
        )
    return found


def resolve_device(tx: Transaction, device: str) -> tuple[DeviceFingerprint, tuple[str, ...]]:
    """The fingerprint that a key or a name stands for, and the keys of the known devices that it matches:
    ``NVIDIA H200`` and ``NVIDIA_H200_141GB`` meet. A device that was never seen matches none.

    Raises:
        Problem: 422, ``cpu`` or ``cuda`` stands for several devices.
    """
    return resolve_among(known_devices(tx), device)


def known_devices(tx: Transaction) -> dict[str, DeviceFingerprint]:
    """The devices of the store by their keys."""
    return {item.key: _fingerprint(item) for item in tx.devices.all()}


def resolve_among(known: Mapping[str, DeviceFingerprint], device: str) -> tuple[DeviceFingerprint, tuple[str, ...]]:
    """As :func:`resolve_device`, with these devices known by their keys."""
    if device in known:
        wanted = known[device]
    elif device in ("cpu", "cuda"):
        candidates = [item for item in known.values() if item.kind == device]
        if len(candidates) > 1:
            raise HttpProblem(
                422,
                "ambiguous-device",
                f"{len(candidates)} devices are of the kind {device!r}",
                hint="use a name or a key: " + ", ".join(item.key for item in candidates),
            )
        wanted = candidates[0] if candidates else DeviceFingerprint(device, device)
    else:
        name = canonical_name(device)
        kinds = [item.kind for item in known.values() if canonical_name(item.name) == name]
        wanted = DeviceFingerprint(kinds[0] if kinds else "cuda", device)
    keys = [key for key, item in known.items() if item.matches(wanted)]
    return wanted, tuple(keys)


def _fingerprint(device: StoredDevice) -> DeviceFingerprint:
    return _parse_fingerprint(device.fingerprint)


@lru_cache(maxsize=1024)
def _parse_fingerprint(text: str) -> DeviceFingerprint:
    return DeviceFingerprint.from_json(json.loads(text))


@cache
def builtin_kernel_hash(name: str) -> str | None:
    """The kernel hash of a built-in workload, None when there is no such workload."""
    if name not in BUILTINS:
        return None
    kernel = builtin_workload(name).kernel
    return KernelSource.from_text(kernel.source, kernel.name, kernel.filename).hash
