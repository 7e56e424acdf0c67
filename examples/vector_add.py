"""Vector addition: the first kernel everybody writes.

python examples/vector_add.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


def add(x, y, output):
    """output = x + y for three arrays of one length, on the CPU or on a GPU."""
    n_elements = output.shape[0]
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


def main(device: Device, size: int = 98_432) -> None:
    """Add two random vectors and compare with NumPy."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(size, dtype=np.float32) for _ in range(2))
    output = device.empty(size)
    add(device.array(x), device.array(y), output)
    check("vector add", device.numpy(output), x.astype(np.float64) + y, tolerance=1e-6)


if __name__ == "__main__":
    main(device_from_command_line())
