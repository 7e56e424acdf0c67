"""``deuteron workers``: what measures for a service, out of service and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .output import console, make_table, tell
from .settings import Server, connect

if TYPE_CHECKING:
    from deuteron.server.client import RemoteWorker

app = typer.Typer(no_args_is_help=True, help="List, drain and resume the workers of a service.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As `list` shows it: device@host.")]


@app.command("list")
def list_workers(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    server: Server = None,
) -> None:
    """List the workers of a service, by host and device, with what they do now.

    Example: `deuteron workers list`
    """
    with connect(server) as client:
        found = client.workers()
    if as_json:
        typer.echo(json.dumps([worker.to_json() for worker in found], indent=2))
        return
    table = make_table("name", "state", "job", "last seen (UTC)", "device")
    for worker in found:
        seen = worker.last_seen[:19].replace("T", " ")
        table.add_row(worker.name, _state(worker), worker.job or "-", seen, " ".join(worker.devices) or "-")
    console().print(table if found else "no workers")


@app.command()
def drain(name: Name, server: Server = None) -> None:
    """Give a worker no other job. It finishes the one that it has; that it is drained outlives every restart. Needs a
    token with the scope admin, where tokens are required.

    Example: `deuteron workers drain cuda:0@gpu-a`
    """
    with connect(server) as client:
        worker = client.drain(name)
    left = f"finishes job {worker.job}, then gets no other" if worker.job else "gets no job"
    tell(f"worker {worker.name} {left}")


@app.command()
def resume(name: Name, server: Server = None) -> None:
    """Give a worker jobs again.

    Example: `deuteron workers resume cuda:0@gpu-a`
    """
    with connect(server) as client:
        worker = client.resume(name)
    tell(f"worker {worker.name} is {worker.state}")


def _state(worker: RemoteWorker) -> str:
    return f"{worker.state}, drained" if worker.draining and worker.state == "away" else worker.state
