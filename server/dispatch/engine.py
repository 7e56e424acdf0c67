"""The Dask side: an embedded cluster with one worker process per device, or a scheduler elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, Nanny, Scheduler, SpecCluster

from . import ConnectedWorker
from .devices import resources_for, resources_of
from .plugin import BenchPlugin, measure_here
from .run import Bench

_CONNECT_TIMEOUT_S = 10.0

WORKER_CONFIG: dict[str, object] = {
    # A daemonic process may not have children, and measurements run in children.
    "distributed.worker.daemon": False,
    # Dask samples the stacks of busy threads every 10 ms: not beside a measurement.
    "distributed.worker.profile.enabled": False,
    # Killing a worker over memory would be taken for a crash of the kernel under test.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


def worker_options(bench: Bench, folder: Path) -> dict[str, Any]:
    """Keyword arguments of the Nanny that keeps the worker process of one device alive.

    One thread: a worker runs one measurement at a time whatever resources its tasks name.
    """
    return {
        "nthreads": 1,
        "resources": resources_of(bench.device),
        "memory_limit": None,
        "name": bench.device,
        "plugins": [BenchPlugin(bench)],
        "local_directory": str(folder),
        "config": WORKER_CONFIG,
        "dashboard": False,
        "silence_logs": logging.WARNING,
    }


class Engine:
    """A connection to a Dask scheduler, and the cluster behind it when it is ours."""

    def __init__(self, client: Client, cluster: SpecCluster | None) -> None:
        self._client = client
        self._cluster = cluster

    @classmethod
    def embedded(cls, benches: Sequence[Bench], folder: Path, *, allowed_failures: int) -> Engine:
        """A scheduler in this process and one worker process per bench."""
        dask.config.set(
            {**WORKER_CONFIG, "distributed.scheduler.allowed-failures": allowed_failures}
        )
        workers = {
            bench.device: {
                "cls": Nanny,
                "options": {**worker_options(bench, folder), "host": "127.0.0.1"},
            }
            for bench in benches
        }
        cluster = SpecCluster(
            workers=workers,
            scheduler={
                "cls": Scheduler,
                "options": {"host": "127.0.0.1", "port": 0, "dashboard": False},
            },
            silence_logs=logging.WARNING,
        )
        return cls(Client(cluster), cluster)

    @classmethod
    def connect(cls, address: str) -> Engine:
        """Raises:
        OSError: nobody answers at the address.
        """
        return cls(Client(address, timeout=_CONNECT_TIMEOUT_S), None)

    @property
    def connected(self) -> bool:
        return bool(self._client.status == "running")

    def submit(self, job_id: str, ticket: str, device: str) -> Future:
        """Queue a job at the scheduler."""
        return self._client.submit(
            measure_here,
            job_id,
            ticket,
            key=f"measure-{ticket}",
            resources=resources_for(device),
            pure=False,
        )

    def workers(self) -> list[ConnectedWorker]:
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        return [
            ConnectedWorker(address, str(worker["name"]), dict(worker["resources"]))
            for address, worker in found.items()
        ]

    def close(self) -> None:
        self._client.close(timeout=2)
        if self._cluster is not None:
            self._cluster.close(timeout=5)
