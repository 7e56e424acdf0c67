"""``deuteron jobs`` and ``deuteron cancel``: what a service is doing."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .output import console, make_table, tell
from .settings import Server, connect


class State(StrEnum):
    """States of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def jobs(
    state: Annotated[State | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many, newest first.")] = 20,
    server: Server = None,
) -> None:
    """List the jobs of a service, newest first. `screened`: configurations tried, of the most that may be.

    Example: `deuteron jobs --state running`
    """
    with connect(server) as client:
        found = client.jobs(limit=limit, state=state.value if state else None)
    table = make_table("id", "kernel", "device", "state", ">screened", "created (UTC)", "note")
    for job in found:
        note = job.error or (f"waits for {job.waiting_for}" if job.waiting_for else "")
        total = f"/{job.trials_total}" if job.trials_total else ""
        created = job.created_at[:16].replace("T", " ")
        table.add_row(
            job.id,
            job.kernel_name,
            job.device,
            job.state,
            f"{job.screened}{total}",
            created,
            note.partition("\n")[0],
        )
    console().print(table if found else "no jobs")


def cancel(job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")], server: Server = None) -> None:
    """Cancel a job. Its finished trials and stored configurations stay.

    Example: `deuteron cancel 6f1c...`
    """
    with connect(server) as client:
        answer = client.cancel(job)
    running = answer.state == "running"
    tell(f"job {answer.id}: {'will stop within seconds' if running else answer.state}")
