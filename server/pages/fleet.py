"""Workers and their devices, and which shapes are tuned on which device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby

from fastapi import APIRouter, Response

from ..auth import Reader
from ..context import ContextDep
from ..fleet import FleetWorker, WorkerState, fleet
from ..store import CoveredShape, StoredDevice
from .filters import NamePart, filter_form, text_field
from .format import ago, settings_text, sizes_of
from .html import Child, Markup, table, tag
from .layout import empty, page, pill

router = APIRouter(include_in_schema=False)

_MOST_RECORDS = 2000


@router.get("/workers")
def workers_page(context: ContextDep, _reader: Reader) -> Response:
    """Every worker and what it does now, and every device that was ever announced."""
    with context.store.read() as tx:
        workers, devices = fleet(tx), tx.devices.all()
    names = {device.key: device.name for device in devices}
    here = sum(each.state is not WorkerState.AWAY for each in workers)
    return page(
        "Workers",
        tag("div", tag("h1", "Workers"), tag("span", f"{here} connected", class_="muted"), class_="title"),
        table(
            ["Worker", "Device", "State", "Job", "Last seen", "Compiles with"],
            [_worker_row(each, names) for each in workers],
            caption="Workers and what they do",
        )
        if workers
        else empty("No worker is known yet. One announces itself:", tag("code", "deuteron worker")),
        tag(
            "p",
            "Out of service and back: ",
            tag("code", "deuteron workers drain NAME"),
            ", ",
            tag("code", "resume NAME"),
        )
        if workers
        else None,
        tag("h2", "Devices"),
        table(["Device", "Key", "Last announced"], [_device_row(device) for device in devices], caption="Known devices")
        if devices
        else empty("No device is known yet."),
        current="/workers",
    )


def _worker_row(each: FleetWorker, names: Mapping[str, str]) -> Child:
    worker, job = each.worker, each.job
    drained = f"drained {ago(worker.drained_at)} by {worker.drained_by}" if worker.draining else None
    return tag(
        "tr",
        tag("th", tag("code", worker.name), scope="row"),
        tag("td", names.get(worker.device_key or "", worker.device)),
        tag("td", pill(each.state.value), tag("span", " ", drained, class_="muted") if drained else None),
        tag("td", tag("a", job.kernel_name, href=f"/jobs/{job.id}") if job is not None else "–"),
        tag("td", _when(worker.last_seen)),
        tag("td", tag("code", settings_text(json.loads(worker.toolchain))) if worker.toolchain else "–"),
    )


def _device_row(device: StoredDevice) -> Child:
    return tag(
        "tr",
        tag("th", device.name, scope="row"),
        tag("td", tag("code", device.key)),
        # Devices of records that came from elsewhere were never announced.
        tag("td", _when(device.last_seen) if device.worker else "–"),
    )


def _when(moment: datetime) -> Markup:
    return tag("time", ago(moment), datetime=moment.isoformat())


@router.get("/coverage")
def coverage_page(context: ContextDep, _reader: Reader, kernel: NamePart = "") -> Response:
    """For each kernel a table of shapes and devices: the gain over the default, and how old it is."""
    with context.store.read() as tx:
        found = tx.configs.coverage(kernel=kernel, limit=_MOST_RECORDS)
    cut = f"The first {_MOST_RECORDS} records: narrow them to a kernel." if len(found) == _MOST_RECORDS else None
    return page(
        "Coverage",
        tag("div", tag("h1", "Coverage"), class_="title"),
        filter_form("/coverage", text_field("kernel", "Kernel", kernel)),
        tag("p", cut, class_="muted") if cut else None,
        [_kernel_table(name, list(records)) for name, records in groupby(found, key=lambda one: one.kernel_name)]
        or empty("No configuration is stored of such a kernel."),
        current="/coverage",
    )


def _kernel_table(name: str, found: Iterable[CoveredShape]) -> Child:
    # Records come oldest first: of several toolchains, or texts of the kernel, the newest stays.
    cells = {((one.shape_key, one.dtype), one.device_name): one for one in found}
    devices = sorted({device for _, device in cells})
    shapes = sorted({shape for shape, _ in cells}, key=_size)
    rows = [
        tag(
            "tr",
            tag("th", tag("code", shape_key), " ", dtype, scope="row"),
            [_covered(cells.get(((shape_key, dtype), device))) for device in devices],
        )
        for shape_key, dtype in shapes
    ]
    missing = len(shapes) * len(devices) - len(cells)
    return tag(
        "section",
        tag(
            "div",
            tag("h2", name),
            tag("span", f"{missing} of {len(shapes) * len(devices)} missing", class_="muted"),
            class_="title",
        ),
        table(["Shape", *devices], rows, caption=f"Shapes and devices of {name}"),
    )


def _covered(one: CoveredShape | None) -> Markup:
    if one is None:
        return tag("td", "not tuned", class_="muted")
    record = json.loads(one.body)
    gain = f"{record['speedup']['median']:.2f}×"
    return tag(
        "td",
        tag("a", gain, href=f"/configs/{one.id}"),
        " ",
        pill(record["verdict"]),
        " ",
        tag("span", ago(one.created_at), class_="muted"),
    )


def _size(shape: tuple[str, str]) -> tuple[str, list[int]]:
    shape_key, dtype = shape
    return dtype, sizes_of(shape_key)
