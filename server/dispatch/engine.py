"""The Dask side: an embedded cluster with one worker process per device, or a scheduler elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Nanny, SpecCluster
from distributed.core import Status

from . import ConnectedWorker
from .certificate import embedded_security
from .plugin import CALLED, BenchPlugin
from .quiet import QuietScheduler, QuietWorker
from .resources import resources_for, resources_of
from .run import Bench
from .task import measure_here

logger = logging.getLogger("deuteron.dispatch")

_CONNECT_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 1.0
_ENDED = (Status.closed, Status.failed)
# Dask's cluster gives a worker up for good that is away longer than this, 15 s by default. On a busy machine starting
# one again takes longer; heal() sees to those that end.
_LOST_WORKER_TIMEOUT = "365 days"

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

# Scheduler, keepers and workers look at their event loops 50 times a second and at their memory twice, for pages of
# Dask's. The embedded ones serve none: it was most of what an idle service did.
_EMBEDDED_CONFIG: dict[str, object] = {
    **WORKER_CONFIG,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "30s",
    "distributed.admin.system-monitor.interval": "30s",
    # It drops copies of results, of which there are none.
    "distributed.scheduler.active-memory-manager.start": False,
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
        "worker_class": QuietWorker,
        "config": WORKER_CONFIG,
        "dashboard": False,
        "silence_logs": logging.WARNING,
    }


class Dispatched:
    """A job at the scheduler. Dask is untyped; this is all that the supervisor needs of its futures.

    ``among``: addresses of the workers that may run it, None for all.
    """

    def __init__(self, ticket: str, future: Any, among: frozenset[str] | None = None) -> None:
        self.ticket = ticket
        self.among = among
        self._future = future

    def has(self, claim_id: str | None) -> bool:
        """Whether a run is one of this dispatch."""
        return claim_id is not None and claim_id.partition(".")[0] == self.ticket

    @property
    def done(self) -> bool:
        """Whether the run returned, failed or was cancelled."""
        return bool(self._future.done())

    @property
    def forgotten(self) -> bool:
        """Whether nobody can say how the run ended, or whether it did: the connection to the scheduler was lost."""
        return self._future.status not in ("finished", "error")

    @property
    def failure(self) -> str | None:
        """Why the engine gave up, None when the run returned; only once :attr:`done` and not :attr:`forgotten`."""
        return None if self._future.status == "finished" else str(self._future.exception())

    def result(self) -> str:
        """How the run ended, in words for the log; only once :attr:`done`."""
        return str(self._future.result())

    def cancel(self) -> None:
        """Take the job out of the scheduler's queue; a run that has begun goes on."""
        self._future.cancel()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call ``call``, in a thread of Dask's, when the run has ended."""
        self._future.add_done_callback(lambda _future: call())


class Engine:
    """A connection to a Dask scheduler, and the cluster behind it when it is ours."""

    def __init__(self, client: Any, cluster: Any | None) -> None:
        self._client = client
        self._cluster = cluster

    @classmethod
    def embedded(cls, benches: Sequence[Bench], folder: Path, *, allowed_failures: int) -> Engine:
        """A scheduler in this process and one worker process per bench.

        They speak TLS with a key and certificate that are made here and kept in memory: another process of this machine
        can neither give them tasks, which may be any code, nor read what they say.
        """
        security = embedded_security()
        dask.config.set(
            {
                **_EMBEDDED_CONFIG,
                "distributed.scheduler.allowed-failures": allowed_failures,
                "distributed.deploy.lost-worker-timeout": _LOST_WORKER_TIMEOUT,
            }
        )
        workers = {
            bench.device: {
                "cls": Nanny,
                "options": {
                    **worker_options(bench, folder),
                    "config": _EMBEDDED_CONFIG,
                    "host": "127.0.0.1",
                    "protocol": "tls",
                    "security": security,
                },
            }
            for bench in benches
        }
        cluster: Any = SpecCluster(  # type: ignore[no-untyped-call]
            workers=workers,
            scheduler={
                "cls": QuietScheduler,
                "options": {
                    "host": "127.0.0.1",
                    "port": 0,
                    "protocol": "tls",
                    "security": security,
                    "dashboard": False,
                },
            },
            security=security,
            silence_logs=logging.WARNING,
        )
        return cls(Client(cluster), cluster)  # type: ignore[no-untyped-call]

    @classmethod
    def connect(cls, address: str) -> Engine:
        """Raises:
        OSError: nobody answers at the address.
        """
        return cls(Client(address, timeout=_CONNECT_TIMEOUT_S), None)  # type: ignore[no-untyped-call]

    @property
    def connected(self) -> bool:
        """Whether the scheduler still answers."""
        return bool(self._client.status == "running")

    def submit(
        self, job_id: str, ticket: str, device: str, among: frozenset[str] | None = None, *, place: int = 0
    ) -> Dispatched:
        """Queue a job at the scheduler, for the workers at the addresses ``among`` or, by default, for all. Of those
        that wait for a device the one with the lowest ``place`` is next: by itself Dask takes what came within a tenth
        of a second in any order."""
        future = self._client.submit(
            measure_here,
            job_id,
            ticket,
            key=f"measure-{ticket}",
            resources=resources_for(device),
            workers=None if among is None else sorted(among),
            priority=-place,
            pure=False,
        )
        return Dispatched(ticket, future, among)

    def workers(self) -> list[ConnectedWorker]:
        """Those workers that the scheduler knows now and that measure: it may have others, too.

        Raises:
            OSError: it does not answer within a second.
        """
        # Not Client.scheduler_info, which waits half a minute for a scheduler that is gone.
        ask = self._client.scheduler.identity
        found = self._client.sync(ask, n_workers=-1, callback_timeout=_ANSWER_TIMEOUT_S)["workers"]
        return [
            ConnectedWorker(address, worker["metrics"][CALLED], dict(worker["resources"]))
            for address, worker in found.items()
            if CALLED in worker["metrics"]
        ]

    def heal(self) -> None:
        """Start those workers of our own cluster again whose keepers have ended: one does when its worker loses the
        scheduler. A worker that dies is started again by its keeper."""
        if self._cluster is None:
            return
        ended = [name for name, keeper in list(self._cluster.workers.items()) if keeper.status in _ENDED]
        for name in ended:
            self._cluster.workers.pop(name, None)
        if ended:
            logger.warning("starting the workers for %s again", ", ".join(ended))
            self._cluster.scale(len(self._cluster.worker_spec))

    def close(self) -> None:
        """Leave the scheduler; end the cluster if it is ours, giving its workers 5 s. Those that do not end in time end
        with this process: where all its processes were told to stop, as systemd does, they are just starting again."""
        try:
            self._client.close(timeout=2)
            if self._cluster is not None:
                self._cluster.close(timeout=5)
        except TimeoutError:
            logger.warning("not all workers ended in time")
