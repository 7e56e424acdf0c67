"""``deuteron doctor``: is everything there that compiling, measuring and serving need?"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from deuteron.compiler import knobs
from deuteron.compiler.errors import DeuteronError, MissingExtra
from deuteron.compiler.extras import EXTRAS, require_extras
from deuteron.server.settings import Settings

from .database import explained, shown
from .output import console, format_bytes, make_table
from .settings import Server, connect

State = Literal["ok", "note", "problem"]

#: A bundle, a profile or the spool of a long search has tens of megabytes.
_SCARCE_BYTES, _NO_BYTES = 2 << 30, 64 << 20


@dataclass(frozen=True)
class HealthCheck:
    """What one check says. A ``note`` works, with less than there could be; a ``problem`` will fail."""

    name: str
    state: State
    text: str
    hint: str = ""


def doctor(
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check versions, folders, assembler, devices, database and service, and say what to do about what is wrong.

    Without `--server` a service that does not answer is no problem: most machines run none. Exit code 1 where there is
    a problem; nothing is changed.

    Example: `deuteron doctor`
    """
    checks = [
        *_packages(),
        *_variables(),
        *_folders(),
        _assembler(),
        *_devices(),
        _quiet(),
        *_database(),
        _service(server),
    ]
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        from rich.text import Text

        table = make_table("check", "", "found", "what helps")
        styles = {"ok": "green", "note": "yellow", "problem": "bold red"}
        for check in checks:
            table.add_row(check.name, Text(check.state, styles[check.state]), check.text, check.hint)
        console().print(table)
    if any(check.state == "problem" for check in checks):
        raise typer.Exit(1)


def _packages() -> Iterator[HealthCheck]:
    names = ("deuteron", "numpy", "llvmlite", "cuda-python")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    yield HealthCheck("versions", "ok", f"Python {platform.python_version()}, {found}")
    for extra in EXTRAS:
        try:
            require_extras(extra, by=f"the extra {extra}")
        except MissingExtra as error:
            yield HealthCheck(f"extra {extra}", "note", error.message, error.hint or "")


def _variables() -> Iterator[HealthCheck]:
    """Those of our names that nothing reads: a misspelt one changes nothing, and nothing else says so."""
    known = {name for knob in knobs.all_knobs() for name in knob.names}
    known |= {item.metadata["variable"] for item in fields(Settings)}
    for name in sorted(knobs.inherited_environment()):
        if name.startswith("DEUTERON_") and name not in known:
            near = next(iter(get_close_matches(name, known, n=1)), "")
            yield HealthCheck("settings", "note", f"nothing reads {name}", f"is {near} meant?" if near else "")


def _folders() -> Iterator[HealthCheck]:
    for name, path in (("home", knobs.home.get()), ("cache", knobs.cache_dir.get())):
        yield _folder(name, path)


def _folder(name: str, path: Path) -> HealthCheck:
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return HealthCheck(
            name, "problem", f"{path}: nothing can be written in {there}", f"DEUTERON_{_VARIABLES[name]}"
        )
    free = shutil.disk_usage(there).free
    state: State = "problem" if free < _NO_BYTES else "note" if free < _SCARCE_BYTES else "ok"
    return HealthCheck(
        name, state, f"{path}, {format_bytes(free)} free", "" if state == "ok" else "make room on the disk"
    )


_VARIABLES = {"home": "HOME names another folder", "cache": "CACHE_DIR names another folder"}


def _assembler() -> HealthCheck:
    from deuteron.compiler.targets.assembler import assembler_identity  # lazy: help starts without the compiler

    try:
        identity = assembler_identity()
    except DeuteronError as error:
        return HealthCheck("assembler", "problem", error.message, error.hint or "")
    if identity == "absent":
        return HealthCheck("assembler", "note", "none: PTX is not assembled here", "pip install nvidia-cuda-nvcc")
    return HealthCheck("assembler", "ok", identity)


def _devices() -> Iterator[HealthCheck]:
    from deuteron.compiler import list_devices  # lazy: help starts without the compiler
    from deuteron.compiler.runtime.cuda.driver import why_no_cuda  # lazy: as above
    from deuteron.compiler.runtime.devices import get_device  # lazy: as above

    for device in list_devices():
        try:
            clocks = get_device(device.name).clocks()
        except DeuteronError as error:
            yield HealthCheck(device.name, "problem", error.message, error.hint or "")
            continue
        text = f"{device.properties.name}, {device.target}, {format_bytes(device.properties.memory_bytes)}"
        if clocks is not None and clocks.sm_mhz:
            yield HealthCheck(device.name, "ok", f"{text}, at {clocks.sm_mhz} MHz")
        else:
            hint = "timings at lower clocks are not noticed"
            yield HealthCheck(device.name, "note", f"{text}, which does not tell its clock", hint)
    if reason := why_no_cuda():
        yield HealthCheck(
            "cuda", "note", reason, "kernels for GPUs compile, and run in the simulator of the tests only"
        )


def _quiet() -> HealthCheck:
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    text = f"{load:.1f} of {cores} cores were busy in the last minute"
    if load > cores / 2:
        return HealthCheck("load", "note", text, "measured times are worth less: wait, or ask for more rounds")
    return HealthCheck("load", "ok", text)


def _database() -> Iterator[HealthCheck]:
    try:
        require_extras("server", by="the database")
    except MissingExtra:
        return  # said above
    from sqlalchemy import make_url

    from deuteron import migrations  # lazy: help starts without the service

    try:
        settings = Settings.from_environment()
        file = make_url(settings.database_url).database
        # Asking SQLite for a file that is not there would make it.
        if settings.is_sqlite and not (file and Path(file).exists()):
            yield HealthCheck(
                "database", "ok", f"{shown(settings.database_url)} is not there yet: deuteron serve makes it"
            )
            return
        with explained(settings.database_url):
            revision, newest = migrations.current(settings.database_url) or "base", migrations.head()
    except DeuteronError as error:
        yield HealthCheck("database", "problem", error.message, error.hint or "")
        return
    text = f"{shown(settings.database_url)} is at {revision}, this version knows {newest}"
    if revision == newest:
        yield HealthCheck("database", "ok", text)
    else:
        yield HealthCheck("database", "problem", text, migrations.remedy(revision))


def _service(server: str | None) -> HealthCheck:
    from deuteron.tuner.http import ServiceUnreachable  # lazy: help starts without httpx

    try:
        with connect(server) as client:
            health = client.health()
    except ServiceUnreachable as error:
        state: State = "problem" if server else "ok"
        return HealthCheck("service", state, error.message, (error.hint or "") if server else "")
    except DeuteronError as error:
        return HealthCheck("service", "problem", error.message, error.hint or "")
    text = f"ready, {health.workers} workers, {health.auth}"
    if not health.workers and health.scheduler != "none":
        return HealthCheck(
            "service", "problem", text, "its log says why no worker is connected; deuteron worker adds one"
        )
    return HealthCheck("service", "ok", text)
