"""``deuteron watch``: a service's job as it happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .output import print_records, say
from .settings import Server, connect

if TYPE_CHECKING:
    from deuteron.server import Client


def watch(job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")], server: Server = None) -> None:
    """Follow a job until it ends, then print what it found. Ctrl-C stops watching, not the job.

    Example: `deuteron watch 6f1c...`
    """
    with connect(server) as client:
        follow(client, job)


def follow(client: Client, *job_ids: str) -> None:
    """Show every event of jobs, one after the other and each from its beginning, then their records. Exits with 1 when
    one did not succeed."""
    states = {show_events(client, job_id) for job_id in job_ids}
    print_records([record for job_id in job_ids for record in client.records(job_id)])
    if states != {"succeeded"}:
        raise typer.Exit(1)


def show_events(client: Client, job_id: str) -> str:
    """Show a job's progress on stderr until it ends; the state in which it ended."""
    from deuteron.tuner import event_from_json, progress_view  # lazy: help starts without the tuner

    # A service that is lost later is waited for; one that was never there is reported at once.
    client.job(job_id)
    with progress_view(sys.stderr) as view:
        for event in client.watch(job_id):
            if event.kind == "job_state":
                reason = event.data.get("reason")
                say(f"job {job_id} {event.data.get('state')}{f': {reason}' if reason else ''}")
            else:
                view(event_from_json(event.data))
    return client.job(job_id).state
