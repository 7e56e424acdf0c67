"""The command line of ``proton-viewer``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deuteron.compiler.errors import DeuteronError

from .names import STYLES
from .show import render, show_metrics, wants_color
from .view import DEFAULT_DEPTH

_LIST_HELP = """List the metrics of the file. Names are case insensitive and without units.
Derived metrics can be shown when the metrics they come from are there:
- time/s, time/ms, time/us, time/ns; cpu_time/...
- avg_time/..., avg_cpu_time/...: time / count
- flop[8|16|32|64]/s, gflop[...]/s, tflop[...]/s: flops / time
- byte/s, gbyte/s, tbyte/s: bytes / time
- util: share of the device's peak (the longer of flops / peak rate and bytes / peak bandwidth, / time)
- <metric>/%%: share of ROOT, or of the sum for an exclusive metric
"""


def parser() -> argparse.ArgumentParser:
    """The argument parser of ``proton-viewer``."""
    result = argparse.ArgumentParser(
        prog="proton-viewer",
        description="Print a profile as a tree.",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = result.add_argument
    add("file", metavar="FILE", help="a .hatchet or .hatchet_msgpack file")
    add("-l", "--list", action="store_true", help=_LIST_HELP)
    add("-m", "--metrics", help="Metrics to show, separated by commas, for example time/ms,util")
    add(
        "-i",
        "--include",
        metavar="REGEX",
        help="Keep all paths through frames whose name matches, from its start ('.*test.*' finds test anywhere)",
    )
    add("-e", "--exclude", metavar="REGEX", help="Drop frames whose name matches and all below them")
    add("-t", "--threshold", type=float, help="Hide frames whose first metric is smaller")
    add("-d", "--depth", type=int, default=DEFAULT_DEPTH, help="Levels of the tree to show (100)")
    add("-f", "--format", choices=STYLES, default="full", help="How Python frames are named")
    add("--print-sorted", action="store_true", help="Also list all frames by the first metric")
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
        help="Colours: auto (a terminal, and NO_COLOR is not set), always, never",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``proton-viewer``; returns the exit code: 0, or 2 with a message on the standard error."""
    options = parser().parse_args(arguments)
    try:
        with _without_collection():
            _run(options)
    except DeuteronError as error:
        print(f"proton-viewer: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output went away (`| head`); say nothing more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextmanager
def _without_collection() -> Iterator[None]:
    """No search for garbage meanwhile: a tree has no cycles, and looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _run(options: argparse.Namespace) -> None:
    if options.list:
        show_metrics(options.file)
        return
    metrics = [name.strip() for name in (options.metrics or "").split(",") if name.strip()]
    if not metrics:
        raise DeuteronError("nothing to show: no metrics are named", hint="-m METRICS shows some, -l lists them")
    text = render(
        options.file,
        metrics,
        color=options.color == "always" or (options.color == "auto" and wants_color()),
        include=options.include,
        exclude=options.exclude,
        threshold=options.threshold,
        depth=options.depth,
        format=options.format,
        print_sorted=options.print_sorted,
        diff_profile=options.diff_profile,
    )
    print(text, end="")
    sys.stdout.flush()
