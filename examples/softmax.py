"""Fused softmax and its gradient: each row is read once and written once, if it fits one block.

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
    num_stages: tl.constexpr,  # of loops whose step is a number: here it changes no code
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


@triton.jit
def online_softmax_kernel(output_ptr, input_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    """A row longer than a block: the sum of exponentials is rescaled whenever a larger element is met. The first block
    stays in registers, the others are read twice."""
    input_ptr += tl.program_id(0).to(tl.int64) * n_cols
    output_ptr += tl.program_id(0).to(tl.int64) * n_cols
    first = tl.arange(0, BLOCK_SIZE)
    held = tl.load(input_ptr + first, mask=first < n_cols, other=-float("inf")).to(tl.float32)
    peak = tl.max(held, axis=0)
    total = tl.sum(tl.exp(held - peak), axis=0)
    for start in range(BLOCK_SIZE, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(input_ptr + columns, mask=columns < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), axis=0)
        peak = higher
    tl.store(output_ptr + first, tl.exp(held - peak) / total, mask=first < n_cols)
    for start in range(BLOCK_SIZE, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(input_ptr + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        tl.store(output_ptr + columns, tl.exp(x - peak) / total, mask=columns < n_cols)


@triton.jit
def softmax_backward_kernel(dx_ptr, dy_ptr, y_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    """dx = y * (dy - sum(dy * y)), a row a program; its first block stays in registers."""
    offset = tl.program_id(0).to(tl.int64) * n_cols
    first = tl.arange(0, BLOCK_SIZE)
    held_y = tl.load(y_ptr + offset + first, mask=first < n_cols, other=0.0).to(tl.float32)
    held_dy = tl.load(dy_ptr + offset + first, mask=first < n_cols, other=0.0).to(tl.float32)
    products = held_y * held_dy
    for start in range(BLOCK_SIZE, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        y = tl.load(y_ptr + offset + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offset + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        products += y * dy
    total = tl.sum(products, axis=0)
    tl.store(dx_ptr + offset + first, held_y * (held_dy - total), mask=first < n_cols)
    for start in range(BLOCK_SIZE, n_cols, BLOCK_SIZE):
        columns = start + tl.arange(0, BLOCK_SIZE)
        y = tl.load(y_ptr + offset + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offset + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offset + columns, y * (dy - total), mask=columns < n_cols)


#: Elements of the longest row that is one block.
LONGEST = 16384


def warps_for(block: int) -> int:
    """Up to 32 elements of a block for each thread."""
    return min(16, max(4, block // 1024))


def softmax(x, output, num_programs: int = 512, longest: int = LONGEST):
    """output = softmax of every row of x; both of shape [n_rows, n_cols], C order. Of rows beyond ``longest`` (a power
    of two) elements all but the first block is read twice."""
    n_rows, n_cols = x.shape
    block = min(longest, triton.next_power_of_2(n_cols))
    if block < n_cols:
        online_softmax_kernel[(n_rows,)](output, x, n_cols, BLOCK_SIZE=block, num_warps=warps_for(block))
    else:
        softmax_kernel[(min(num_programs, n_rows),)](
            output, x, n_cols, n_cols, n_rows, n_cols, BLOCK_SIZE=block, num_stages=2, num_warps=warps_for(block)
        )
    return output


def softmax_backward(dy, y, dx, longest: int = LONGEST):
    """dx = gradient of softmax for the output ``y`` and its gradient ``dy``; all [n_rows, n_cols], C order."""
    n_rows, n_cols = y.shape
    block = min(longest, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](dx, dy, y, n_cols, BLOCK_SIZE=block, num_warps=warps_for(block))
    return dx


def reference(x: np.ndarray) -> np.ndarray:
    """Softmax in float64."""
    shifted = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def reference_backward(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Its gradient in float64."""
    dy, y = dy.astype(np.float64), y.astype(np.float64)
    return y * (dy - (dy * y).sum(axis=1, keepdims=True))


def main(device: Device, shape: tuple[int, int] = (1823, 781)) -> None:
    """Softmax of a random matrix with rows that are no power of two: in one block, in several, and the gradient."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, *shape), dtype=np.float32)
    for longest in (LONGEST, 256):
        output = device.empty(shape)
        softmax(device.array(x), output, longest=longest)
        check("softmax", device.numpy(output), reference(x), tolerance=1e-6)
    dx = device.empty(shape)
    softmax_backward(device.array(dy), output, dx)
    check("softmax backward", device.numpy(dx), reference_backward(dy, device.numpy(output)), tolerance=1e-5)


if __name__ == "__main__":
    main(device_from_command_line())
