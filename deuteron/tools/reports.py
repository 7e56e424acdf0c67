"""Reports of a function's speed over a range of sizes, a line for each way of doing it: ``triton.testing.perf_report``.

Tables, CSV files and data frames have Triton's columns, so that what reads its results reads these.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.extras import is_installed, require_packages
from deuteron.compiler.whole_file import write_whole


@dataclass(frozen=True)
class Benchmark:
    """What a report varies: ``x_vals`` along the axis ``x_names``, one line per value of ``line_arg``.

    ``x_vals`` holds values, or tuples with one value per name. ``args`` are passed to the function unchanged.
    ``ylabel`` is the unit; the other fields are for pictures.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None

    @property
    def columns(self) -> list[str]:
        """The names of a table's columns: what is varied, then the lines with their unit."""
        return [*self.x_names, *(f"{name} ({self.ylabel})" for name in self.line_names)]


#: A line's value at one point: in the middle, low and high; the last two None where the function tells only one.
Measured = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Points:
    """What was measured for one benchmark: for each point its x values, and each line's value."""

    benchmark: Benchmark
    xs: list[list[Any]]
    lines: list[list[Measured]]

    def table(self, diff: bool) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows; ``diff``: with the second column less the first, if there are just two."""
        columns = self.benchmark.columns
        rows = [[*x, *(middle for middle, _, _ in line)] for x, line in zip(self.xs, self.lines, strict=True)]
        if diff and len(columns) == 2:
            return [*columns, "Diff"], [[*row, row[1] - row[0]] for row in rows]
        return columns, rows


@dataclass
class Mark:
    """A function with the reports to make of it; made by :func:`perf_report`."""

    fn: Callable[..., Any]
    benchmarks: Benchmark | Sequence[Benchmark]

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        diff_col: bool = False,
        save_precision: int = 6,
        **kwargs: Any,
    ) -> Any:
        """Call the function for every point. Print a table; save it below ``save_path`` as CSV with so many digits,
        and, where matplotlib is installed, a picture of each and a page of all; show the pictures; return DataFrames,
        one of a single benchmark. ``diff_col``: a column of differences in tables with two. Other keywords reach the
        function.

        Raises:
            MissingExtra: plots or DataFrames are asked for, and matplotlib or pandas is not installed.
            DeuteronError: a point has not one value for each of ``x_names``.
        """
        if show_plots:
            require_packages("matplotlib", by="show_plots")
        if return_df:
            require_packages("pandas", by="return_df")
        single = isinstance(self.benchmarks, Benchmark)
        several = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        folder = Path(save_path) if save_path else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        frames = []
        for benchmark in several:
            points = self._measure(benchmark, kwargs)
            columns, rows = points.table(diff_col)
            if print_data:
                print(f"{benchmark.plot_name}:\n{_text(columns, rows)}", flush=True)
            if benchmark.plot_name and (show_plots or (folder is not None and is_installed("matplotlib"))):
                _plot(points, folder, show_plots)
            if folder is not None:
                _save(folder / f"{benchmark.plot_name}.csv", columns, rows, save_precision)
            if return_df:
                import pandas

                frames.append(pandas.DataFrame(rows, columns=columns))
        if folder is not None and is_installed("matplotlib"):
            write_whole(folder / "results.html", _page(several))
        if not return_df:
            return None
        return frames[0] if single else frames

    def _measure(self, benchmark: Benchmark, kwargs: Mapping[str, Any]) -> Points:
        points = Points(benchmark, [], [])
        for x in benchmark.x_vals:
            values = list(x) if isinstance(x, tuple | list) else [x] * len(benchmark.x_names)
            if len(values) != len(benchmark.x_names):
                raise DeuteronError(
                    f"{benchmark.plot_name}: x = {x} has {len(values)} values for {len(benchmark.x_names)} names"
                )
            given = {**dict(zip(benchmark.x_names, values, strict=True)), **benchmark.args, **kwargs}
            points.xs.append(values)
            points.lines.append([_measured(self.fn(**given, **{benchmark.line_arg: y})) for y in benchmark.line_vals])
        return points


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: ``fn(**x, line_arg=..., **args)`` returns a number, or (middle, low, high); ``fn.run()`` tabulates
    it."""
    return lambda fn: Mark(fn, benchmarks)


def _measured(made: Any) -> Measured:
    try:
        middle, low, high = made
    except TypeError:  # one number, or an array without dimensions
        return made, None, None
    return middle, low, high


def _is_fraction(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, Integral)


def _text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as pandas prints one: numbered rows, floats with six digits."""
    cells = [["", *columns]]
    cells += [[str(i), *(f"{v:f}" if _is_fraction(v) else str(v) for v in row)] for i, row in enumerate(rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns) + 1)]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)


def _save(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]], precision: int) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([f"{v:.{precision}f}" if _is_fraction(v) else v for v in row] for row in rows)
    write_whole(path, text.getvalue())


def _plot(points: Points, folder: Path | None, show: bool) -> None:
    """Lines over the first x, a band from low to high around those that have one."""
    import matplotlib.pyplot as plt  # type: ignore[import-not-found,import-untyped,unused-ignore]

    benchmark = points.benchmark
    figure, axes = plt.subplots()
    first = [x[0] for x in points.xs]
    for place, name in enumerate(benchmark.columns[len(benchmark.x_names) :]):
        color, style = benchmark.styles[place] if benchmark.styles else (None, "-")
        middle, low, high = zip(*(line[place] for line in points.lines), strict=True)
        axes.plot(first, middle, label=name, color=color, ls=style)
        if None not in (*low, *high):
            axes.fill_between(first, low, high, alpha=0.15, color=color)
    axes.set_xlabel(benchmark.xlabel or benchmark.x_names[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    axes.legend()
    if folder is not None:
        figure.savefig(folder / f"{benchmark.plot_name}.png")
    if show:
        plt.show()
    plt.close(figure)


def _page(benchmarks: Sequence[Benchmark]) -> str:
    names = (html.escape(benchmark.plot_name) for benchmark in benchmarks if benchmark.plot_name)
    pictures = "\n".join(f'<img src="{name}.png" alt="{name}">' for name in names)
    return f"<!doctype html>\n<title>Results</title>\n{pictures}\n"
