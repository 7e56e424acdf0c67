"""/v1/devices: what workers have announced."""

from __future__ import annotations

import json

from ..auth import Reader
from ..context import ContextDep
from ..store import StoredDevice
from .routes import make_router
from .schemas.fleet import DeviceAnswer, DeviceList

router = make_router("devices", "/v1/devices")


@router.get("", summary="List devices")
def list_devices(context: ContextDep, _reader: Reader) -> DeviceList:
    """Every device that a worker has announced, with the key that lookups and bundles take."""
    with context.store.read() as tx:
        return DeviceList(devices=[device_answer(device) for device in tx.devices.all()])


def device_answer(device: StoredDevice) -> DeviceAnswer:
    return DeviceAnswer(
        key=device.key,
        kind=device.kind,
        name=device.name,
        worker=device.worker,
        fingerprint=json.loads(device.fingerprint),
        first_seen=device.first_seen,
        last_seen=device.last_seen,
    )
