"""Tables and figures as every command shows them. Data go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.compiler.printable import printable, printable_line
from deuteron.compiler.whole_file import open_descriptor, write_whole

from .errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from deuteron.tuner import ConfigRecord
    from deuteron.tuner.records import Predictor

#: Columns for output that no terminal shows: tables in logs and pipes are not to be cut at 80.
_WIDE = 180
#: Columns that no table has, and those in which a verdict takes three lines at most.
_UNBOUNDED, _VERDICT = 1 << 20, 28


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr, made anew so that redirected streams are honoured. It prints text as it is: what
    is to have a style is a ``rich.text.Text``."""
    from .literal_console import LiteralConsole  # lazy: rich, for those who print tables

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return LiteralConsole(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def say(text: str = "") -> None:
    """A line for people, on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """A line on stdout that may have names from elsewhere in it: it stays one line."""
    print(printable_line(text), flush=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system says against writing ``path`` is a :class:`CommandError`."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from None


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that was asked for: whole, or the earlier one stays. Raises :class:`CommandError`."""
    with writing(path):
        write_whole(path, content)


def check_folder_of(path: Path) -> None:
    """Raise :class:`CommandError`, before any work, where a file has no folder to be written to, or may not be."""
    if open_descriptor(path) is not None or (path.exists() and not path.is_file()):
        return  # written where it stands
    folder = path.resolve().parent
    if not folder.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"cannot write {path}: nothing can be written in {folder}")


def make_table(*columns: str) -> Table:
    """An empty table; a column whose name starts with ``>`` is aligned to the right."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    return table


def print_records(records: Iterable[ConfigRecord]) -> None:
    """Default time, best time, speed-up with its interval and configuration; a table per kernel and device, or where
    the terminal has no room for it a paragraph per record: a configuration that is cut is none."""
    from rich.cells import cell_len
    from rich.measure import Measurement

    from deuteron.tuner import summary_rows, summary_table  # lazy: help starts without the tuner

    groups: dict[str, list[ConfigRecord]] = {}
    for record in records:
        groups.setdefault(f"{record.kernel_name} on {record.device.key}", []).append(record)
    out = console()
    for title, members in groups.items():
        table, rows = summary_table(members, title), summary_rows(members)
        for column in table.columns:
            widest = max(cell_len(printable_line(row[str(column.header)])) for row in rows)
            column.no_wrap = column.header != "verdict"
            column.min_width = widest if column.no_wrap else min(widest, _VERDICT)
        if Measurement.get(out, out.options.update(max_width=_UNBOUNDED), table).minimum <= out.width:
            out.print(table)
        else:
            _print_paragraphs(title, rows)


def _print_paragraphs(title: str, rows: Iterable[Mapping[str, str]]) -> None:
    """Lines that the terminal may break, and nobody else."""
    tell(title)
    for row in rows:
        tell(f"{row['shape']} {row['dtype']}")
        tell(f"  {row['configuration']}")
        tell(f"  {row['best']}, default {row['default']}, {row['speed-up']}, {row['verdict']}")


def print_unchecked(records: Iterable[ConfigRecord]) -> None:
    """A warning for each record whose result nothing confirmed."""
    for record in records:
        if not record.checked:
            place = f"{record.kernel_name} {record.shape_key} {record.dtype}"
            tell(f"warning: {place}: not checked: no reference and no other configuration confirms its result")


def print_predictors(predictors: Iterable[Predictor]) -> None:
    """What predictors are worth, beside the nearest shape and the default: shares of the best at shapes that were left
    out."""
    table = make_table("kernel", "dtype", "device", "chosen by", ">shapes", ">geomean", ">p10", ">worst")
    doubts = []
    for one in predictors:
        found = one.accuracy
        ways = (("prediction", found.predicted), ("nearest shape", found.nearest), ("default", found.default))
        for name, accuracy in ways:
            if accuracy is not None:
                shares = (f"{value:.3f}" for value in (accuracy.geomean, accuracy.p10, accuracy.worst))
                table.add_row(one.kernel_name, one.dtype, one.device.key, name, str(found.shapes), *shares)
        doubts += [f"{one.dtype} on {one.device.key}: {doubt}" for doubt in found.doubts]
    if table.row_count:
        console().print(table)
    for doubt in doubts:
        tell(doubt)


def format_config(config: Mapping[str, object]) -> str:
    """``BLOCK=128 num_warps=4``; ``-`` for an empty one."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "-"


def format_bytes(count: float | None) -> str:
    """A size in binary units; ``-`` where it is not known."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
