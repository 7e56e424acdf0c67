"""A worker's line to the server: claims, events, heartbeats, profiles. HTTP, with patience."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deuteron.tuner import shape_key
from deuteron.tuner.codec import Document, JsonObject, decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.experience import KnownSearches, SearchLog, SearchPlace
from deuteron.tuner.http import HttpClient, ServiceError, ServiceUnreachable, StrangeAnswer

from .ingest import Delivery, Receipt

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_TIMEOUT_S = 10.0
_CONNECT_S = 3.0
# A claim is answered with every trial of the job.
_MOST_BYTES = 1 << 30
_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)


class Assignment(Document, frozen=True):
    """What a claim returns: the job's spec and its finished trials, as JSON values; ``lease_seconds`` is how long the
    server waits for a silent run."""

    spec: JsonObject
    finished: tuple[JsonObject, ...]
    attempt: int
    lease_seconds: float


class Link:
    """Calls of one run. Its reporter and its measuring thread may call at the same time."""

    def __init__(self, server_url: str, token: str) -> None:
        self._http = HttpClient(server_url, token=token, timeout_s=_TIMEOUT_S, connect_s=_CONNECT_S, use_proxy=False)

    def claim(self, job_id: str, claim_id: str, worker: str, *, patience_s: float) -> Assignment:
        """Take the job, waiting up to ``patience_s`` for a server that is starting again.

        Raises:
            ServiceError: the job has ended or was never there.
            ServiceUnreachable: no answer within the patience.
        """
        deadline = time.monotonic() + patience_s
        attempt = 0
        while True:
            try:
                body: JsonObject = {"claim_id": claim_id, "worker": worker}
                answer = self._post(f"/v1/worker/jobs/{job_id}/claim", body, Assignment)
                break
            except ServiceUnreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
                attempt += 1
        return answer

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        """Hand over events, in order; safe to repeat. ``after``: the number of the last one that was acknowledged.
        Raises as :meth:`claim`."""
        body: dict[str, object] = {
            "claim_id": claim_id,
            "events": [item.to_json() for item in events],
            "after": after,
        }
        return self._post(f"/v1/worker/jobs/{job_id}/events", body, Receipt)

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        """Say that the run is alive; the receipt says whether to go on."""
        return self._post(f"/v1/worker/jobs/{job_id}/heartbeat", {"claim_id": claim_id}, Receipt)

    def release(self, job_id: str, claim_id: str) -> None:
        """Give the job back before this run ends: another one begins at once. Raises as :meth:`claim`."""
        self._send("POST", f"/v1/worker/jobs/{job_id}/release", json={"claim_id": claim_id})

    def searches(self, job_id: str, place: SearchPlace) -> tuple[SearchLog, ...]:
        """What other jobs measured, and measure now, that says most about ``place``. Raises as :meth:`claim`."""
        path = f"/v1/worker/jobs/{job_id}/searches"
        asked = {"shape": shape_key(place.shape), "dtype": place.dtype, "device": place.device}
        return self._read(self._send("GET", path, params=asked).content, KnownSearches, path).searches

    def announce(
        self, worker: str, fingerprints: Sequence[dict[str, object]], toolchain: Mapping[str, str] | None = None
    ) -> None:
        """Tell the server which devices this worker has, and what it compiles with."""
        body: dict[str, object] = {"worker": worker, "devices": list(fingerprints)}
        if toolchain is not None:
            body["toolchain"] = dict(toolchain)
        self._send("POST", "/v1/worker/devices", json=body)

    def upload_profile(self, job_id: str, claim_id: str, path: Path) -> None:
        """Store the job's profile, a .hatchet file, while the run has the job."""
        with path.open("rb") as file:
            self._send("PUT", f"/v1/worker/jobs/{job_id}/profile", params={"claim_id": claim_id}, content=file)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, body: JsonObject, kind: type[T]) -> T:
        return self._read(self._send("POST", path, json=body).content, kind, path)

    def _read(self, content: bytes, kind: type[T], path: str) -> T:
        try:
            return decode(content, kind, f"the answer to {path}")
        except SchemaError as error:
            raise ServiceUnreachable(error.message, hint=error.hint) from None

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.send(method, path, most_bytes=_MOST_BYTES, **arguments)
        except StrangeAnswer as error:  # of something between the two: the server itself may be back later
            raise ServiceUnreachable(error.message, hint=error.hint) from None
        except ServiceUnreachable as error:
            hint = "is `deuteron serve` running, and does DEUTERON_PUBLIC_URL name it?"
            raise ServiceUnreachable(error.message, hint=hint, refused=error.refused) from None
        except ServiceError as error:
            if error.temporary:
                raise ServiceUnreachable(f"{self._http.url}{path} answered {error.status}") from None
            raise
