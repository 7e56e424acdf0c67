"""``deuteron devices``: what this machine can measure on."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from .output import console, format_bytes, make_table


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List the devices of this machine, as `--device` takes them.

    Example: `deuteron devices`
    """
    from deuteron.compiler import list_devices  # lazy: help starts without the compiler
    from deuteron.tuner import DeviceFingerprint  # lazy: help starts without the tuner

    found = list_devices()
    if as_json:
        rows = [
            {"device": d.name, "target": d.target, **asdict(d.properties)}
            | {"key": DeviceFingerprint.of(d.properties).key}
            for d in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = make_table("device", "name", "target", ">cores or SMs", ">memory", "key")
    for device in found:
        properties = device.properties
        table.add_row(
            device.name,
            properties.name,
            device.target,
            str(properties.sm_count or "-"),
            format_bytes(properties.memory_bytes),
            DeviceFingerprint.of(properties).key,
        )
    console().print(table)
