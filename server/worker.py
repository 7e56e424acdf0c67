"""`deuteron worker tcp://...`: measuring processes for a scheduler elsewhere, one per device."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack

from .dispatch.resources import detected_devices
from .settings import Settings, SettingsError

logger = logging.getLogger("deuteron.worker")


def run_worker(
    scheduler: str,
    *,
    server_url: str,
    settings: Settings,
    devices: Sequence[str] | None = None,
) -> None:
    """Serve a Dask scheduler until SIGINT or SIGTERM, restarting measuring processes that die.

    ``devices`` are names such as ``cpu`` and ``cuda:0``; all that this machine has if left out. Events reach
    the service at ``server_url`` with the token of the settings (scope worker), and wait in the spool of the
    settings' home while it is away.

    Raises:
        SettingsError: the scheduler does not answer, or a device is not present.
    """
    present = detected_devices()
    chosen = list(devices) if devices else present
    missing = [device for device in chosen if device not in present]
    if missing:
        raise SettingsError(
            f"device {missing[0]!r} is not present on this machine",
            hint=f"present: {', '.join(present)}",
        )
    asyncio.run(_serve(scheduler, server_url, settings, chosen))


async def _serve(scheduler: str, server_url: str, settings: Settings, devices: Sequence[str]) -> None:
    import dask
    from distributed import Nanny

    from .dispatch.engine import WORKER_CONFIG, worker_options  # lazy: dask takes half a second
    from .dispatch.run import Bench  # lazy: dask takes half a second

    dask.config.set(WORKER_CONFIG)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        for device in devices:
            bench = Bench(server_url, settings.token, device, settings.home, settings.runner)
            options = worker_options(bench, settings.directory("workers"))
            # Two machines may both have a "cpu"; Dask wants names to differ.
            options["name"] = bench.worker_name
            try:
                await stack.enter_async_context(Nanny(scheduler, **options))
            except (OSError, RuntimeError) as error:
                # Dask wraps what went wrong while it started in a RuntimeError.
                raise SettingsError(
                    f"the scheduler {scheduler} does not answer: {error.__cause__ or error}",
                    hint="start one with `dask scheduler`, or check the address",
                ) from None
            logger.info("measuring on %s for %s", device, scheduler)
        await stop.wait()
