"""A worker's line to the server: claims, events, heartbeats, profiles. HTTP, with patience."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from deuteron.compiler.errors import DeuteronError

from .ingest import Delivery, Receipt

logger = logging.getLogger("deuteron.worker")

_TIMEOUT = httpx.Timeout(10.0, connect=3.0)
_RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)


class ServerRefused(DeuteronError):
    """The server answered, and the answer is no: the job is over, or the token is not a worker's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ServerUnreachable(DeuteronError):
    """The server did not answer, or answered that it cannot work now."""


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
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=server_url, headers=headers, timeout=_TIMEOUT, trust_env=False)

    def claim(self, job_id: str, claim_id: str, worker: str, *, patience_s: float) -> Assignment:
        """Take the job, waiting up to ``patience_s`` for a server that is starting again.

        Raises:
            ServerRefused: the job has ended or was never there.
            ServerUnreachable: no answer within the patience.
        """
        deadline = time.monotonic() + patience_s
        attempt = 0
        while True:
            try:
                answer = self._post(f"/v1/worker/jobs/{job_id}/claim", {"claim_id": claim_id, "worker": worker})
                break
            except ServerUnreachable:
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
        body: dict[str, object] = {
            "claim_id": claim_id,
            "events": [{"sequence": item.sequence, "event": item.event} for item in events],
        }
        return _receipt(self._post(f"/v1/worker/jobs/{job_id}/events", body))

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        return _receipt(self._post(f"/v1/worker/jobs/{job_id}/heartbeat", {"claim_id": claim_id}))

    def announce(self, worker: str, fingerprints: Sequence[dict[str, object]]) -> None:
        body: dict[str, object] = {"worker": worker, "devices": list(fingerprints)}
        self._post("/v1/worker/devices", body)

    def upload_profile(self, job_id: str, path: Path) -> None:
        with path.open("rb") as file:
            self._send("PUT", f"/v1/worker/jobs/{job_id}/profile", content=file)

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        return _object(self._send("POST", path, json=body).json())

    def _send(self, method: str, path: str, **arguments: object) -> httpx.Response:
        try:
            response = self._http.request(method, path, **arguments)  # type: ignore[arg-type]
        except httpx.TransportError as error:
            raise ServerUnreachable(
                f"{self._http.base_url} does not answer: {error or type(error).__name__}",
                hint="is `deuteron serve` running, and does DEUTERON_PUBLIC_URL name it?",
            ) from None
        if response.status_code >= 500 or response.status_code == 429:
            raise ServerUnreachable(f"{self._http.base_url}{path} answered {response.status_code}")
        if response.is_error:
            raise ServerRefused(_detail(response), status=response.status_code)
        return response


def _detail(response: httpx.Response) -> str:
    try:
        document = response.json()
    except ValueError:
        document = {}
    detail = document.get("detail") if isinstance(document, dict) else None
    return f"{response.status_code}: {detail or response.reason_phrase}"


def _receipt(answer: dict[str, object]) -> Receipt:
    return Receipt(proceed=bool(answer["proceed"]), cancel=bool(answer["cancel"]))


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ServerUnreachable("the server's answer is not the JSON object that was expected")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ServerUnreachable("the server's answer is not the JSON list that was expected")
    return value
