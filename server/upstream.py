"""An upstream service: what this one has not is answered from there, so that laptop, cluster and company form a chain.

What is asked for is the bundle of one kernel, which the upstream signs and whose ETag makes asking again cheap. Parts
are kept in memory, so many and so large at most, and used for FRESH_S without asking. An upstream that does not answer
is left alone for BREAK_S; meanwhile what was kept, up to KEPT_S old, and the own records answer.

A request names the services that it came through (VIA). One that has come through this service already, or through
too many, is not passed on.
"""

from __future__ import annotations

import heapq
import json
import logging
import re
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner import ConfigRecord, RecordIndex, encode_record, read_bundle
from deuteron.tuner.errors import BundleError, UntrustedBundle
from deuteron.tuner.http import HttpClient, ServiceError
from deuteron.tuner.records.trust import KeyFolder, admit_pulled

from .metrics import Metrics

logger = logging.getLogger("deuteron.server")

VIA = "Deuteron-Via"
MOST_HOPS = 8
CONNECT_S, ANSWER_S = 1.0, 2.0
FRESH_S, BREAK_S, KEPT_S = 60.0, 30.0, 24 * 3600.0
MOST_PARTS, MOST_RECORDS, MOST_BYTES = 1024, 100_000, 32 << 20

_ID = re.compile(r"^[0-9a-f]{16}$")
_HASH = re.compile(r"^[0-9a-f]{64}$")

#: How asking went: ``reached``; ``unreachable``: no answer, or an error of the service; ``refused``: it does not know
#: our token, or nobody whom we trust signed what it sent.
State: TypeAlias = Literal["reached", "unreachable", "refused"]


@dataclass(frozen=True, slots=True)
class Part:
    """What the upstream has of one kernel, in the order of the records' keys; each record says its site."""

    records: tuple[ConfigRecord, ...] = ()
    etag: str = ""
    index: RecordIndex = field(default_factory=RecordIndex)

    @property
    def kernel_hash(self) -> str | None:
        """The kernel that it is of, None where the upstream knows none."""
        return self.records[0].kernel_hash if self.records else None


@dataclass(frozen=True, slots=True)
class Asked:
    """What there is to answer with, and whether the upstream was reached for it."""

    part: Part
    state: State


@dataclass(frozen=True, slots=True)
class _Kept:
    part: Part
    at: float
    asked_at: float


class Upstream:
    """Asks the service at ``url``, with ``token``. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        keys: KeyFolder,
        folder: Path,
        metrics: Metrics,
        *,
        token: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.id = secrets.token_hex(8)
        self._keys = keys
        self._folder = folder
        self._metrics = metrics
        self._clock = clock
        self._http = HttpClient(url, token=token, timeout_s=ANSWER_S, connect_s=CONNECT_S)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0
        self._closed_until: tuple[float, State] = (float("-inf"), "reached")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def pass_on(self, kernel: str, via: tuple[str, ...]) -> Asked | None:
        """As :meth:`ask` for a question that came through the services ``via``; None where it came back to us, or went
        too far."""
        if self.id in via or len(via) >= MOST_HOPS:
            self._count("loop")
            return None
        return self.ask(kernel, via)

    def ask(self, kernel: str, via: tuple[str, ...] = ()) -> Asked:
        """What the upstream has of a kernel (hash or name)."""
        now = self._clock()
        with self._lock:
            kept = self._kept.get(kernel)
            if kept is not None and now - kept.at > KEPT_S:
                self._forget(kernel)
                kept = None
            closed_until, why = self._closed_until
        if kept is not None and now - kept.asked_at < FRESH_S:
            self._count("kept")
            return Asked(kept.part, "reached")
        old = kept.part if kept is not None else Part()
        if now < closed_until:
            self._count("skipped")
            return Asked(old, why)
        try:
            part = self._fetch(kernel, old, via)
        except DeuteronError as error:
            return Asked(old, self._failed(error, now))
        self._keep(kernel, _Kept(part, now, now))
        return Asked(part, "reached")

    def _failed(self, error: DeuteronError, now: float) -> State:
        denied = isinstance(error, ServiceError) and error.status in (401, 403)
        state: State = "refused" if denied or isinstance(error, UntrustedBundle) else "unreachable"
        self._count(state)
        logger.warning("upstream %s: %s; asked again in %g s", self.url, error.message, BREAK_S)
        with self._lock:
            self._closed_until = (now + BREAK_S, state)
        return state

    def _fetch(self, kernel: str, old: Part, via: tuple[str, ...]) -> Part:
        headers = {VIA: ", ".join((*via, self.id)), **({"If-None-Match": old.etag} if old.etag else {})}
        try:
            with self._http.stream("/v1/bundles/latest", params={"kernel": kernel}, headers=headers) as response:
                if response.status_code == 304:
                    self._count("unchanged")
                    return old
                part = self._read(kernel, response.iter_bytes(), response.headers.get("ETag", ""))
        except ServiceError as error:
            if error.status != 404:
                raise
            self._count("absent")
            return Part()
        self._count("fetched")
        return part

    def _read(self, kernel: str, pieces: Iterable[bytes], etag: str) -> Part:
        """The part in a bundle that arrives, if it is whole and signed by a key that counts for the upstream."""
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part") as file:
            size = 0
            deadline = self._clock() + 10 * ANSWER_S
            for piece in pieces:
                size += len(piece)
                if size > MOST_BYTES or self._clock() > deadline:
                    raise BundleError(f"the bundle of {self.url} is too large, or takes too long")
                file.write(piece)
            file.flush()
            bundle = read_bundle(file.name)
            admission = admit_pulled(bundle, self.url, self._keys)
            if admission.first_use:
                logger.warning("upstream %s: %s", self.url, admission.reason)
            site = bundle.manifest.service
            records = tuple(replace(record, site=record.site or site) for record in bundle.records())
        hashes = {record.kernel_hash for record in records}
        if len(hashes) > 1 or (_HASH.match(kernel) and hashes - {kernel}):
            raise BundleError(f"{self.url} sent other kernels than {kernel}")
        return Part(records, etag, RecordIndex(records))

    def _keep(self, kernel: str, kept: _Kept) -> None:
        with self._lock:
            self._forget(kernel)
            self._kept[kernel] = kept
            self._size += len(kept.part.records)
            while len(self._kept) > MOST_PARTS or (self._size > MOST_RECORDS and len(self._kept) > 1):
                self._forget(next(iter(self._kept)))

    def _forget(self, kernel: str) -> None:
        kept = self._kept.pop(kernel, None)
        self._size -= len(kept.part.records) if kept is not None else 0

    def _count(self, outcome: str) -> None:
        self._metrics.count("upstream_requests", outcome=outcome)


def services_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The services that a request came through; what is none of our ids counts as one, too."""
    names = [name.strip() for name in headers.get(VIA, "").split(",")][: MOST_HOPS + 1]
    return tuple(name if _ID.match(name) else "?" for name in names if name)


def merged_lines(own: Iterable[bytes], part: Part, device_key: str | None) -> Iterator[bytes]:
    """Lines of a bundle: the own ones, and for keys that are not among them those of the part. Both in key order."""
    decoded = ((ConfigRecord.from_json(json.loads(line)).key, 0, line) for line in own)
    added = ((r.key, 1, encode_record(r)) for r in part.records if device_key in (None, r.device.key))
    last = None
    for key, _, line in heapq.merge(decoded, added):
        if key != last:
            yield line
        last = key
