"""Fused softmax: each row is read once and written once.

python examples/softmax.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,  # as in Triton; loops are not pipelined yet, so it changes no code
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float("inf"))
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx * output_row_stride
        output_ptrs = output_row_start_ptr + col_offsets
        tl.store(output_ptrs, softmax_output, mask=mask)


def softmax(x, output, num_programs: int = 512):
    """output = softmax of every row of x; both of shape [n_rows, n_cols], C order."""
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    warps = min(16, max(4, block // 256))
    softmax_kernel[(min(num_programs, n_rows),)](
        output, x, n_cols, n_cols, n_rows, n_cols, BLOCK_SIZE=block, num_stages=2, num_warps=warps
    )
    return output


def reference(x: np.ndarray) -> np.ndarray:
    """Softmax in float64."""
    shifted = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def main(device: Device, shape: tuple[int, int] = (1823, 781)) -> None:
    """Softmax of a random matrix with rows that are no power of two."""
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    output = device.empty(shape)
    softmax(device.array(x), output)
    check("softmax", device.numpy(output), reference(x), tolerance=1e-6)


if __name__ == "__main__":
    main(device_from_command_line())
