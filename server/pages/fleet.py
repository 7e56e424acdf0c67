"""Workers and their devices, and which shapes are tuned on which device."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby

from fastapi import APIRouter, Response

from ..auth import Reader
from ..context import ContextDep
from ..store import CoveredShape, Job, JobState, StoredDevice
from .filters import NamePart, filter_form, text_field
from .format import ago
from .html import Child, Markup, table, tag
from .layout import empty, page, pill

router = APIRouter(include_in_schema=False)

_MOST_RECORDS = 2000


@router.get("/workers")
def workers_page(context: ContextDep, _reader: Reader) -> Response:
    """Every device that was announced, with its worker and what that does now."""
    with context.store.read() as tx:
        devices, running = tx.devices.all(), tx.jobs.in_state(JobState.RUNNING)
    connected = {worker.name for worker in context.dispatcher.workers()}
    told = "" if context.dispatcher.leads else "Another server dispatches: only that one knows which are connected."
    by_worker = {job.worker: job for job in running}
    rows = [_device_row(device, by_worker.get(device.worker), connected) for device in devices]
    return page(
        "Workers",
        tag("div", tag("h1", "Workers"), tag("span", f"{len(connected)} connected", class_="muted"), class_="title"),
        tag("p", told, class_="muted") if told else None,
        table(["Device", "Worker", "State", "Job", "Last seen"], rows, caption="Devices and their workers")
        if rows
        else empty("No device is known yet. A worker announces its own:", tag("code", "deuteron worker")),
        current="/workers",
    )


def _device_row(device: StoredDevice, job: Job | None, connected: set[str]) -> Child:
    # A worker of our own cluster is called after its device, one that joined a scheduler elsewhere after its host, too.
    here = device.worker in connected or device.worker.partition("@")[0] in connected
    state = "running" if job is not None else "idle" if here else "away"
    return tag(
        "tr",
        tag("td", device.name, " ", tag("code", device.key, class_="muted")),
        tag("td", device.worker or "–"),
        tag("td", pill(state)),
        tag("td", tag("a", job.kernel_name, href=f"/jobs/{job.id}") if job is not None else "–"),
        tag("td", tag("time", ago(device.last_seen), datetime=device.last_seen.isoformat())),
    )


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
    """Numbers as numbers: K=512 comes before K=1024."""
    shape_key, dtype = shape
    return dtype, [int(part.partition("=")[2]) for part in shape_key.split(",")]
