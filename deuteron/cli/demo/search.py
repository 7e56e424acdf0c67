"""The two searches of the demo, through the service's client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from ..errors import CommandError
from ..output import say
from ..watch import show_events

if TYPE_CHECKING:
    from deuteron.server import Client
    from deuteron.tuner import ConfigRecord

#: Shapes by kind of device: large enough to be worth tuning, small enough for two cores. The odd one has rows that
#: fill no power of two.
SHAPES = {
    "cpu": {
        "softmax": [{"M": 16384, "N": 128}, {"M": 1823, "N": 781}],
        "matmul": [{"M": 1024, "N": 256, "K": 1024}],
    },
    "cuda": {
        "softmax": [{"M": 4096, "N": 1024}, {"M": 1823, "N": 781}],
        "matmul": [{"M": 4096, "N": 1024, "K": 2048}],
    },
}
#: On a GPU the product is for the tensor cores.
DTYPES = {
    "cpu": {"softmax": "f32", "matmul": "f32"},
    "cuda": {"softmax": "f32", "matmul": "bf16"},
}
TRIALS = 60

#: What is left out of the printed tree: the screening of every configuration, and what the host did.
_LEFT_OUT = "^(screen|compile|check|measure)$"


@dataclass(frozen=True)
class Submitted:
    """A workload's name and the id of its job."""

    name: str
    id: str


def best_device() -> str:
    """The first GPU of this machine, else its CPU."""
    from deuteron.compiler import list_devices  # lazy: help starts without the compiler

    names = [device.name for device in list_devices()]
    return next((name for name in names if name.startswith("cuda")), "cpu")


def submit(client: Client, device: str, seconds: float) -> list[Submitted]:
    """Submit both jobs; each shape gets the same share of the time."""
    kind = "cpu" if device == "cpu" else "cuda"
    shapes = SHAPES[kind]
    total = sum(len(sizes) for sizes in shapes.values())
    jobs = []
    for name, sizes in shapes.items():
        job = client.submit(
            {
                "workload": name,
                "shapes": sizes,
                "dtypes": [DTYPES[kind][name]],
                "device": device,
                "budget": {"trials": TRIALS, "seconds": seconds * len(sizes) / total},
            }
        )
        say(f"    {name}: job {job.id}")
        jobs.append(Submitted(name, job.id))
    return jobs


def watch(client: Client, jobs: list[Submitted]) -> list[ConfigRecord]:
    """Show both jobs to their end; what they found.

    Raises:
        CommandError: a job did not succeed.
    """
    records = []
    for job in jobs:
        state = show_events(client, job.id)
        if state != "succeeded":
            raise CommandError(f"the {job.name} job {state}: {client.job(job.id).error}")
        records += client.records(job.id)
    return records


def print_profile(client: Client, job: Submitted, path: Path) -> None:
    """Save a job's profile and print race and final of its tree, as ``proton-viewer`` does."""
    from deuteron.profiler import viewer  # lazy: help starts without the profiler

    client.profile(job.id, path)
    metrics = ["time/us", "gflop/s"]
    typer.echo(f"$ proton-viewer -m {','.join(metrics)} -e {quote(_LEFT_OUT)} {quote(str(path))}")
    typer.echo(viewer.render(path, metrics, exclude=_LEFT_OUT).rstrip())
    typer.echo()
