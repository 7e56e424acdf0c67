"""Rows as tests of the store make them, each with an id of its own; and the row of a job that a service has."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from deuteron.server.context import ServiceContext
from deuteron.server.store import (
    NewJob,
    NewTrial,
    StoredConfig,
)


def new_job(**changes: object) -> NewJob:
    values: dict[str, object] = {
        "id": str(uuid.uuid4()),
        "kernel_name": "softmax",
        "kernel_hash": "a" * 64,
        "device": "cpu",
        "spec": '{"seed": 1}',
        "trials_total": 10,
    }
    return NewJob(**{**values, **changes})  # type: ignore[arg-type]


def new_trial(**changes: Any) -> NewTrial:
    trial = NewTrial(
        trial_id=str(uuid.uuid4()),
        phase="screen",
        attempt=1,
        dtype="f32",
        shape='{"N":1024}',
        status="ok",
        median_ns=1234.5,
        body='{"config": {"BLOCK": 128}}',
    )
    return replace(trial, **changes)


def new_config(**changes: Any) -> StoredConfig:
    config = StoredConfig(
        id=str(uuid.uuid4()),
        kernel_hash="a" * 64,
        kernel_name="softmax",
        device_key="cpu:x",
        device_name="CPU",
        dtype="f32",
        shape_key="M=1,N=2",
        toolchain_key="t1",
        job_id=None,
        checked=True,
        low_ns=90.0,
        high_ns=110.0,
        body='{"n": 1}',
        created_at=datetime.now(UTC),
    )
    return replace(config, **changes)


def stored(context: ServiceContext, job_id: str) -> Any:
    with context.store.read() as tx:
        return tx.jobs.get(job_id)
