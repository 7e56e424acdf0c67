"""An upstream service: what this one has not is answered from there, so that laptop, cluster and company form a chain.

What is asked for is the bundle of one kernel, which the upstream signs and whose ETag makes asking again cheap. Parts
are kept in memory, so many and so large at most, and used for FRESH_S without asking, as long as the key that signed
them counts. An upstream that does not answer is left alone for BREAK_S; meanwhile what was kept, up to KEPT_S old, and
the own records answer.

One request for a kernel is under way at a time. Who asks waits for it, but no longer than ANSWER_S, and no more than
MOST_AT_ONCE wait: the rest answers at once from what there is. A request that nobody waits for any more goes on until
TOTAL_S, so that a large part on a slow line arrives for who asks later.

A request names the services that it came through (VIA), and how long its sender waits (PATIENCE): a service waits for
the next one a part of that, so that it can still answer itself while one behind it hangs. One that has come through
this service already, or through too many, is not passed on. Nor does one from another service wait for a request that
is under way already: in a loop each would wait for the other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import json
import logging
import math
import re
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner import ConfigRecord, DeviceFingerprint, encode_record, read_bundle
from deuteron.tuner.errors import BundleError, UntrustedBundle
from deuteron.tuner.fetch import Fetcher, FetchLimits
from deuteron.tuner.http import ServiceError
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.trust import KeyFolder, admit_pulled, server_address

from .metrics import Metrics

logger = logging.getLogger("deuteron.server")

VIA, PATIENCE, STATE = "Deuteron-Via", "Deuteron-Patience", "Deuteron-Upstream"
MOST_HOPS = 8
CONNECT_S, ANSWER_S, TOTAL_S = 1.0, 3.0, 20.0
#: Of what its sender waits, what a service waits for the next one; below LEAST_S it does not ask.
PATIENCE_PART, LEAST_S = 0.75, 0.1
FRESH_S, PARTIAL_S, BREAK_S, KEPT_S = 60.0, 10.0, 30.0, 24 * 3600.0
MOST_PARTS, MOST_BYTES, MOST_KEPT_BYTES = 1024, 32 << 20, 128 << 20
MOST_AT_ONCE = 8

_ID = re.compile(r"^[0-9a-f]{16}$")
_HASH = re.compile(r"^[0-9a-f]{64}$")

#: How asking went: ``reached``; ``unreachable``: no answer, or an error of the service; ``refused``: it does not know
#: our token, or nobody whom we trust signed what it sent.
State: TypeAlias = Literal["reached", "unreachable", "refused"]


@dataclass(frozen=True)
class Part:
    """What the upstream has of one kernel, in the order of the keys; each record says its site. ``signer``: the key
    that signed it; ``version``: equal for equal content; ``size``: of its bundle in bytes; ``whole``: the upstream had
    all that is behind it, too."""

    records: tuple[ConfigRecord, ...] = ()
    predictors: tuple[Predictor, ...] = ()
    etag: str = ""
    signer: str | None = None
    version: str = ""
    size: int = 0
    whole: bool = True

    @property
    def kernel_hash(self) -> str | None:
        """The kernel that it is of, None where the upstream knows none."""
        if self.records:
            return self.records[0].kernel_hash
        return self.predictors[0].kernel_hash if self.predictors else None

    @cached_property
    def devices(self) -> dict[str, DeviceFingerprint]:
        """The devices of its records and predictors by their keys."""
        found = [record.device for record in self.records] + [predictor.device for predictor in self.predictors]
        return {device.key: device for device in found}


@dataclass(frozen=True, slots=True)
class Asked:
    """What there is to answer with, and whether the upstream was reached for it."""

    part: Part
    state: State


@dataclass(frozen=True, slots=True)
class _Kept:
    part: Part
    at: float

    @property
    def fresh_until(self) -> float:
        return self.at + (FRESH_S if self.part.whole else PARTIAL_S)


@dataclass(slots=True)
class _Request:
    """One that is under way, and what came of it once it is ``done``."""

    asked: Asked
    done: threading.Event = field(default_factory=threading.Event)


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
        self._fetcher = Fetcher(url, FetchLimits(CONNECT_S, ANSWER_S, TOTAL_S, MOST_BYTES), token=token)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0
        self._requests: dict[str, _Request] = {}
        self._waiting = 0
        self._closed_until: tuple[float, State] = (float("-inf"), "reached")

    def close(self) -> None:
        """End the requests that are under way, and close the connections."""
        self._fetcher.close()

    def pass_on(self, kernel: str, via: tuple[str, ...], patience_s: float = ANSWER_S) -> Asked | None:
        """As :meth:`ask` for a question that came through the services ``via``, the last of which waits ``patience_s``;
        None where it came back to us, or went too far."""
        if self.id in via or len(via) >= MOST_HOPS:
            self._count("loop")
            return None
        return self.ask(kernel, via, min(ANSWER_S, PATIENCE_PART * patience_s))

    def ask(self, kernel: str, via: tuple[str, ...] = (), patience_s: float = ANSWER_S) -> Asked:
        """What the upstream has of a kernel (hash or name). Returns within ``patience_s`` whatever the upstream does,
        and raises nothing: own answers go on."""
        now = self._clock()
        kept = self._known(kernel, now)
        if kept is not None and now < kept.fresh_until:
            self._count("kept")
            return Asked(kept.part, "reached")
        old = kept.part if kept is not None else Part()
        with self._lock:
            closed_until, why = self._closed_until
            if now < closed_until:
                self._count("skipped")
                return Asked(old, why)
            request = self._requests.get(kernel)
            full = max(self._waiting, 0 if request else len(self._requests)) >= MOST_AT_ONCE
            if full or (request and via) or patience_s < LEAST_S:
                self._count("busy")
                return Asked(old, "unreachable")
            self._waiting += 1
            mine = request is None
            if request is None:
                request = self._requests[kernel] = _Request(Asked(old, "unreachable"))
        try:
            if mine:
                self._fetcher.start(self._request(kernel, request, via, patience_s))
            return self._wait(request, patience_s)
        finally:
            with self._lock:
                self._waiting -= 1

    def _wait(self, request: _Request, patience_s: float) -> Asked:
        if not request.done.wait(patience_s):
            self._count("late")
            if patience_s >= ANSWER_S:
                with self._lock:
                    self._closed_until = (self._clock() + BREAK_S, "unreachable")
        return request.asked

    async def _request(self, kernel: str, request: _Request, via: tuple[str, ...], patience_s: float) -> None:
        now, old = self._clock(), request.asked.part
        try:
            part = await self._fetch(kernel, old, via, patience_s)
            self._keep(kernel, _Kept(part, now))
            with self._lock:
                self._closed_until = (float("-inf"), "reached")
            request.asked = Asked(part, "reached")
        except Exception as error:  # whatever it is: own answers must not be lost to it
            request.asked = Asked(old, self._failed(error))
        finally:
            with self._lock:
                del self._requests[kernel]
            request.done.set()

    def _failed(self, error: Exception) -> State:
        denied = isinstance(error, ServiceError) and error.status in (401, 403)
        state: State = "refused" if denied or isinstance(error, UntrustedBundle) else "unreachable"
        self._count(state)
        words = error.message if isinstance(error, DeuteronError) else f"{type(error).__name__}: {error}"
        logger.warning("upstream %s: %s; asked again in %g s", self.url, words, BREAK_S)
        with self._lock:
            self._closed_until = (self._clock() + BREAK_S, state)
        return state

    async def _fetch(self, kernel: str, old: Part, via: tuple[str, ...], patience_s: float) -> Part:
        headers = {VIA: ", ".join((*via, self.id)), PATIENCE: f"{patience_s:.3f}"}
        if old.etag:
            headers["If-None-Match"] = old.etag
        try:
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part") as file:
                answered = await self._fetcher.get("/v1/bundles/latest", {"kernel": kernel}, headers, file)
                whole = answered.headers.get(STATE, "reached") == "reached"
                if answered.status == 304:
                    self._count("unchanged")
                    return dataclasses.replace(old, whole=whole)
                part = await asyncio.to_thread(self._read, kernel, Path(file.name), answered.etag, whole)
        except ServiceError as error:
            if error.status != 404:
                raise
            self._count("absent")
            return Part(whole=error.headers.get(STATE, "reached") == "reached")
        self._count("fetched")
        return part

    def _read(self, kernel: str, path: Path, etag: str, whole: bool) -> Part:
        """The part in a bundle that arrived, if it is whole and signed by a key that counts for the upstream."""
        bundle = read_bundle(path)
        admission = admit_pulled(bundle, self.url, self._keys)
        if admission.first_use:
            logger.warning("upstream %s: %s", self.url, admission.reason)
        site = bundle.manifest.service
        records = tuple(replace(record, site=record.site or site) for record in bundle.records())
        predictors = tuple(bundle.predictors())
        hashes = {record.kernel_hash for record in records} | {predictor.kernel_hash for predictor in predictors}
        if len(hashes) > 1 or (_HASH.match(kernel) and hashes - {kernel}):
            raise BundleError(f"{self.url} sent other kernels than {kernel}")
        version, size = bundle.manifest.body_sha256, path.stat().st_size
        return Part(records, predictors, etag, admission.key, version, size, whole)

    def _known(self, kernel: str, now: float) -> _Kept | None:
        """What is kept of a kernel, is not too old, and was signed by a key that counts now."""
        with self._lock:
            kept = self._kept.get(kernel)
        if kept is None or (now - kept.at <= KEPT_S and self._counts(kept.part.signer)):
            return kept
        with self._lock:
            self._forget(kernel)
        return None

    def _counts(self, signer: str | None) -> bool:
        if signer is None:
            return True
        address = server_address(self.url)
        try:
            if any(k.public_key == signer and k.counts_at(address) for k in self._keys.trusted()):
                return True
            own = self._keys.own()
        except DeuteronError:
            return False
        return own is not None and own.public_key == signer

    def _keep(self, kernel: str, kept: _Kept) -> None:
        with self._lock:
            self._forget(kernel)
            self._kept[kernel] = kept
            self._size += kept.part.size
            while len(self._kept) > MOST_PARTS or (self._size > MOST_KEPT_BYTES and len(self._kept) > 1):
                self._forget(next(iter(self._kept)))

    def _forget(self, kernel: str) -> None:
        kept = self._kept.pop(kernel, None)
        self._size -= kept.part.size if kept is not None else 0

    def _count(self, outcome: str) -> None:
        self._metrics.count("upstream_requests", outcome=outcome)


def services_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The services that a request came through; what is none of our ids counts as one, too."""
    names = [name.strip() for name in headers.get(VIA, "").split(",")][: MOST_HOPS + 1]
    return tuple(name if _ID.match(name) else "?" for name in names if name)


def patience_in(headers: Mapping[str, str]) -> float:
    """How long the sender of a request waits for its answer, in seconds; ANSWER_S where it does not say."""
    try:
        told = float(headers.get(PATIENCE, ""))
    except ValueError:
        return ANSWER_S
    return min(max(told, 0.0), ANSWER_S) if math.isfinite(told) else ANSWER_S


def merged_lines(own: Iterable[bytes], part: Part, device_key: str | None) -> Iterator[bytes]:
    """Lines of a bundle: the own ones, and for keys that are not among them those of the part. Both in key order."""
    decoded = ((ConfigRecord.from_json(json.loads(line)).key, 0, line) for line in own)
    added = ((r.key, 1, encode_record(r)) for r in part.records if device_key in (None, r.device.key))
    last = None
    for key, _, line in heapq.merge(decoded, added):
        if key != last:
            yield line
        last = key
