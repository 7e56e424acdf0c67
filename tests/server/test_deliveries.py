"""Deliveries of events: what one may hold, what a wrong one costs, and how those of a dead run get to the server."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

import pytest
from answering import AnsweringServer, send
from sqlalchemy.event import listen

from deuteron.server.context import ServiceContext
from deuteron.server.dispatch import link as link_module
from deuteron.server.dispatch.ingest import Delivery, Receipt
from deuteron.server.dispatch.link import Link
from deuteron.server.dispatch.run import Bench, deliver_leftovers
from deuteron.server.dispatch.spool import Leftover, Spool
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.tuner.codec import canonical_json
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.events import JobStarted
from deuteron.tuner.http import ServiceError, ServiceUnreachable


def test_events_that_are_none_keep_no_other_writer_waiting(service: tuple[ServiceContext, str]) -> None:
    """A thousand of them took seconds in which nobody else could write."""
    context, job_id = service
    context.ingest.claim(job_id, claim_id="run", worker="w")
    statements: list[str] = []
    listen(context.store.database.engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
    for events in ([Delivery(n, {}) for n in range(1, 1000)], [Delivery(1, {"kind": "nothing"})] * 999):
        with pytest.raises(SchemaError):
            context.ingest.deliver(job_id, claim_id="run", events=events)
    assert len(statements) < 30


def test_a_number_twice_in_one_delivery_is_one_event(service: tuple[ServiceContext, str]) -> None:
    context, job_id = service
    context.ingest.claim(job_id, claim_id="run", worker="w")
    started = JobStarted("softmax_kernel", "cpu/test", "random", 1, 5, None).to_json()
    context.ingest.deliver(job_id, claim_id="run", events=[Delivery(1, started), Delivery(1, started)])
    with context.store.read() as tx:
        assert [event.kind for event in tx.events.page(job_id)].count("job_started") == 1


class CountingLink:
    """A server that takes 1000 events at once, as the API does, and does not know one of them; or that answers every
    delivery with ``status``."""

    def __init__(self, status: int | None = None) -> None:
        self.taken: list[int] = []
        self.status = status

    def deliver(self, job_id: str, claim_id: str, events: Sequence[Delivery], *, after: int = 0) -> Receipt:
        if self.status is not None:
            raise ServiceError("no", status=self.status, problem={})
        if len(events) > 1000:
            raise ServiceError("too many", status=422, problem={})
        self.taken += [item.sequence for item in events]
        if any(item.sequence == 7 for item in events):
            raise ServiceError("an event of a newer version", status=422, problem={})
        return Receipt(proceed=False, cancel=False)


def test_a_long_run_leaves_more_events_than_a_server_takes_at_once(service: Any) -> None:
    """All that it had measured without a server stayed on the worker's disk, and was removed after thirty days."""
    context, job_id = service
    context.ingest.claim(job_id, claim_id="ticket.run", worker="w")
    folder = context.settings.directory("spool")
    left = Spool(folder, job_id, "ticket.run")
    for _ in range(1030):
        left.append(JobStarted("k", "cpu/test", "random", 1, 5, None).to_json())
    left.close()
    bench = Bench("http://127.0.0.1:1", "", "cpu", context.settings.home, "x:y", folder)
    link = CountingLink()
    assert deliver_leftovers(bench, cast(Link, link)) == 0 and left.path.exists(), "one is not wanted"
    assert link.taken == list(range(1, 1031))
    assert deliver_leftovers(bench, cast(Link, CountingLink(404))) == 0 and left.path.exists()
    with pytest.raises(ServiceError):
        deliver_leftovers(bench, cast(Link, CountingLink(401)))
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "")
    assert dispatcher._store_leftovers(folder) == 0 and not left.path.exists()
    with context.store.read() as tx:
        assert len(tx.events.delivered(job_id, "ticket.run")) == 1030


def test_one_delivery_is_no_larger_than_a_server_takes(service: Any) -> None:
    """Of failed trials with long errors, which a run without a server gathers, it took none, and they were gone."""
    context, job_id = service
    left = Spool(context.settings.directory("spool"), job_id, "ticket.run")
    for size in (700_000, 400_000, 5_000_000, 10, 20):
        left.append({"kind": "nothing", "error": "x" * size})
    assert [item.sequence for item in left.unsent()] == [1]
    left.acknowledge(1)
    assert [item.sequence for item in left.unsent()] == [2]
    taken: list[list[int]] = []
    deliveries = [Delivery(1, {}), *left.unsent(4)]
    leftover = Leftover(left.path, job_id, "ticket.run", deliveries)
    leftover.deliver(lambda job, claim, events: taken.append([item.sequence for item in events]))
    assert taken == [[1, 2], [3], [4, 5]]
    left.acknowledge(4)
    left.close()


def test_a_run_waits_for_a_server_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever answers in its place. What the server itself refuses is not asked for again."""
    monkeypatch.setattr(link_module, "_RETRY_S", (0.0,))
    given = {"spec": {}, "finished": [], "attempt": 1, "lease_seconds": 5.0}
    away: list[tuple[int, bytes, dict[str, str]]] = [
        (502, b"<html>", {}),
        (429, b"", {}),
        (200, b"<html>", {}),
        (200, b"{}", {"content_encoding": "br"}),
        (302, b"", {"location": "http://elsewhere/login"}),
    ]
    asked: list[tuple[int, bytes, dict[str, str]]] = []
    answers = iter([*away, (200, canonical_json(given).encode(), {}), (409, b"{}", {}), *away])

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(next(answers))
        status, body, headers = asked[-1]
        send(handler, status, body, **headers)

    with AnsweringServer(answer) as server:
        link = Link(server.url, "token")
        assert link.claim("job", "t.1", "w", patience_s=60.0).lease_seconds == 5.0
        assert len(asked) == len(away) + 1
        with pytest.raises(ServiceError):
            link.claim("job", "t.1", "w", patience_s=60.0)
        for count in range(len(away)):
            with pytest.raises(ServiceUnreachable):
                link.claim("job", "t.1", "w", patience_s=0.0)
            assert len(asked) == len(away) + 3 + count
        link.close()
