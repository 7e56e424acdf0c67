"""Stored configurations: kernels x devices x shapes."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Query, Response

from ..auth import Reader
from ..context import ContextDep
from ..store import ConfigEntry, NotFound, StoredConfig
from .filters import NamePart, choice_field, filter_form, page_links, text_field
from .format import ago, optional_time, settings_text, sizes_of
from .html import Child, table, tag
from .jobs import result_table
from .layout import empty, facts, page, pill

router = APIRouter(include_in_schema=False)

_SHOWN = 200
_NEWEST, _NAME = "newest", "name"


@router.get("/configs")
def configs_page(
    context: ContextDep,
    _reader: Reader,
    kernel: NamePart = "",
    device: NamePart = "",
    dtype: NamePart = "",
    sort: NamePart = _NEWEST,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    with context.store.read() as tx:
        configs, total = tx.configs.search(
            kernel=kernel, device=device, dtype=dtype, by_name=sort == _NAME, limit=_SHOWN, offset=offset
        )
        dtypes = tx.configs.dtypes()
    query: dict[str, str | int] = {"kernel": kernel, "device": device, "dtype": dtype, "sort": sort}
    links: dict[str, dict[str, str | int]] = {}
    if offset > 0:
        links["Before"] = {"offset": max(0, offset - _SHOWN)}
    if offset + len(configs) < total:
        links["After"] = {"offset": offset + _SHOWN}
    shown = f"{total} stored" if not links else f"{offset + 1} to {offset + len(configs)} of {total}"
    configs.sort(key=_group)
    sections: list[Child] = [
        _section(name, device, list(group)) for (name, device), group in groupby(configs, key=_group)
    ]
    narrowed = kernel or device or dtype
    return page(
        "Configs",
        tag("div", tag("h1", "Configurations"), tag("span", shown, class_="muted"), class_="title"),
        filter_form(
            "/configs",
            text_field("kernel", "Kernel", kernel),
            text_field("device", "Device", device),
            choice_field("dtype", "Dtype", dtype, dtypes),
            choice_field("sort", "First", sort, [_NEWEST, _NAME], anything=None),
        ),
        sections
        or empty(
            "No configuration is like that."
            if narrowed
            else "No configuration is stored yet. A finished job leaves one per shape."
        ),
        page_links("/configs", query, links) if links else None,
        current="/configs",
    )


@router.get("/configs/{config_id}")
def config_page(config_id: str, context: ContextDep, _reader: Reader) -> Response:
    """A record: its evidence, and everything that happened under its key."""
    with context.store.read() as tx:
        latest = tx.config_history.latest(config_id)
        if latest is None:
            raise NotFound(f"there is no configuration {config_id}", hint="/configs lists them")
        entries = tx.config_history.of_key(latest)
    record = json.loads(latest.body)
    title = f"{record['kernel_name']} {latest.shape_key} {latest.dtype}"
    return page(
        title,
        tag("div", tag("h1", record["kernel_name"], " ", tag("small", record["device"]["name"])), class_="title"),
        result_table([latest]),
        tag("h2", "History"),
        tag("p", "Everything that happened to the records of this kernel, device, dtype, shape and toolchain."),
        table(
            ["When", "What", "Time", "Configuration", "By", "Reason", "Job"],
            [_history_row(entry, current=entry.config_id == config_id) for entry in reversed(entries)],
            caption="History, newest first",
        ),
        tag("h2", "Measured with"),
        facts(record["toolchain"].items()),
        current="/configs",
    )


def _history_row(entry: ConfigEntry, *, current: bool) -> Child:
    record = json.loads(entry.body)
    job = tag("a", tag("code", entry.job_id[:8]), href=f"/jobs/{entry.job_id}") if entry.job_id else "–"
    config = tag("code", settings_text(record["config"]))
    return tag(
        "tr",
        tag("td", tag("time", ago(entry.at), datetime=entry.at.isoformat())),
        tag("td", pill(entry.action.value)),
        tag("td", optional_time(record["time_ns"]["median"]), class_="number"),
        tag("td", config if current else tag("a", config, href=f"/configs/{entry.config_id}")),
        tag("td", entry.who or "–"),
        tag("td", entry.reason or "–"),
        tag("td", job),
    )


def _group(config: StoredConfig) -> tuple[str, str]:
    return config.kernel_name, config.device_name


def _size(config: StoredConfig | ConfigEntry) -> tuple[str, list[int]]:
    return config.dtype, sizes_of(config.shape_key)


def _section(name: str, device: str, configs: list[StoredConfig]) -> Child:
    first = configs[0]
    bundle = f"/v1/bundles/latest?kernel={first.kernel_hash}&device={first.device_key}"
    return tag(
        "section",
        tag(
            "div",
            tag("h2", name, " ", tag("small", device)),
            tag("a", "Download bundle", href=bundle, class_="button"),
            class_="title",
        ),
        result_table(sorted(configs, key=_size)),
    )
