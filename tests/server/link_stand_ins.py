"""Stand-ins for the link of a worker to its server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from deuteron.server.dispatch.ingest import Delivery, Receipt
from deuteron.tuner.http import ServiceError


class NotingLink:
    """A server that takes everything, and what it was told in its order."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        self.heard += [str(item.event["kind"]) for item in events]
        return Receipt(proceed=True, cancel=False)

    def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
        return Receipt(proceed=True, cancel=False)

    def release(self, job_id: str, claim_id: str) -> None:
        self.heard.append(f"{claim_id} gives {job_id} back")


class RefusingLink:
    """A server that does not accept the worker's token any more."""

    def __init__(self, status: int) -> None:
        self.status = status

    def deliver(self, job_id: str, claim_id: str, events: Any, *, after: int = 0) -> Receipt:
        raise ServiceError("no", status=self.status, problem={})

    heartbeat = deliver


class SlowLink:
    """A server that answers when it is let."""

    def __init__(self) -> None:
        self.answers, self.took = threading.Event(), list[int]()

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        assert self.answers.wait(30)
        self.took.extend(item.sequence for item in events)
        return Receipt(True, False)
