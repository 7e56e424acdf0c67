"""What makes a Dask worker one of ours: a bench to measure with, and a courier for leftover events."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from typing import cast

import dask
from distributed import Worker, WorkerPlugin

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import current_toolchain
from deuteron.tuner.evaluate.nursery import shared_nursery
from deuteron.tuner.http import ServiceError, ServiceUnreachable
from deuteron.tuner.study import warm_up

from ..settings import lift_thread_limits
from .handover import Handover
from .link import Link
from .resources import fingerprints
from .run import Bench, deliver_leftovers, forget_dead_runs

logger = logging.getLogger("deuteron.worker")

_PLUGIN = "deuteron-bench"
#: What Dask's workers tell their scheduler of ours: ``device@host/pid``. Their names are up to who starts them.
CALLED = "deuteron-worker"
_PAUSE_S = 2.0


class BenchPlugin(WorkerPlugin):
    """Holds the bench of a worker process and, in the background, announces its device and delivers what
    an earlier process left in the spool. Gives the job back when the worker closes."""

    name = _PLUGIN

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._closing: threading.Event | None = None

    def setup(self, worker: Worker) -> None:
        self.handover = Handover()  # not before: a keeper sends this object to its process
        lift_thread_limits(dask.config.get("distributed.nanny.pre-spawn-environ"))
        # One line a request would bury what matters in a worker's log.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        if threading.current_thread() is threading.main_thread():
            # Ctrl-C reaches the whole process group. Who started this process ends it, in order; the children that
            # measure inherit this.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        worker.metrics[CALLED] = lambda _worker: self.bench.worker_name
        self._closing = threading.Event()
        if self.bench.device != "cpu":
            shared_nursery().begin()  # what its first job's processes are forked from takes a second to load
        threading.Thread(target=self._introduce, name="deuteron-courier", daemon=True).start()

    async def teardown(self, worker: Worker) -> None:
        if self._closing is not None:
            self._closing.set()
        await asyncio.to_thread(self.handover.stop)

    def _introduce(self) -> None:
        closing = self._closing
        device = get_device(self.bench.device)
        if device.properties.kind == "cuda":
            try:
                warm_up(device)
            except Exception:
                logger.exception("the first job will load what it needs")
        link = Link(self.bench.server_url, self.bench.token)
        while closing is not None and not closing.is_set():
            try:
                link.announce(self.bench.worker_name, fingerprints([device.name]), current_toolchain(device))
                deliver_leftovers(self.bench, link)
                forget_dead_runs(self.bench)
                break
            except ServiceUnreachable as error:
                logger.debug("the server is not there yet: %s", error)
            except ServiceError as error:
                logger.error("the server refuses this worker: %s", error)
                break
            closing.wait(_PAUSE_S)
        link.close()


def plugin_of(worker: Worker) -> BenchPlugin:
    """What makes a worker one of ours."""
    return cast(BenchPlugin, worker.plugins[_PLUGIN])
