"""Makes a Dask worker that somebody else started one of ours.

``dask worker ADDRESS --nthreads 1 --preload deuteron.server.dispatch.preload --device cuda:0``: what places
Dask's workers on a cluster (dask-jobqueue on Slurm, PBS or LSF) so places ours. ``deuteron worker`` needs none of this.
"""

from __future__ import annotations

import logging
import multiprocessing

import click
import dask
from distributed import Worker

from ..settings import Settings, SettingsError
from .engine import WORKER_CONFIG
from .plugin import BenchPlugin
from .resources import detected_devices, resources_of
from .run import Bench

logger = logging.getLogger("deuteron.worker")

# Here and not in dask_setup: Dask imports what it preloads before it makes the worker, which reads this once.
dask.config.set(WORKER_CONFIG)


@click.command()
@click.option("--device", help="What this worker measures on. Default: the first GPU of this machine, else cpu.")
async def dask_setup(worker: Worker, device: str | None) -> None:
    """Dask calls this before the worker joins its scheduler.

    Where results go and the token are those of the settings (DEUTERON_PUBLIC_URL, DEUTERON_TOKEN).

    A worker that could not measure as it was started, or whose device is not present, ends and says why: Dask would go
    on without what it preloads.
    """
    try:
        check(worker.state.nthreads)
        settings = Settings.from_environment()
        chosen = _device(device)
    except SettingsError as error:
        # A nanny keeps to itself what a process exits with.
        logger.error("error: %s", error)
        raise SystemExit(2) from None
    bench = Bench(settings.base_url, settings.token, chosen, settings.home, settings.runner, settings.lock_folder)
    offers = resources_of(chosen)
    worker.state.total_resources.update(offers)
    worker.state.available_resources.update(offers)
    await worker.plugin_add(BenchPlugin(bench), catch_errors=False)
    logger.info("measuring on %s for %s", chosen, bench.server_url)


def check(threads: int) -> None:
    """Refuse a worker that could not measure.

    Raises:
        SettingsError: it has several threads, or may not have children.
    """
    if threads != 1:
        raise SettingsError(
            f"this worker has {threads} threads, which would measure beside each other",
            hint="dask worker --nthreads 1",
        )
    if multiprocessing.current_process().daemon:
        raise SettingsError(
            "this worker may not have children, which measurements run in",
            hint="dask worker --no-nanny, or DASK_DISTRIBUTED__WORKER__DAEMON=False for its nanny",
        )


def _device(wanted: str | None) -> str:
    present = detected_devices()
    if wanted is None:
        return next((name for name in present if name != "cpu"), "cpu")
    if wanted not in present:
        raise SettingsError(f"device {wanted!r} is not present on this machine", hint=f"present: {', '.join(present)}")
    return wanted
