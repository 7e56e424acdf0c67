"""Lookups of a service that has an upstream: the own answer if it is exact, else the better one of both."""

from __future__ import annotations

from typing import TypeAlias

from msgspec.structs import replace

from deuteron.tuner import Answer, DeviceFingerprint, canonical_name
from deuteron.tuner.errors import RecordNotFound
from deuteron.tuner.records.lookup import lookup

from .lookups import Lookups, Question, resolve_device, resolve_kernel
from .metrics import Metrics
from .problems import HttpProblem
from .store import ServiceStore, Transaction
from .upstream import Asked, Part, Upstream

#: From the best answer to the worst.
_ORDER = ("exact", "other_toolchain", "predicted", "nearest_shape", "default")

_Outcome: TypeAlias = Answer | HttpProblem | RecordNotFound


class ReadThrough:
    """As :class:`~.lookups.Lookups`. Answers for which the upstream was needed say whether it was reached
    (``Answer.upstream``), and their records where they come from (``ConfigRecord.site``)."""

    def __init__(self, own: Lookups, store: ServiceStore, upstream: Upstream, metrics: Metrics) -> None:
        self._own = own
        self._store = store
        self._upstream = upstream
        self._metrics = metrics

    def recall(self, question: Question, *, strict: bool = False) -> Answer | None:
        """The own answer if it is exact and needs no read of the store; else None."""
        try:
            return self._own.recall(question, strict=strict, exact=True)
        except RecordNotFound:
            return None

    def answer(self, question: Question, *, strict: bool = False) -> Answer:
        """The better answer of both; of two alike the own one. Raises as :meth:`.lookups.Lookups.answer` does where
        the upstream has no answer either."""
        own: _Outcome
        try:
            own = self._own.answer(question, strict=strict)
        except HttpProblem as problem:
            if problem.status_code != 404:
                raise
            own = problem
        except RecordNotFound as problem:
            own = problem
        if isinstance(own, Answer) and own.match == "exact":
            return own
        with self._store.read() as tx:
            kernel = known_kernel(tx, question.kernel)
        asked = self._upstream.ask(kernel)
        best = self._better(own, self._answer_of(asked.part, question, strict))
        if not isinstance(best, Answer):
            raise self._with_state(best, asked)
        return replace(best, reason=best.reason + self._words(asked), upstream=asked.state)

    def _better(self, own: _Outcome, theirs: Answer | None) -> _Outcome:
        if theirs is None or (isinstance(own, Answer) and _ORDER.index(own.match) <= _ORDER.index(theirs.match)):
            return own
        self._metrics.count("upstream_answers", match=theirs.match)
        return (
            theirs if theirs.record is None else replace(theirs, reason=f"{theirs.reason}; from {theirs.record.site}")
        )

    def _answer_of(self, part: Part, question: Question, strict: bool) -> Answer | None:
        if part.kernel_hash is None:
            return None
        with self._store.read() as tx:
            device = _device(tx, part, question.device)
        try:
            return lookup(
                part.index,
                part.kernel_hash,
                device,
                question.shape,
                question.dtype,
                strict=strict,
                toolchain=question.toolchain,
            )
        except RecordNotFound:
            return None

    def _words(self, asked: Asked) -> str:
        if asked.state == "reached":
            return ""
        why = "was not reached" if asked.state == "unreachable" else "refused, or sent what nobody trusted signed"
        return f"; the upstream {self._upstream.url} {why}"

    def _with_state(self, problem: HttpProblem | RecordNotFound, asked: Asked) -> HttpProblem | RecordNotFound:
        words = self._words(asked)
        if isinstance(problem, HttpProblem):
            return HttpProblem(problem.status_code, problem.slug, f"{problem.detail}{words}", hint=problem.hint)
        return RecordNotFound(f"{problem.message}{words}", hint=problem.hint)


def known_kernel(tx: Transaction, kernel: str) -> str:
    """The hash that a kernel's name stands for here, else the name: it may be known upstream."""
    try:
        return resolve_kernel(tx, kernel)
    except HttpProblem:
        return kernel


def _device(tx: Transaction, part: Part, device: str) -> DeviceFingerprint:
    """The fingerprint that a key or name stands for: here, or among the devices of the part."""
    wanted, keys = resolve_device(tx, device)
    if keys:
        return wanted
    name = canonical_name(device)
    named = {
        record.device.key: record.device
        for record in part.records
        if device in (record.device.key, record.device.kind) or canonical_name(record.device.name) == name
    }
    # A kind that stands for several devices stands for none.
    return next(iter(named.values())) if len(named) == 1 or device not in ("cpu", "cuda") and named else wanted
