"""/v1/workers: what measures, and how operators take it out of service and back."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path

from ..auth import Admin, Reader
from ..context import ContextDep
from ..fleet import FleetWorker, fleet, fleet_worker
from .routes import make_router
from .schemas.fleet import WorkerAnswer, WorkerList

router = make_router("workers", "/v1/workers")

WorkerName = Annotated[
    str,
    Path(min_length=1, max_length=200, description="`device@host`, as in the list.", examples=["cuda:0@gpu-a"]),
]


@router.get("", summary="List workers")
def list_workers(context: ContextDep, _reader: Reader) -> WorkerList:
    """Every worker that was seen in the last 30 days or is drained, by host and device, with what it does now."""
    with context.store.read() as tx:
        return WorkerList(workers=[worker_answer(each) for each in fleet(tx)])


@router.get("/{name}", summary="Read a worker")
def get_worker(name: WorkerName, context: ContextDep, _reader: Reader) -> WorkerAnswer:
    """404 for a name that no worker had in the last 30 days."""
    with context.store.read() as tx:
        return worker_answer(fleet_worker(tx, name))


@router.post("/{name}/drain", summary="Drain a worker")
def drain_worker(name: WorkerName, context: ContextDep, admin: Admin) -> WorkerAnswer:
    """It finishes the job that it has and is given no other one, until it is resumed. That outlives every restart, of
    the worker, too. Once `job` is null the machine can be taken away. Repeating the request changes nothing."""
    with context.store.write() as tx:
        tx.workers.drain(name, who=admin.name)
        found = fleet_worker(tx, name)
    context.dispatcher.wake()
    return worker_answer(found)


@router.post("/{name}/resume", summary="Resume a worker")
def resume_worker(name: WorkerName, context: ContextDep, _admin: Admin) -> WorkerAnswer:
    """It is given jobs again. Repeating the request changes nothing."""
    with context.store.write() as tx:
        tx.workers.resume(name)
        found = fleet_worker(tx, name)
    context.dispatcher.wake()
    return worker_answer(found)


def worker_answer(found: FleetWorker) -> WorkerAnswer:
    """A worker as the API describes it."""
    worker = found.worker
    return WorkerAnswer(
        name=worker.name,
        host=worker.host,
        device=worker.device,
        devices=[] if worker.device_key is None else [worker.device_key],
        state=found.state.value,
        draining=worker.draining,
        drained_at=worker.drained_at,
        drained_by=worker.drained_by,
        job=None if found.job is None else found.job.id,
        first_seen=worker.first_seen,
        last_seen=worker.last_seen,
        toolchain=None if worker.toolchain is None else json.loads(worker.toolchain),
    )
