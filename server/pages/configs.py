"""Stored configurations: kernels x devices x shapes."""

from __future__ import annotations

from itertools import groupby

from fastapi import APIRouter, Response

from ..auth import Reader
from ..context import ContextDep
from ..store import ConfigEntry, StoredConfig
from .html import Child, tag
from .jobs import result_table
from .layout import empty, page

router = APIRouter(include_in_schema=False)

_SHOWN = 500


@router.get("/configs")
def configs_page(context: ContextDep, _reader: Reader) -> Response:
    with context.store.read() as tx:
        configs, total = tx.configs.newest(limit=_SHOWN), tx.configs.count()
    shown = f"{total} stored" if total <= _SHOWN else f"the newest {_SHOWN} of {total}"
    configs.sort(key=_group)
    sections: list[Child] = [
        _section(name, device, list(group)) for (name, device), group in groupby(configs, key=_group)
    ]
    return page(
        "Configs",
        tag("div", tag("h1", "Configurations"), tag("span", shown, class_="muted"), class_="title"),
        sections or empty("No configuration is stored yet. A finished job leaves one per shape."),
        current="/configs",
    )


def _group(config: StoredConfig) -> tuple[str, str]:
    return config.kernel_name, config.device_name


def _size(config: StoredConfig | ConfigEntry) -> tuple[str, list[int]]:
    """Numbers as numbers: K=512 comes before K=1024."""
    return config.dtype, [int(part.partition("=")[2]) for part in config.shape_key.split(",")]


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
