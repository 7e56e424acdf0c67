"""Answering "which config for this kernel, device, shape and dtype?" fast.

The rules of the answer are the tuner's (:func:`deuteron.tuner.lookup`). Here is only what makes it quick: the
records of one (kernel, device, dtype) are parsed once and kept, with the version counter of that group. One
indexed read a lookup tells whether they are still current, also when another process wrote.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from deuteron.tuner import (
    Answer,
    ConfigRecord,
    DeviceFingerprint,
    RecordIndex,
    canonical_name,
    lookup,
)

from .metrics import Metrics
from .problems import Problem
from .store import Device, Store, Transaction
from .submission import builtin_kernel_hash

_HASH = re.compile(r"^[0-9a-f]{64}$")
# Bounds memory: a record with its JSON takes about 3 KB, so this is some hundred MB at the very most.
_MAX_CACHED_RECORDS = 100_000

Group = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """``kernel`` is a hash or a name, ``device`` a key or a name; both as the caller wrote them."""

    kernel: str
    device: str
    shape: dict[str, int]
    dtype: str


@dataclass(frozen=True, slots=True)
class _Cached:
    version: int
    index: RecordIndex
    size: int


class Lookups:
    """Answers questions from the store. Safe to share between threads."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._lock = threading.Lock()
        self._cache: OrderedDict[Group, _Cached] = OrderedDict()
        self._size = 0

    def answer(self, question: Question, *, strict: bool = False) -> Answer:
        """The tuner's answer.

        Raises:
            Problem: 404, the kernel or the device is unknown; 422, the device name is ambiguous.
            RecordNotFound: ``strict``, and there is no exact record.
        """
        with self._store.read() as tx:
            kernel_hash = resolve_kernel(tx, question.kernel)
            device = resolve_device(tx, question.device)
            index = self._index(tx, (kernel_hash, device.key, question.dtype))
        answer = lookup(
            index,
            kernel_hash,
            DeviceFingerprint.from_json(json.loads(device.fingerprint)),
            question.shape,
            question.dtype,
            strict=strict,
        )
        self._metrics.count("lookups", match=answer.match)
        return answer

    def _index(self, tx: Transaction, group: Group) -> RecordIndex:
        version = tx.configs.group_version(*group)
        with self._lock:
            cached = self._cache.get(group)
            if cached is not None and cached.version == version:
                self._cache.move_to_end(group)
                return cached.index
        records = [
            ConfigRecord.from_json(json.loads(config.body))
            for config in tx.configs.candidates(*group)
        ]
        fresh = _Cached(version, RecordIndex(records), len(records))
        with self._lock:
            self._forget(group)
            self._cache[group] = fresh
            self._size += fresh.size
            while self._size > _MAX_CACHED_RECORDS and len(self._cache) > 1:
                self._forget(next(iter(self._cache)))
        return fresh.index

    def _forget(self, group: Group) -> None:
        cached = self._cache.pop(group, None)
        if cached is not None:
            self._size -= cached.size


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
        raise Problem(
            404,
            "kernel-not-found",
            f"there is no kernel {kernel!r}",
            hint="a built-in workload, the name of a kernel that was submitted, or its sha256",
        )
    return found


def resolve_device(tx: Transaction, device: str) -> Device:
    """The device that a key or a name stands for; ``NVIDIA H200`` and ``NVIDIA_H200_141GB`` meet.

    Raises:
        Problem: 404, no such device was ever seen; 422, several different devices have the name.
    """
    exact = tx.devices.find(device)
    if exact is not None:
        return exact
    known = tx.devices.all()
    wanted = canonical_name(device)
    matching = [
        item for item in known if canonical_name(item.name) == wanted or item.kind == device
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise Problem(
            422,
            "ambiguous-device",
            f"{len(matching)} devices answer to {device!r}",
            hint="use a key: " + ", ".join(_keys(matching)),
        )
    raise Problem(
        404,
        "device-not-found",
        f"no device {device!r} has been seen by this service",
        hint="known: " + (", ".join(_keys(known)) or "none yet; workers announce theirs"),
    )


def _keys(devices: list[Device]) -> Iterator[str]:
    return (device.key for device in devices)
