"""Timing and comparing kernels: Triton's ``triton.testing``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.extras import require_packages
from deuteron.compiler.runtime.tuning.benchmark import do_bench
from deuteron.compiler.runtime.tuning.graph_benchmark import do_bench_cudagraph
from deuteron.tools.peaks import get_dram_gbps, get_max_simd_tflops, get_max_tensorcore_tflops, nvsmi

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "do_bench",
    "do_bench_cudagraph",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
]


def assert_close(
    x: Any,
    y: Any,
    atol: float | None = None,
    rtol: float | None = None,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless ``|x - y| <= atol + rtol * |y|`` everywhere; NaNs must be in the same places.

    Takes arrays of any library; ``atol`` defaults to 0.01 and ``rtol`` to 0, as in Triton.
    """
    import numpy as np

    np.testing.assert_allclose(
        _as_numpy(x),
        _as_numpy(y),
        atol=1e-2 if atol is None else atol,
        rtol=0.0 if rtol is None else rtol,
        equal_nan=True,
        err_msg=err_msg,
    )


def _as_numpy(value: Any) -> np.ndarray:
    """Any array as float64 or integers on the host."""
    import numpy as np

    if hasattr(value, "to_numpy"):  # a device array
        value = value.to_numpy()
    elif hasattr(value, "detach"):  # torch
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


@dataclass(frozen=True)
class Benchmark:
    """What a report varies: ``x_vals`` along the axis ``x_names``, one line per value of ``line_arg``.

    ``x_vals`` holds values, or tuples with one value per name. ``args`` are passed to the function unchanged. The other
    fields are for plots.
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


@dataclass
class Mark:
    """A function with the reports to make of it; made by :func:`perf_report`."""

    fn: Callable[..., Any]
    benchmarks: Sequence[Benchmark]
    rows: list[list[Any]] = field(default_factory=list, init=False)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call the function for every point; print a table, save it as CSV, plot it, or return pandas DataFrames.

        Raises:
            MissingExtra: plots or DataFrames are asked for, and matplotlib or pandas is not installed.
        """
        if show_plots:
            require_packages("matplotlib", by="show_plots")
        if return_df:
            require_packages("pandas", by="return_df")
        frames = []
        for benchmark in self.benchmarks:
            header, self.rows = _header(benchmark), self._measure(benchmark, kwargs)
            if print_data:
                print(f"{benchmark.plot_name}:\n{_table(header, self.rows)}")
            if save_path:
                folder = Path(save_path)
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / f"{benchmark.plot_name}.csv").open("w", newline="") as file:
                    csv.writer(file).writerows([header, *self.rows])
            if show_plots:
                _plot(benchmark, header, self.rows)
            if return_df:
                import pandas

                frames.append(pandas.DataFrame(self.rows, columns=header))
        if not return_df:
            return None
        return frames if len(frames) > 1 else frames[0]

    def _measure(self, benchmark: Benchmark, kwargs: Mapping[str, Any]) -> list[list[Any]]:
        """One row per x: the x values, then the middle value of every line."""
        rows = []
        for x in benchmark.x_vals:
            values = list(x) if isinstance(x, tuple | list) else [x] * len(benchmark.x_names)
            if len(values) != len(benchmark.x_names):
                raise DeuteronError(
                    f"{benchmark.plot_name}: x = {x} has {len(values)} values for {len(benchmark.x_names)} names"
                )
            point = dict(zip(benchmark.x_names, values, strict=True))
            line = []
            for name in benchmark.line_vals:
                made = self.fn(**point, **{benchmark.line_arg: name}, **benchmark.args, **kwargs)
                line.append(made[0] if isinstance(made, tuple | list) else made)
            rows.append([*values, *line])
        return rows


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: ``fn(**x, line_arg=..., **args)`` returns a number, or (middle, low, high); ``fn.run()`` tabulates
    it."""
    several = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)
    return lambda fn: Mark(fn, several)


def _header(benchmark: Benchmark) -> list[str]:
    return [*benchmark.x_names, *benchmark.line_names]


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [
        list(header),
        *([f"{v:.6g}" if isinstance(v, float) else str(v) for v in r] for r in rows),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells)


def _plot(benchmark: Benchmark, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    import matplotlib.pyplot as plt  # type: ignore[import-not-found,import-untyped,unused-ignore]

    figure, axes = plt.subplots()
    first = len(benchmark.x_names)
    plain: list[tuple[str | None, str]] = [(None, "-")] * len(header)
    for i, name in enumerate(header[first:]):
        color, style = benchmark.styles[i] if benchmark.styles else plain[i]
        axes.plot([r[0] for r in rows], [r[first + i] for r in rows], label=name, color=color, ls=style)
    axes.set_xlabel(benchmark.xlabel or header[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    axes.legend()
    plt.show()
    plt.close(figure)
