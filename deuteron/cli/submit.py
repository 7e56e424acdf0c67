"""``deuteron submit``: a job for a service."""

from __future__ import annotations

from typing import Annotated

import typer

from .grouped import with_options
from .job_options import JobOptions, KernelOptions
from .output import say, tell
from .settings import Server, connect
from .watch import follow


@with_options
def submit(
    options: JobOptions,
    kernel: KernelOptions,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, help="Deal the shapes, and --seconds, out to so many jobs, which workers measure side by side."
        ),
    ] = 1,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the jobs until they end.")] = False,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="The same key submits the same jobs only once."),
    ] = None,
    server: Server = None,
) -> None:
    """Submit a job to a service and print its id, or those of several. Workload, shapes and budget are given as to
    `deuteron tune`.

    A job is measured by one worker. With a fleet, `--device cuda` (any GPU) and as many --jobs as it has devices, or
    some times as many, keep it busy.

    Example: `deuteron submit softmax --shape M=4096,N=1024 --device cuda:0 --watch`
    """
    job = options.job(kernel)
    with connect(server) as client:
        accepted = []
        for number, part in enumerate(job.split(jobs), 1):
            own_key = f"{key}-{number}" if key and jobs > 1 else key
            accepted.append(client.submit(part, idempotency_key=own_key))
            tell(accepted[-1].id)
        waiting_for = next((one.waiting_for for one in accepted if one.waiting_for), None)
        if waiting_for:
            say(f"queued until {waiting_for} connects")
        if watch:
            follow(client, *(one.id for one in accepted))
        else:
            say(f"follow it with `deuteron watch {accepted[0].id}`")
