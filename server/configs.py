"""A ConfigRecord of the tuner as a row of the store."""

from __future__ import annotations

import json
from datetime import datetime

from deuteron.tuner import ConfigRecord
from deuteron.tuner.codec import canonical_json

from .store import StoredConfig, Transaction


def stored_config(record: ConfigRecord, job_id: str | None) -> StoredConfig:
    """The columns that lookups and bundles need, and the record as the tuner writes it."""
    return StoredConfig(
        id=record.id,
        kernel_hash=record.kernel_hash,
        kernel_name=record.kernel_name,
        device_key=record.device.key,
        device_name=record.device.name,
        dtype=record.dtype,
        shape_key=record.shape_key,
        toolchain_key=record.toolchain_key,
        job_id=job_id,
        checked=record.checked,
        low_ns=record.time_ns.low,
        high_ns=record.time_ns.high,
        body=canonical_json(record.to_json()),
        created_at=datetime.fromisoformat(record.created_at),
    )


def put_record(tx: Transaction, record: ConfigRecord, job_id: str | None, *, who: str = "") -> None:
    """Store a record, and make its device known to lookups. ``who`` measured or brought it."""
    tx.configs.put(stored_config(record, job_id), who=who)
    tx.devices.remember(
        key=record.device.key,
        kind=record.device.kind,
        name=record.device.name,
        fingerprint=json.dumps(record.device.to_json()),
    )
