"""A Dask scheduler in a process of its own, for services that are told where theirs is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

#: Runs a program's text with more environment variables until the test ends.
Background = Callable[[str, dict[str, str]], "subprocess.Popen[bytes]"]

_SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port={port}, dashboard=False) as scheduler:
        await scheduler.finished()

asyncio.run(main())
"""


def begin_scheduler(
    background: Background, port: int, environment: dict[str, str] | None = None
) -> tuple[str, subprocess.Popen[bytes]]:
    """The address of a scheduler, and its process."""
    return f"tcp://127.0.0.1:{port}", background(_SCHEDULER.format(port=port), environment or {})
