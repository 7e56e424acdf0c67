"""Calls to a deuteron service."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote

import httpx

from deuteron.profiler.output.files import write_atomic
from deuteron.tuner import ConfigRecord, JobSpec
from deuteron.tuner.codec import Document, canonical_json, parse_json
from deuteron.tuner.http import HttpClient, ServiceError, ServiceUnreachable, Unsendable, raw_body

from .answers import (
    BundleDownload,
    LookupResult,
    RemoteEvent,
    RemoteHealth,
    RemoteJob,
    RemoteWorker,
    part,
    parts,
    understood,
)
from .download import MOST_BYTES, Download
from .stream import parse_events, read_lines

# The service sends a comment at least every 15 s; a stream that is silent for longer is dead.
_STREAM_SILENCE_S = 60.0
_RECONNECT_S = (0.2, 0.5, 1.0, 2.0)
_SUBMIT_TRIES = 4

T = TypeVar("T", bound=Document)


class Client:
    """A connection to one service. Use it as a context manager, from one thread.

    Every call raises :class:`ServiceUnreachable` when nobody answers, :class:`ServiceError` when the service refuses,
    which carries its problem document, and :class:`StrangeAnswer` when what answers is no service.
    """

    def __init__(
        self,
        server_url: str,
        *,
        token: str = "",
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = HttpClient(server_url, token=token, timeout_s=timeout_s, transport=transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._http.url

    def health(self) -> RemoteHealth:
        """What the service says of itself; raises ServiceError where it is not ready, such as for an old schema."""
        with understood(self.url):
            alive = self._get("/healthz")
            self._get("/readyz")
            workers = _workers_in(self._http.send("GET", "/metrics").text)
            return RemoteHealth(str(part(alive, "auth")), str(part(alive, "scheduler")), workers)

    def submit(self, job: JobSpec | Mapping[str, object], *, idempotency_key: str | None = None) -> RemoteJob:
        """Submit a job. A lost answer is asked for again under the same key, so it makes one job."""
        document = job.to_json() if isinstance(job, JobSpec) else dict(job)
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        for attempt in range(_SUBMIT_TRIES):
            last = attempt == _SUBMIT_TRIES - 1
            try:
                return self._read(self._http.send("POST", "/v1/jobs", json=document, headers=headers), RemoteJob)
            except ServiceUnreachable as error:
                if last or error.refused:
                    raise
            except ServiceError as error:
                if last or not error.temporary:
                    raise
            time.sleep(_RECONNECT_S[attempt])
        raise AssertionError("unreachable: the last attempt returns or raises")

    def job(self, job_id: str) -> RemoteJob:
        """A job as it is now; :class:`ServiceError` 404 for an unknown id."""
        return self._read(self._http.send("GET", _job_path(job_id)), RemoteJob)

    def records(self, job_id: str) -> list[ConfigRecord]:
        """The configurations that a job has stored so far."""
        with understood(self.url):
            found = parts(self._get(_job_path(job_id)), "configs")
            return [ConfigRecord.from_json(item) for item in found]

    def jobs(self, *, limit: int = 50, state: str | None = None) -> list[RemoteJob]:
        """The newest jobs."""
        parameters: dict[str, str | int] = {"limit": min(limit, 500)}
        if state is not None:
            parameters["state"] = state
        with understood(self.url):
            return [RemoteJob.from_json(item) for item in parts(self._get("/v1/jobs", **parameters), "jobs")]

    def cancel(self, job_id: str) -> RemoteJob:
        """Ask for a job's end; idempotent. A running trial is finished first."""
        return self._read(self._http.send("POST", f"{_job_path(job_id)}/cancel"), RemoteJob)

    def workers(self) -> list[RemoteWorker]:
        """Every worker that the service knows, with what it does now."""
        with understood(self.url):
            return [RemoteWorker.from_json(item) for item in parts(self._get("/v1/workers"), "workers")]

    def drain(self, worker: str) -> RemoteWorker:
        """Give a worker (``device@host``) no other job; idempotent. :class:`ServiceError` 404 for an unknown name."""
        return self._change_worker(worker, "drain")

    def resume(self, worker: str) -> RemoteWorker:
        """Give a worker jobs again; idempotent. Raises as :meth:`drain`."""
        return self._change_worker(worker, "resume")

    def _change_worker(self, worker: str, change: str) -> RemoteWorker:
        answer = self._http.send("POST", f"/v1/workers/{_segment(worker, 'worker')}/{change}")
        return self._read(answer, RemoteWorker)

    def watch(self, job_id: str, *, after: int = 0, patience_s: float = 120.0) -> Iterator[RemoteEvent]:
        """Every event of a job after the one numbered ``after``, until the job ends.

        Reconnects by itself and resumes where it was; no event is missed or repeated.

        Raises:
            ServiceUnreachable: no answer for ``patience_s``.
        """
        lost_since: float | None = None
        failures, final = 0, False
        while True:
            try:
                for event in self._stream(job_id, after):
                    after, lost_since, failures = event.id, None, 0
                    yield event
                    if event.ends_job:
                        return
                if final:
                    return
                final = self.job(job_id).is_final  # what came since the stream ended is in the next one
                if not final:
                    time.sleep(_RECONNECT_S[0])
            except (ServiceUnreachable, ServiceError) as error:
                if not error.temporary:
                    raise
                now = time.monotonic()
                lost_since = lost_since or now
                if now - lost_since > patience_s:
                    raise
                time.sleep(_RECONNECT_S[min(failures, len(_RECONNECT_S) - 1)])
                failures += 1

    def _stream(self, job_id: str, after: int) -> Iterator[RemoteEvent]:
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        path = f"{_job_path(job_id)}/events"
        with (
            understood(self.url),
            self._http.stream(path, headers=headers, silence_s=_STREAM_SILENCE_S) as response,
        ):
            _, pieces = raw_body(response)
            yield from parse_events(read_lines(pieces))

    def lookup(
        self,
        kernel: str,
        device: str,
        shape: Mapping[str, int],
        dtype: str,
        *,
        strict: bool = False,
        toolchain: Mapping[str, str] | None = None,
    ) -> LookupResult:
        """The configuration to launch ``kernel`` (hash or name) with on ``device`` (key or name). ``toolchain``: what
        the launch will be compiled with (:func:`deuteron.tuner.current_toolchain`); records of others are flagged."""
        chosen = {} if toolchain is None else {"toolchain": canonical_json(dict(toolchain))}
        parameters = {
            "kernel": kernel,
            "device": device,
            "shape": ",".join(f"{name}={size}" for name, size in shape.items()),
            "dtype": dtype,
            "strict": str(strict).lower(),
            **chosen,
        }
        return self._read(self._http.send("GET", "/v1/configs/lookup", params=parameters), LookupResult)

    def pull_bundle(
        self,
        path: Path,
        *,
        kernel: str | None = None,
        device: str | None = None,
        accept: Callable[[Path], object] = lambda path: None,
        most_bytes: int = MOST_BYTES,
    ) -> BundleDownload:
        """Bring the bundle at ``path`` up to date. See :class:`Download` for what can be relied on. ``accept`` is given
        the file before it takes the place of the old one, and raises where it must not: signatures are checked so
        (:func:`deuteron.tuner.records.trust.admit_pulled`). A bundle of more than ``most_bytes`` is refused."""
        parameters = {"kernel": kernel, "device": device}
        chosen = {name: value for name, value in parameters.items() if value is not None}
        return Download(self._http, "/v1/bundles/latest", chosen, path, accept, most_bytes).run()

    def profile(self, job_id: str, path: Path) -> Path:
        """Save a job's .hatchet profile. Raises ProfileFileError where ``path`` cannot be written."""
        answer = self._http.send("GET", f"{_job_path(job_id)}/profile", most_bytes=MOST_BYTES)
        return write_atomic(path, answer.content)

    def _get(self, path: str, **parameters: str | int) -> object:
        """Raises SchemaError where the answer is no JSON."""
        return parse_json(self._http.send("GET", path, params=parameters).content, f"the answer to {path}")

    def _read(self, response: httpx.Response, kind: type[T]) -> T:
        with understood(self.url):
            return kind.from_json(parse_json(response.content, f"the answer to {response.request.url.path}"))


def _job_path(job_id: str) -> str:
    """The path of a job, whatever stands where its id should."""
    return f"/v1/jobs/{_segment(job_id, 'job')}"


def _segment(name: str, of: str) -> str:
    """A name as one segment of a path. Raises Unsendable for those that paths leave out, which are other addresses."""
    if name in ("", ".", ".."):
        raise Unsendable(f"there is no {of} {name!r}", hint=f"GET /v1/{of}s lists them")
    return quote(name, safe="")


def _workers_in(metrics: str) -> int:
    """How many workers are connected, from the text of the metrics; 0 where it does not say."""
    found = re.search(r"^deuteron_workers (\d{1,9})(\.0*)?$", metrics, re.MULTILINE)
    return int(found[1]) if found else 0
