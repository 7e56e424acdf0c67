"""Answering "which config for this kernel, device, shape and dtype?" fast.

The rules of the answer are the tuner's (:func:`deuteron.tuner.lookup`). Here is only what makes it quick: the
records of one (kernel, device, dtype) are parsed once and kept (``groups.py``), with the version counter of that
group. What the names in a question stand for is kept, too, with the counters of everything that a lookup reads. One
indexed read of those tells whether all of it is still current. What it said holds until this process writes, and for
TRUST_SECONDS at most, since other processes write too. While lookups come it is read anew before that, beside them:
else all that are under way would read it, one after the other.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype
from deuteron.tuner import Answer, DeviceFingerprint, RecordIndex, shape_key
from deuteron.tuner.errors import RecordNotFound, SchemaError
from deuteron.tuner.records.lookup import lookup

from .groups import Group, Groups, read
from .metrics import Metrics
from .models import MOST_DTYPE, MOST_NAME, MOST_SHAPE_KEY
from .predictors import Predictors
from .resolving import resolve_device, resolve_kernel
from .store import ServiceStore, Transaction

_MAX_RESOLVED = 10_000
# Answers that are read one by one before all records of their group are.
_ROWS_READ = 8

#: How long a lookup may miss what another process has stored.
TRUST_SECONDS = 1.0

Versions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """``kernel`` is a hash or a name, ``device`` a key or a name; both as the caller wrote them. ``dtype`` may be
    written as Triton, NumPy or torch do, and is ours then; empty for kernels without one. ``toolchain`` is what the
    launch will be compiled with, None for any.

    Raises :class:`SchemaError` for a dtype that kernels do not have, and for a text that is longer than what is stored
    of its kind: what a question names is remembered, though there is no such thing."""

    kernel: str
    device: str
    shape: dict[str, int]
    dtype: str
    toolchain: dict[str, str] | None = None

    def __post_init__(self) -> None:
        for name, text, most in (
            ("kernel", self.kernel, MOST_NAME),
            ("device", self.device, MOST_NAME),
            ("dtype", self.dtype, MOST_DTYPE),
            ("shape", shape_key(self.shape), MOST_SHAPE_KEY),
        ):
            if len(text) > most:
                raise SchemaError(f"{name}: {text[:40]!r}... has {len(text)} characters", hint=f"at most {most}")
        try:
            object.__setattr__(self, "dtype", self.dtype and canonical_dtype(self.dtype))
        except LaunchError as error:
            raise SchemaError(f"dtype: {error.message}", hint=error.hint) from None


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
        self._reading_versions = threading.Lock()
        self._renewal: threading.Thread | None = None
        self._groups = Groups(predictors)
        self._rows_read: OrderedDict[Group, int] = OrderedDict()

    def answer(self, question: Question, *, strict: bool = False) -> Answer:
        """The tuner's answer.

        Raises:
            HttpProblem: 404, the kernel is unknown; 422, ``cpu`` or ``cuda`` stands for several devices.
            RecordNotFound: ``strict``, and there is no exact record.
        """
        found = self.recall(question, strict=strict)
        if found is None and self._versions_were_read():
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
        if trusted is None or not self._holds(trusted):
            return None
        if self._clock() >= trusted.until - TRUST_SECONDS / 2:
            self._renew_beside()
        resolved = self._resolved_at(question, trusted.seen)
        if resolved is None:
            return None
        index = self._groups.remembered(resolved.group, resolved.versions, question.shape)
        if index is None:
            return None
        found = _ask(index, question, resolved, strict=strict)
        if exact and found.match != "exact":
            return None
        self._metrics.count("lookups", match=found.match)
        return found

    def _holds(self, trusted: _Trusted) -> bool:
        return trusted.generation == self._store.generation and self._clock() < trusted.until

    def _versions_were_read(self) -> bool:
        """Whether they are known now: read here, or by another lookup meanwhile. Not where they were before."""
        seen = self._trusted
        if seen is not None and self._holds(seen):
            return False
        with self._reading_versions:
            trusted = self._trusted
            if trusted is None or not self._holds(trusted):
                self._read_versions()
        return True

    def _read_versions(self) -> None:
        # Before reading, so that a write in between makes what is remembered old at once.
        generation, until = self._store.generation, self._clock() + TRUST_SECONDS
        with self._store.read() as tx:
            self._trusted = _Trusted(self._versions_in(tx), generation, until)

    def _versions_in(self, tx: Transaction) -> Versions:
        return (*tx.versions(), ("predictors", self._predictors.version()))

    def _renew_beside(self) -> None:
        """Read the versions in a thread, unless one does."""
        with self._lock:
            if self._renewal is not None and self._renewal.is_alive():
                return
            self._renewal = threading.Thread(target=self._renew, name="deuteron-lookups", daemon=True)
            self._renewal.start()

    def _renew(self) -> None:
        # What is wrong with the database is for lookups to say, once nothing holds any more.
        with suppress(SQLAlchemyError), self._reading_versions:
            self._read_versions()

    def _answer_from_store(self, question: Question, strict: bool) -> Answer:
        with self._store.read() as tx:
            seen = self._versions_in(tx)
            resolved = self._resolved_at(question, seen) or self._resolve(tx, question, seen)
            index = self._groups.remembered(resolved.group, resolved.versions, question.shape)
            # An empty group's version does not tell when the kernel is tuned elsewhere, which the answer names.
            if index is None or not len(index):
                # An exact answer needs one row; only a nearest one, or many exact ones, need the whole group.
                if not self._groups.is_known_large(resolved.group) and self._is_rarely_asked(resolved.group):
                    row = read(tx, resolved.group, [shape_key(question.shape)])
                    with suppress(RecordNotFound):
                        return _ask(row, question, resolved, strict=True)
                index = self._groups.load(tx, resolved.group, resolved.versions, question.shape)
                with self._lock:
                    self._rows_read.pop(resolved.group, None)
        return _ask(index, question, resolved, strict=strict)

    def index_of(self, tx: Transaction, group: Group) -> RecordIndex:
        """All records and predictors of a group."""
        kernel_hash, keys, dtype = group
        versions = (
            *(tx.configs.group_version(kernel_hash, key, dtype) for key in keys),
            self._predictors.version(),
        )
        return self._groups.whole(tx, group, versions)

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
