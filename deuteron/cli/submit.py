"""``deuteron submit``: a job for a service."""

from __future__ import annotations

from typing import Annotated

import typer

from .job_options import (
    ConstexprOption,
    Description,
    DeviceOption,
    Dtype,
    GridOption,
    KernelOptions,
    ScalarOption,
    SearchOption,
    Seconds,
    Seed,
    Shape,
    Strategy,
    TensorOption,
    Trials,
    Workload,
    make_job,
)
from .output import say, tell
from .settings import Server, connect
from .watch import follow


def submit(
    workload: Workload,
    shape: Shape = None,
    dtype: Dtype = None,
    device: DeviceOption = "cpu",
    trials: Trials = None,
    seconds: Seconds = None,
    strategy: Strategy = "surrogate",
    seed: Seed = 0,
    description: Description = None,
    tensor: TensorOption = None,
    scalar: ScalarOption = None,
    grid: GridOption = None,
    search: SearchOption = None,
    constexpr: ConstexprOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the job until it ends.")] = False,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="The same key submits the same job only once."),
    ] = None,
    server: Server = None,
) -> None:
    """Submit a job to a service and print its id. The options are those of `deuteron tune`.

    Example: `deuteron submit softmax --shape M=4096,N=1024 --device cuda:0 --watch`
    """
    job = make_job(
        workload,
        shapes=shape or (),
        dtypes=dtype or (),
        device=device,
        trials=trials,
        seconds=seconds,
        strategy=strategy,
        seed=seed,
        kernel=KernelOptions(description, tensor or (), scalar or (), grid, search or (), constexpr or ()),
    )
    with connect(server) as client:
        accepted = client.submit(job, idempotency_key=key)
        tell(accepted.id)
        if accepted.waiting_for:
            say(f"queued until {accepted.waiting_for} connects")
        if watch:
            follow(client, accepted.id)
        else:
            say(f"follow it with `deuteron watch {accepted.id}`")
