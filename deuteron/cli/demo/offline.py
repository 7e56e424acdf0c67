"""Launches from a bundle, with nothing else at hand: ``python -m deuteron.cli.demo.offline BUNDLE DEVICE``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CommandError
from ..output import format_config
from .search import DTYPES, SHAPES

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler import Device
    from deuteron.compiler.runtime.device import DeviceArray
    from deuteron.tuner import TunedKernel

#: Error of a result against float64, relative to the largest element, by its dtype.
_TOLERANCE = {"f32": 1e-4, "bf16": 1e-2}


def main(bundle: str, device_name: str) -> None:
    """A tuned shape, one near to it, and a kernel that was never tuned: three reasons for a configuration."""
    import deuteron  # lazy: help starts without the compiler
    from deuteron.tuner.workloads.kernels.matmul import matmul_kernel
    from deuteron.tuner.workloads.kernels.softmax import softmax_kernel
    from deuteron.tuner.workloads.kernels.vector_add import vector_add_kernel

    device = deuteron.get_device(device_name)
    kind = "cpu" if device_name == "cpu" else "cuda"
    shapes = SHAPES[kind]
    softmax = deuteron.tuned(softmax_kernel, cache=bundle)
    tuned, odd = shapes["softmax"]
    launch_softmax(softmax, device, tuned["M"], tuned["N"])
    launch_softmax(softmax, device, odd["M"] - 323, odd["N"] - 81)
    matmul = deuteron.tuned(matmul_kernel, cache=bundle)
    (sizes,) = shapes["matmul"]
    launch_matmul(matmul, device, DTYPES[kind]["matmul"], sizes["M"], sizes["N"], sizes["K"])
    launch_add(deuteron.tuned(vector_add_kernel, cache=bundle), device, 1 << 20)


def launch_softmax(kernel: TunedKernel, device: Device, rows: int, columns: int) -> None:
    """Softmax of a random matrix [rows, columns]."""
    import numpy as np

    import deuteron  # lazy: help starts without the compiler

    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    source, target = device.array(x), device.empty(x.shape, "f32")
    block = deuteron.next_power_of_2(columns)
    kernel[_grid("cdiv(rows, ROWS * TILES)", rows=rows)](
        *(target, source, columns, columns, rows, columns), BLOCK_SIZE=block, ROWS=1, TILES=1
    )
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    _report(f"softmax {rows} x {columns}", kernel, target, exact / exact.sum(axis=1, keepdims=True))


def launch_matmul(kernel: TunedKernel, device: Device, dtype: str, m: int, n: int, k: int) -> None:
    """The product of two random matrices, [m, k] and [k, n], of f32 or bf16."""
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(0)
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bf16" else np.float32
    a, b = (random.standard_normal(s).astype(numpy_dtype) for s in ((m, k), (k, n)))
    product = device.empty((m, n), dtype)
    kernel[_grid("cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)", m=m, n=n)](
        *(device.array(a), device.array(b), product),
        *(m, n, k, k, 1, n, 1, n, 1),
        BLOCK_M=64,
        BLOCK_N=64,
        BLOCK_K=32,
        GROUP_M=8,
        PRECISION="ieee",
    )
    exact = a.astype(np.float64) @ b.astype(np.float64)
    _report(f"matmul {m} x {n} x {k}", kernel, product, exact)


def launch_add(kernel: TunedKernel, device: Device, size: int) -> None:
    """The sum of two vectors, which nobody has tuned."""
    import numpy as np

    x = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    total = device.empty(x.shape, "f32")
    kernel[_grid("cdiv(size, BLOCK_SIZE)", size=size)](device.array(x), device.array(x), total, size, BLOCK_SIZE=1024)
    _report(f"vector add {size}", kernel, total, 2 * x.astype(np.float64))


def _grid(text: str, **sizes: int) -> Callable[[Mapping[str, Any]], tuple[int]]:
    """A grid of one axis as an expression over the sizes and the compile-time values of the launch."""
    from deuteron.tuner import Expression  # lazy: help starts without the tuner

    programs = Expression.parse(text)

    def grid(meta: Mapping[str, Any]) -> tuple[int]:
        names = {name: meta[name] for name in programs.names if name not in sizes}
        return (programs.evaluate_int({**sizes, **names}),)

    return grid


def _report(what: str, kernel: TunedKernel, result: DeviceArray, exact: np.ndarray) -> None:
    """Print why the configuration was chosen, after checking what it computed."""
    import numpy as np

    error = float(np.abs(result.to_numpy().astype(np.float64) - exact).max() / np.abs(exact).max())
    if not error <= _TOLERANCE[result.dtype]:
        raise CommandError(f"{what}: error {error:.1e} is above {_TOLERANCE[result.dtype]:.0e}")
    answer = kernel.last_answer
    if answer is None:
        raise CommandError(f"{what}: the launch looked nothing up")
    print(f"{what}: {answer.match}: {answer.reason}")
    chosen = format_config(answer.config) if answer.config else "the values in the call"
    print(f"    {chosen}; largest error against float64 {error:.0e}")


if __name__ == "__main__":
    from deuteron.compiler.errors import DeuteronError

    try:
        main(*sys.argv[1:])
    except DeuteronError as failure:
        sys.exit(f"error: {failure}")
