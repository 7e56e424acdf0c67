"""The command line of ``proton-viewer``."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.garbage import garbage_kept
from deuteron.compiler.printable import printable as printable_text
from deuteron.compiler.standard_streams import drop_output, is_full, prepare_streams

from ..errors import UsageError
from ..output.files import write_atomic
from .console import tree_text
from .formats import FORMATS
from .formats.exports import TOP, Export
from .frames import name_of
from .names import STYLES, printable
from .show import joined, show_metrics, views, wants_color
from .view import DEFAULT_DEPTH, Choice

_LIST_HELP = """List the metrics of the file. Names are case insensitive and without units.
Derived metrics can be shown when the metrics they come from are there:
- time/s, time/ms, time/us, time/ns; cpu_time/...
- avg_time/..., avg_cpu_time/...: time / count
- flop[8|16|32|64]/s, gflop[...]/s, tflop[...]/s: flops / time
- byte/s, gbyte/s, tbyte/s: bytes / time
- util: share of the device's peak (the longer of flops / peak rate and bytes / peak bandwidth, / time)
- <metric>/%%: share of ROOT, or of the sum for an exclusive metric
"""
_FORMAT_HELP = f"""What is written:
- tree (the default), table (the largest names), csv, json
- html (one page with pictures, search, table and roofline)
- folded (collapsed stacks), speedscope, dot (Graphviz)
Or, as in Proton, how Python frames are named: {", ".join(STYLES)}.
Both may be given: -f table -f function_line
"""


def parser() -> argparse.ArgumentParser:
    """The argument parser of ``proton-viewer``."""
    result = argparse.ArgumentParser(
        prog="proton-viewer",
        description="Show a profile: as a tree, or in another format.",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = result.add_argument
    add("file", metavar="FILE", help="a .hatchet or .hatchet_msgpack file")
    add("-l", "--list", action="store_true", help=_LIST_HELP)
    add(
        "-m",
        "--metrics",
        help='Metrics to show, separated by commas, for example time/ms,util ("x,y" in quotes is one)',
    )
    add(
        "-i",
        "--include",
        metavar="REGEX",
        help="Keep all paths through frames whose name matches, from its start ('.*test.*' finds test anywhere)",
    )
    add("-e", "--exclude", metavar="REGEX", help="Drop frames whose name matches and all below them")
    add("-t", "--threshold", type=float, help="Hide frames whose first metric is smaller")
    add("-d", "--depth", type=int, help=f"Levels of the tree to show ({DEFAULT_DEPTH})")
    add("-f", "--format", action="append", choices=("tree", *FORMATS, *STYLES), default=[], help=_FORMAT_HELP)
    add("-o", "--output", metavar="PATH", help="Write to a file, which is complete or not there")
    add("-n", "--top", type=int, metavar="N", help=f"Rows of the table ({TOP}); 0 for all")
    add("--print-sorted", action="store_true", help="Below the tree, also list all frames by the first metric")
    add(
        "--diff-profile",
        "-diff",
        metavar="FILE2",
        help="Show FILE minus FILE2",
    )
    add(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="Colours of the tree: auto (a terminal, and NO_COLOR is not set), always, never",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``proton-viewer``; returns the exit code: 0, or 2 with a message on the standard error."""
    prepare_streams()
    options = parser().parse_args(arguments)
    try:
        with garbage_kept():  # a tree has no cycles, and looking for some takes a third of the time
            _run(options)
        sys.stdout.flush()
    except DeuteronError as error:
        # Names of a profile that may be anybody's.
        print(f"proton-viewer: error: {printable_text(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        drop_output()  # its reader went away (`| head`)
    except OSError as error:
        if not is_full(error):
            raise
        drop_output()
        print(f"proton-viewer: error: cannot write the output: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    output, style = _last(options.format, ("tree", *FORMATS), "tree"), _last(options.format, STYLES, "full")
    _refuse(options, output)
    if options.list:
        show_metrics(options.file)
        return
    metrics = _metrics(options.metrics or "")
    choice = Choice(
        metrics or _default_metrics(output),
        options.include,
        options.exclude,
        options.threshold,
        DEFAULT_DEPTH if options.depth is None else options.depth,
        style,
        options.diff_profile,
    )
    text = _tree(options, choice) if output == "tree" else _export(options, choice, output)
    if output == "csv" and not options.output and sys.stdout.isatty():
        # Files have names as they are; a terminal would obey them.
        text = "\n".join(map(printable, text.split("\n")))
    _write(text, options.output)


def _metrics(text: str) -> list[str]:
    """The names in ``--metrics``. One with a comma is quoted, as in a file of comma-separated values."""
    try:
        named = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:
        raise UsageError(
            f"--metrics {text[:80]!r} is no list of names", hint='names with commas between, on one line: time/ms,"x,y"'
        ) from None
    return [name.strip() for name in named if name.strip()]


def _last(given: Sequence[str], known: Sequence[str], otherwise: str) -> str:
    return next((name for name in reversed(given) if name in known), otherwise)


def _refuse(options: argparse.Namespace, output: str) -> None:
    """Raise UsageError for options that have no meaning together."""
    if options.list:
        _refuse_with_list(options)
    misplaced = {
        "--print-sorted": options.print_sorted and output != "tree",
        "--color always": options.color == "always" and output != "tree",
        "--top": options.top is not None and output != "table",
        "--diff-profile": options.diff_profile and output != "tree" and not FORMATS[output].differences,
    }
    for option, wrong in misplaced.items():
        if wrong:
            raise UsageError(f"{option} has no meaning with --format {output}", hint="leave one of them out")
    if options.depth is not None and options.depth < 0:
        raise UsageError(f"--depth {options.depth} is negative", hint="0 shows the root alone")
    if options.top is not None and options.top < 0:
        raise UsageError(f"--top {options.top} is negative", hint="0 shows all rows")


def _refuse_with_list(options: argparse.Namespace) -> None:
    """All metrics of one file are listed, whatever would be shown of them."""
    alone = {"file", "list", "color"}
    for name, value in vars(options).items():
        if name not in alone and value is not None and value is not False and value != []:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} has no meaning with --list", hint="leave one of them out")


def _default_metrics(output: str) -> list[str]:
    """What is shown without -m; none are all."""
    if output == "tree":
        raise UsageError("nothing to show: no metrics are named", hint="-m METRICS shows some, -l lists them")
    return [] if FORMATS[output].all_metrics else ["time"]


def _tree(options: argparse.Namespace, choice: Choice) -> str:
    color = options.color == "always" or (options.color == "auto" and not options.output and wants_color())
    return tree_text(joined(views(options.file, choice)), choice.depth, options.print_sorted, color=color)


def _export(options: argparse.Namespace, choice: Choice, output: str) -> str:
    sides = [view.cut(choice.depth) for view in views(options.file, choice)]
    paths = [name_of(file) for file in (options.file, options.diff_profile) if file]
    names = [Path(path).name for path in paths]
    titles = names if len(set(names)) == len(names) else paths
    return FORMATS[output].write(Export(sides, titles, TOP if options.top is None else options.top))


def _write(text: str, path: str | None) -> None:
    if path:
        # Halves of surrogate pairs, which no encoding has, become what JSON calls them.
        write_atomic(path, text.encode("utf-8", "backslashreplace"))
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), end="")
    sys.stdout.flush()
