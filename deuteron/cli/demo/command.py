"""The steps of the demo, in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from deuteron.compiler.extras import require_extras

from ..errors import CommandError
from ..output import print_records, say
from . import search
from .service import DemoService

#: Seconds that the searches may take together; the rest of the demo needs about 20 s on two cores.
DEFAULT_SECONDS = 75.0


def demo(
    device: Annotated[str | None, typer.Option(help="Default: the first GPU, or the CPU where there is none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo leaves.")] = Path("deuteron-demo"),
    seconds: Annotated[
        float, typer.Option(min=4, help="Time for the searches, all shapes together, as `deuteron tune` counts it.")
    ] = DEFAULT_SECONDS,
) -> None:
    """Show the main job: a kernel goes in over HTTP, its best configuration comes out, online and as a file.

    Starts a service of its own, tunes softmax and matmul, prints what was gained, downloads the
    configurations, stops the service, and launches from the file in a process that has no network.

    Example: `deuteron demo --seconds 30`
    """
    require_extras("server", by="deuteron demo")
    from deuteron.compiler import get_device  # lazy: help starts without the compiler

    steps = Steps()
    chosen = get_device(device or search.best_device()).name
    files = DemoFiles(out)
    _make_folder(out)
    # Without a handler the demo would end at once and leave its service behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    steps.begin(f"start the service on SQLite, device {chosen}")
    with DemoService(out / "service", files.log) as service, service.connect() as client:
        say(f"    {service.url} (its page shows the jobs while they run)")

        steps.begin(f"submit softmax and matmul over HTTP, {seconds:g} s together")
        jobs = search.submit(client, chosen, seconds)

        steps.begin("watch the searches")
        records = search.watch(client, jobs)

        steps.begin("what was found: default and best time, speed-up with its 95 % interval")
        print_records(records)
        for job in jobs:
            search.print_profile(client, job, files.profile(job.name))

        steps.begin("download the configurations as one file")
        bundle = client.pull_bundle(files.bundle)
        say(f"    {bundle.path}, sha256 {bundle.sha256}")
    say("    service stopped")

    steps.begin("launch from the file, in a new process without a service")
    _launch_in_new_process(files.bundle, chosen)
    _say_where(files)
    say(f"done in {steps.elapsed:.0f} s")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"cannot make the folder {out}: {error.strerror}", hint="--out names one where you may write"
        ) from None


@dataclass
class Steps:
    """Headings with numbers and the time since the start."""

    began: float = field(default_factory=time.monotonic)
    number: int = 0

    def begin(self, what: str) -> None:
        """Print the next heading."""
        self.number += 1
        say(f"\n[{self.elapsed:3.0f} s] {self.number}. {what}")

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


@dataclass(frozen=True)
class DemoFiles:
    """What the demo leaves behind, and where."""

    folder: Path

    @property
    def bundle(self) -> Path:
        """The configurations that were found."""
        return self.folder / "configs.bundle"

    @property
    def log(self) -> Path:
        """What the service wrote to its standard output and error."""
        return self.folder / "service.log"

    def profile(self, job: str) -> Path:
        """The profile of one job's search."""
        return self.folder / f"{job}.hatchet"


def _say_where(files: DemoFiles) -> None:
    folder = files.folder
    typer.echo(f"\nThe files are in {folder}:")
    for path, what in (
        (files.bundle, "the configurations: deuteron.tuned(kernel, cache=this file)"),
        (files.profile("softmax"), "the search as a profile: proton-viewer -m time/us FILE"),
        (files.profile("matmul"), "the same for matmul"),
        (folder / "service", f"database and data: deuteron serve --home {folder / 'service'}"),
        (files.log, "what the service said"),
    ):
        typer.echo(f"  {path!s:32} {what}")


def _launch_in_new_process(bundle: Path, device: str) -> None:
    """Run ``offline.py`` in a fresh interpreter, which knows nothing of the service.

    Raises:
        CommandError: it failed; its messages are on stderr already.
    """
    sys.stdout.flush()
    finished = subprocess.run(
        [sys.executable, "-P", "-m", "deuteron.cli.demo.offline", str(bundle), device], check=False
    )
    if finished.returncode:
        raise CommandError("launching from the bundle failed", hint=f"the bundle is {bundle}")
