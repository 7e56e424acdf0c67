"""A ConfigRecord of the tuner as a row of the store."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from deuteron.tuner import ConfigRecord
from deuteron.tuner.codec import canonical_json
from deuteron.tuner.errors import SchemaError

from .plausible import check_names, check_positive, check_sizes
from .store import StoredConfig, Transaction

# A segment of addresses.
_ID = re.compile(r"[A-Za-z0-9_-]+")


def stored_config(record: ConfigRecord, job_id: str | None) -> StoredConfig:
    """The columns that lookups and bundles need, and the record as the tuner writes it.

    Raises:
        SchemaError: an id that no address has, dims that are no names, sizes or times that are none. The tuner writes
            no such records, and one that was stored would stay for good.
    """
    if not _ID.fullmatch(record.id):
        raise SchemaError(f"record.id: {record.id[:40]!r} is no id", hint="letters, digits, _ and -")
    odd = next((dim for dim in record.shape if not dim.isidentifier()), None)
    if odd is not None:
        raise SchemaError(f"record.shape: {odd[:40]!r} is not the name of a size", hint="such as M")
    check_sizes(record.shape, "record.shape")
    for name, names in _names(record).items():
        check_names(f"record.{name}", names)
    for name in ("time_ns", "default_time_ns", "speedup"):
        check_positive(getattr(record, name), f"record.{name}")
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
        created_at=_instant(record.created_at),
    )


def _names(record: ConfigRecord) -> dict[str, tuple[str, ...]]:
    return {
        "kernel_name": (record.kernel_name,),
        "kernel_hash": (record.kernel_hash,),
        "device": (record.device.kind, record.device.name, record.device.mig or ""),
        "dtype": (record.dtype,),
        "toolchain": (*record.toolchain, *record.toolchain.values()),
        "config": (*record.config, *record.default_config),
    }


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # of the first and the last day that there are, UTC's is another
        hint = "such as 2026-11-26T09:00:00+00:00"
        raise SchemaError(f"record.created_at: {text[:40]!r} is not a time", hint=hint) from None


def put_record(tx: Transaction, record: ConfigRecord, job_id: str | None, *, who: str = "") -> None:
    """Store a record, and make its device known to lookups. ``who`` measured or brought it."""
    tx.configs.put(stored_config(record, job_id), who=who)
    tx.devices.remember(
        key=record.device.key,
        kind=record.device.kind,
        name=record.device.name,
        fingerprint=json.dumps(record.device.to_json()),
    )


def readable_records(bodies: Iterable[str]) -> Iterator[ConfigRecord]:
    """Stored records, without those that this version does not take for records: an older one may have let them in."""
    for body in bodies:
        with contextlib.suppress(SchemaError):
            yield ConfigRecord.from_json(json.loads(body))
