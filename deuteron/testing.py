"""Timing and comparing kernels: Triton's ``triton.testing``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from deuteron.compiler.runtime.tuning.benchmark import do_bench
from deuteron.compiler.runtime.tuning.graph_benchmark import do_bench_cudagraph
from deuteron.tools.peaks import get_dram_gbps, get_max_simd_tflops, get_max_tensorcore_tflops, nvsmi
from deuteron.tools.reports import Benchmark, Mark, perf_report

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

#: A number, or what gives one for a dtype.
Tolerance: TypeAlias = "float | Callable[[Any], float]"


def assert_close(
    x: Any,
    y: Any,
    atol: Tolerance | None = None,
    rtol: Tolerance | None = None,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless ``|x - y| <= atol + rtol * |y|`` everywhere; NaNs must be in the same places.

    Takes arrays of any library; ``atol`` defaults to 0.01 and ``rtol`` to 0, as in Triton. Either may be a function of
    the dtype of ``x``, which is that of its library.
    """
    import numpy as np

    np.testing.assert_allclose(
        _as_numpy(x),
        _as_numpy(y),
        atol=_tolerance(1e-2 if atol is None else atol, x),
        rtol=_tolerance(0.0 if rtol is None else rtol, x),
        equal_nan=True,
        err_msg=err_msg,
    )


def _tolerance(given: Tolerance, x: Any) -> float:
    """A tolerance for comparing ``x``."""
    if not callable(given):
        return given
    import numpy as np

    return given(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype)


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
