"""``deuteron view``: a script whose kernels are recorded, and a page of what they do to memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.compiler.counting import counted

from .errors import CommandError
from .output import check_folder_of, say, write_output
from .script import run_script

if TYPE_CHECKING:
    from deuteron.profiler.accesses import AccessRecord


def view(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file; it is executed.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Given to the script.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: SCRIPT.accesses.html.")] = None,
    kernel: Annotated[str | None, typer.Option(help="Record launches of this kernel only.")] = None,
    launch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Record the N-th launch only, of --kernel if there is one.")
    ] = None,
    programs: Annotated[
        str, typer.Option(metavar="LIST", help="Programs to record, as 0,5,8-15 (first axis fastest), or all.")
    ] = "all",
    most_elements: Annotated[
        int, typer.Option("--most-elements", min=1, help="Elements to record; what is left out is counted.")
    ] = 4_000_000,
) -> None:
    """Run a script with the loads, stores and atomics of its kernels recorded, and write an HTML page about them.

    The page shows which program touches which elements of each array, step by step, with elements out of bounds in red
    and those masked off; and counts sectors, lines, bank conflicts and elements that are read again. Kernels run under
    the interpreter on the host, whatever device their arrays are on. Exit code 2 where the script did not run to its
    end; what it did until then is on the page.

    Example: `deuteron view --launch 1 examples/matmul.py --device cpu`
    """
    from deuteron.profiler.accesses import Wanted, accesses_page, recorded  # lazy: NumPy, for those who interpret

    wanted = Wanted(kernel, launch, parse_programs(programs), most_elements)
    path = output or Path(f"{script.stem}.accesses.html")
    check_folder_of(path)
    target = path.absolute()  # the script may change the folder
    with recorded(wanted) as record:
        failure = run_script(script, arguments or [])
    stopped = f"{script} did not run to its end: {failure}" if failure is not None else ""
    if not any(made.accesses for made in record.launches):
        raise CommandError(stopped or _nothing(script, record, wanted.kernel), hint=_hint(record))
    write_output(target, accesses_page(record, f"Accesses of {script.name}", (stopped,) if stopped else ()))
    _say_what(record)
    say(f"wrote {path}")
    if stopped:
        raise CommandError(stopped, hint=f"what ran before is in {path}")


def parse_programs(text: str) -> frozenset[int] | None:
    """The numbers of ``0,5,8-15``; None for ``all``. Raises CommandError for other text."""
    if text == "all":
        return None
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        last = high if dash else low
        if not (low.isdecimal() and last.isdecimal() and int(low) <= int(last) < 1 << 31):
            raise CommandError(
                f"--programs: {part!r} is no program", hint="give numbers and ranges as 0,5,8-15, or all"
            )
        if int(last) - int(low) > 1_000_000:
            raise CommandError(f"--programs: {part!r} has more than a million programs", hint="use all")
        found.update(range(int(low), int(last) + 1))
    return frozenset(found)


def _nothing(script: Path, record: AccessRecord, kernel: str | None) -> str:
    if not record.ran:
        return f"{script} launched no kernel: nothing was recorded"
    if kernel is not None and kernel not in record.ran:
        return f"{script} launched no kernel called {kernel}"
    if not record.launches:
        return f"{script} has no launch of that number"
    return f"nothing was recorded of {counted(len(record.launches), 'launch')}"


def _hint(record: AccessRecord) -> str | None:
    if not record.ran:
        return None
    launched = ", ".join(f"{name} ({count})" for name, count in record.ran.items())
    return "; ".join([f"launches: {launched}", *record.notes()])


def _say_what(record: AccessRecord) -> None:
    from deuteron.profiler.accesses.page import first_outside  # lazy: NumPy, for those who interpret

    for note in record.notes():
        say(f"note: {note}")
    for made in record.launches:
        for found in first_outside(made):
            operation = made.operations[int(str(found["operation"]))]
            where = f"{made.kernel}, launch {made.number}"
            elements = counted(int(str(found["count"])), "element")
            say(f"out of bounds: {where}: {elements} of a {operation.kind} at {operation.location}")
    count = sum(len(made.accesses) for made in record.launches)
    launches = counted(len(record.launches), "launch")
    say(f"recorded {counted(count, 'access')} with {counted(record.elements, 'element')} in {launches}")
