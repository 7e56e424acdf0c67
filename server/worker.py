"""`deuteron worker tcp://...`: measuring processes for a scheduler elsewhere, one per device."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .dispatch.resources import detected_devices
from .interrupts import interrupts_blocked
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from .dispatch.run import Bench

logger = logging.getLogger("deuteron.worker")

_LOOK_S = 0.5
_ASK_AGAIN_S = 2.0


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
        SettingsError: the scheduler does not answer, a device is not present, or the home cannot be written.
        DeuteronError: there is no such runner, or no request can carry the token.
    """
    present = detected_devices()
    chosen = list(devices) if devices else present
    missing = [device for device in chosen if device not in present]
    if missing:
        raise SettingsError(
            f"device {missing[0]!r} is not present on this machine",
            hint=f"present: {', '.join(present)}",
        )
    from deuteron.tuner.http import authorization  # lazy: it brings httpx

    from .dispatch.run import load_runner  # lazy: it brings the tuner

    # A wrong one of either would fail every job.
    load_runner(settings.runner)
    authorization(settings.token)
    with interrupts_blocked():
        asyncio.run(_serve(scheduler, server_url, settings, chosen))


async def _serve(scheduler: str, server_url: str, settings: Settings, devices: Sequence[str]) -> None:
    import dask

    from .dispatch.engine import WORKER_CONFIG  # lazy: dask takes half a second
    from .dispatch.run import Bench  # lazy: dask takes half a second

    folder = _scratch_folder(settings)
    dask.config.set(WORKER_CONFIG)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    threading.Thread(target=_await_interrupt, args=(loop, stop), name="deuteron-interrupt", daemon=True).start()
    benches = [
        Bench(server_url, settings.token, device, settings.home, settings.runner, settings.lock_folder)
        for device in devices
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for bench in benches:
                group.create_task(_measure_for(scheduler, bench, folder, stop))
    except* SettingsError as errors:
        raise errors.exceptions[0] from None
    finally:
        stop.set()


def _scratch_folder(settings: Settings) -> Path:
    """Where Dask keeps what its workers need. Raises SettingsError where there can be none."""
    try:
        return settings.directory("workers")
    except OSError as error:
        raise SettingsError(
            f"cannot make {error.filename}: {error.strerror}", hint="DEUTERON_HOME names a folder that can be written"
        ) from None


def _await_interrupt(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """The measuring processes inherit what the loop's thread blocks, so Ctrl-C is waited for in one of its own."""
    while not stop.is_set():
        if signal.sigtimedwait({signal.SIGINT}, _LOOK_S) is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(stop.set)


async def _measure_for(scheduler: str, bench: Bench, folder: Path, stop: asyncio.Event) -> None:
    """Keep a measuring process at the scheduler until ``stop``; when the scheduler is gone, ask until it is back.

    Raises:
        SettingsError: nobody answered the first time, so the address may be wrong.
    """
    from distributed import Nanny
    from distributed.core import Status

    from .dispatch.engine import worker_options  # lazy: dask takes half a second

    options = worker_options(bench, folder)
    # Two machines may both have a "cpu"; Dask wants names to differ.
    options["name"] = bench.worker_name
    connected_before = False
    while not stop.is_set():
        try:
            async with Nanny(scheduler, **options) as nanny:
                logger.info("measuring on %s for %s", bench.device, scheduler)
                connected_before = True
                while nanny.status is Status.running and not stop.is_set():
                    await _pause(stop, _LOOK_S)
        except ValueError as error:  # Dask reads the address, before it asks anybody
            raise SettingsError(
                f"{scheduler!r} is no address of a scheduler: {error}", hint="tcp://host:8786"
            ) from None
        except (OSError, RuntimeError) as error:
            # Dask wraps what went wrong while it started in a RuntimeError.
            reason = error.__cause__ or error
            if not connected_before:
                raise SettingsError(
                    f"the scheduler {scheduler} does not answer: {reason}",
                    hint="start one with `dask scheduler`, or check the address",
                ) from None
            logger.debug("the scheduler %s is still away: %s", scheduler, reason)
        if not stop.is_set():
            logger.warning("the scheduler %s is gone; asking again in %g s", scheduler, _ASK_AGAIN_S)
            await _pause(stop, _ASK_AGAIN_S)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
