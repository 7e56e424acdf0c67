"""Lookups of a service that has an upstream: the own answer if it is exact, else what a service with both would say."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from deuteron.tuner import Answer, DeviceFingerprint, RecordIndex
from deuteron.tuner.errors import RecordNotFound, ShapeMismatch
from deuteron.tuner.records.lookup import lookup

from . import upstream
from .groups import Group
from .lookups import Lookups, Question
from .metrics import Metrics
from .problems import HttpProblem
from .resolving import known_devices, resolve_among, resolve_kernel
from .store import ServiceStore, Transaction
from .upstream import Asked, Part, Upstream

# Indexes of own records and a part together that are kept.
_MOST_INDEXES = 64

_Problem: TypeAlias = HttpProblem | RecordNotFound | ShapeMismatch


@dataclass(frozen=True, slots=True)
class _Both:
    """Own records of a group, as they were at ``versions``, with those of a part."""

    part: Part
    versions: tuple[int, int]
    index: RecordIndex


class ReadThrough:
    """As :class:`~.lookups.Lookups`. Answers for which the upstream was needed say whether it was reached
    (``Answer.upstream``), and their records where they come from (``ConfigRecord.site``)."""

    def __init__(self, own: Lookups, store: ServiceStore, upstream: Upstream, metrics: Metrics) -> None:
        self._own = own
        self._store = store
        self._upstream = upstream
        self._metrics = metrics
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Group, _Both] = OrderedDict()

    def recall(self, question: Question, *, strict: bool = False) -> Answer | None:
        """The own answer if it is exact and needs no read of the store; else None."""
        try:
            return self._own.recall(question, strict=strict, exact=True)
        except (RecordNotFound, ShapeMismatch):
            return None

    def answer(self, question: Question, *, strict: bool = False) -> Answer:
        """What one service with the records of both would say; of two records for one key the own one counts. Raises as
        :meth:`.lookups.Lookups.answer` does where the upstream has no answer either."""
        own: Answer | _Problem
        try:
            own = self._own.answer(question, strict=strict)
        except HttpProblem as problem:
            if problem.status_code != 404:
                raise
            own = problem
        except (RecordNotFound, ShapeMismatch) as problem:
            own = problem
        if isinstance(own, Answer) and own.match == "exact":
            return own
        with self._store.read() as tx:
            kernel = known_kernel(tx, question.kernel)
        asked = self._upstream.ask(kernel)
        best = own
        with suppress(RecordNotFound, ShapeMismatch):
            best = self._best(own, asked.part, question, strict)
        if not isinstance(best, Answer):
            raise self._with_state(best, asked)
        return replace(best, reason=best.reason + self._words(asked), upstream=asked.state)

    def _best(self, own: Answer | _Problem, part: Part, question: Question, strict: bool) -> Answer | _Problem:
        if part.kernel_hash is None:
            return own
        with self._store.read() as tx:
            device, keys = _device(tx, part, question.device)
            index = self._index(tx, part, (part.kernel_hash, keys, question.dtype))
        found = lookup(
            index,
            part.kernel_hash,
            device,
            question.shape,
            question.dtype,
            strict=strict,
            toolchain=question.toolchain,
        )
        if not isinstance(own, Answer) or (found.match, found.config) != (own.match, own.config):
            self._metrics.count("upstream_answers", match=found.match)
        site = None if found.record is None else found.record.site
        return found if site is None else replace(found, reason=f"{found.reason}; from {site}")

    def _index(self, tx: Transaction, part: Part, group: Group) -> RecordIndex:
        """The own records of a group and all of the part, kept until one of them changes."""
        versions = self._own.versions(tx)
        with self._lock:
            known = self._indexes.get(group)
        if known is not None and known.part is part and known.versions == versions:
            return known.index
        both = _Both(part, versions, together(self._own.index_of(tx, group), part))
        with self._lock:
            self._indexes.pop(group, None)
            self._indexes[group] = both
            while len(self._indexes) > 1 and (
                len(self._indexes) > _MOST_INDEXES
                or sum(item.part.size for item in self._indexes.values()) > upstream.MOST_KEPT_BYTES
            ):
                self._indexes.popitem(last=False)
        return both.index

    def _words(self, asked: Asked) -> str:
        if asked.state == "reached":
            return ""
        why = "was not reached" if asked.state == "unreachable" else "refused, or sent what nobody trusted signed"
        return f"; the upstream {self._upstream.url} {why}"

    def _with_state(self, problem: _Problem, asked: Asked) -> _Problem:
        words = self._words(asked)
        if isinstance(problem, HttpProblem):
            return HttpProblem(problem.status_code, problem.slug, f"{problem.detail}{words}", hint=problem.hint)
        return type(problem)(f"{problem.message}{words}", hint=problem.hint)


def together(own: RecordIndex, part: Part) -> RecordIndex:
    """An index of both; of two records, or predictors, for one key the own one is in it."""
    there = {record.key for record in own}
    index = own.copy()
    for record in part.records:
        if record.key not in there:
            index.add(record)
    known = {predictor.key for predictor in own.every_predictor()}
    for predictor in part.predictors:
        if predictor.key not in known:
            index.add_predictor(predictor)
    return index


def known_kernel(tx: Transaction, kernel: str) -> str:
    """The hash that a kernel's name stands for here, else the name: it may be known upstream."""
    try:
        return resolve_kernel(tx, kernel)
    except HttpProblem:
        return kernel


def _device(tx: Transaction, part: Part, device: str) -> tuple[DeviceFingerprint, tuple[str, ...]]:
    """The fingerprint that a key or name stands for, among the devices of the store and of the part together, and the
    keys of those of the store that it matches. A kind means the one of the store, or else the only one of the part."""
    own = known_devices(tx)
    known = {**part.devices, **own}
    if device in ("cpu", "cuda") and device not in known:
        theirs = [item for item in part.devices.values() if item.kind == device]
        if len(theirs) != 1 or any(item.kind == device for item in own.values()):
            known = own
    wanted, keys = resolve_among(known, device)
    return wanted, tuple(key for key in keys if key in own)
