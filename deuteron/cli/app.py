"""The commands of ``deuteron``, each in its own small module that imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from deuteron import __version__

from . import (
    bench,
    cache,
    compile,
    cover,
    database,
    demo,
    devices,
    doctor,
    explain,
    jobs,
    keys,
    learn,
    replay,
    sanitize,
    serve,
    space,
    submit,
    token,
    tune,
    view,
    workers,
)
from . import watch as watching
from . import worker as working

app = typer.Typer(
    name="deuteron",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Compile tile kernels, tune them, and keep the best configuration for every device and shape.",
    epilog="Start with `deuteron demo`, or `deuteron tune softmax --shape M=1024,N=781`.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deuteron {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Compile tile kernels, tune them, and keep the best configuration for every device and shape."""


for name, function in (
    ("demo", demo.demo),
    ("tune", tune.tune),
    ("space", space.space),
    ("compile", compile.compile_kernel),
    ("explain", explain.explain),
    ("serve", serve.serve),
    ("worker", working.worker),
    ("submit", submit.submit),
    ("jobs", jobs.jobs),
    ("watch", watching.watch),
    ("cancel", jobs.cancel),
    ("devices", devices.devices),
    ("doctor", doctor.doctor),
    ("cover", cover.cover),
    ("learn", learn.learn),
    ("replay", replay.replay),
    ("bench", bench.bench),
):
    app.command(name)(function)
#: What follows the script is the script's.
_OF_SCRIPT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
app.command("sanitize", context_settings=_OF_SCRIPT)(sanitize.sanitize)
app.command("view", context_settings=_OF_SCRIPT)(view.view)
app.add_typer(cache.app, name="cache")
app.add_typer(keys.app, name="keys")
app.add_typer(workers.app, name="workers")
app.add_typer(token.app, name="token")
app.add_typer(database.app, name="db")


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    Raises:
        DeuteronError: the command failed; usage errors are reported here and give 2.
        BrokenPipeError: who read the output has gone.
    """
    command = typer.main.get_command(app)
    try:
        command.main(arguments, prog_name="deuteron")
    except SystemExit as finished:
        if isinstance(finished.__context__, BrokenPipeError):  # of which typer makes the code 1
            raise finished.__context__ from None
        return finished.code if isinstance(finished.code, int) else 1
    return 0
