"""``deuteron sanitize``: a script whose kernels run checked."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.compiler.counting import counted

from .errors import CommandError
from .output import say
from .script import run_script

if TYPE_CHECKING:
    from deuteron.compiler.sanitizer import Report

#: Exit code for a script with findings; clean ones give 0, and 2 is for what could not be checked.
FOUND = 1


def sanitize(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file; it is executed.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Given to the script.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON; the script prints to stderr.")
    ] = False,
) -> None:
    """Run a script with its kernel launches checked: bounds, never-written memory, masked-off values, data races.

    Kernels run under the interpreter on the host, program by program, whatever device their arrays are on. Exit code 1
    with findings, 0 without, 2 where the script or a kernel could not be run to its end.

    Example: `deuteron sanitize examples/softmax.py --device cpu`
    """
    from deuteron.compiler.sanitizer import sanitized  # lazy: NumPy, for those who interpret

    redirect = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with sanitized() as report, redirect:
        failure = run_script(script, arguments or [])
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    elif report.launches:
        _show(report)
    if report.findings:
        raise typer.Exit(FOUND)
    if failure is not None:
        hint = "what ran before has no findings" if report.launches else None
        raise CommandError(f"{script} did not run to its end: {failure}", hint=hint)
    if not report.launches:
        raise CommandError(f"{script} launched no kernel: nothing was checked")


def _show(report: Report) -> None:
    for finding in report.findings:
        print(f"{finding}\n")
    number = len(report.findings)
    what = counted(number, "finding") if number else "no findings"
    say(f"{what} in {counted(report.launches, 'launch')} ({counted(report.programs, 'program')})")
