"""A worker's line to the server: claims, events, heartbeats, profiles. HTTP, with patience."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.tuner.http import HttpClient, ServiceError, ServiceUnreachable

from .ingest import Delivery, Receipt

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 10.0
_CONNECT_S = 3.0
_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a claim returns: the job's spec and its finished trials, as JSON values."""

    spec: dict[str, object]
    finished: list[dict[str, object]]
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
                answer = self._post(f"/v1/worker/jobs/{job_id}/claim", {"claim_id": claim_id, "worker": worker})
                break
            except ServiceUnreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
                attempt += 1
        return Assignment(
            spec=_object(answer["spec"]),
            finished=[_object(item) for item in _list(answer["finished"])],
            attempt=int(str(answer["attempt"])),
            lease_seconds=float(str(answer["lease_seconds"])),
        )

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery]) -> Receipt:
        """Hand over events, in order; safe to repeat. Raises as :meth:`claim`."""
        body: dict[str, object] = {
            "claim_id": claim_id,
            "events": [{"sequence": item.sequence, "event": item.event} for item in events],
        }
        return _receipt(self._post(f"/v1/worker/jobs/{job_id}/events", body))

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        """Say that the run is alive; the receipt says whether to go on."""
        return _receipt(self._post(f"/v1/worker/jobs/{job_id}/heartbeat", {"claim_id": claim_id}))

    def announce(self, worker: str, fingerprints: Sequence[dict[str, object]]) -> None:
        """Tell the server which devices this worker has."""
        body: dict[str, object] = {"worker": worker, "devices": list(fingerprints)}
        self._post("/v1/worker/devices", body)

    def upload_profile(self, job_id: str, path: Path) -> None:
        """Store the job's profile, a .hatchet file."""
        with path.open("rb") as file:
            self._send("PUT", f"/v1/worker/jobs/{job_id}/profile", content=file)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        return _object(self._send("POST", path, json=body).json())

    def _send(self, method: str, path: str, **arguments: object) -> httpx.Response:
        try:
            return self._http.send(method, path, **arguments)
        except ServiceUnreachable as error:
            hint = "is `deuteron serve` running, and does DEUTERON_PUBLIC_URL name it?"
            raise ServiceUnreachable(error.message, hint=hint, refused=error.refused) from None
        except ServiceError as error:
            if error.temporary:
                raise ServiceUnreachable(f"{self._http.url}{path} answered {error.status}") from None
            raise


def _receipt(answer: dict[str, object]) -> Receipt:
    return Receipt(proceed=bool(answer["proceed"]), cancel=bool(answer["cancel"]))


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ServiceUnreachable("the server's answer is not the JSON object that was expected")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ServiceUnreachable("the server's answer is not the JSON list that was expected")
    return value
