"""Root mean square normalisation, forward and backward: rows of any length, in blocks.

python examples/rms_norm.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def rms_norm_fwd(X, Y, W, Rstd, N, eps, BLOCK_SIZE: tl.constexpr):
    """A row a program: its first block stays in registers, the others are read twice."""
    row = tl.program_id(0)
    X += row.to(tl.int64) * N
    Y += row.to(tl.int64) * N
    first = tl.arange(0, BLOCK_SIZE)
    held = tl.load(X + first, mask=first < N, other=0.0).to(tl.float32)
    squares = held * held
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + first, mask=first < N, other=0.0)
    tl.store(Y + first, held * rstd * w, mask=first < N)
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=cols < N, other=0.0)
        tl.store(Y + cols, x * rstd * w, mask=cols < N)


@triton.jit
def scaled_gradient(DY, X, W, rstd, cols, N):
    """w dy and x_hat of some columns of a row."""
    x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    dy = tl.load(DY + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.load(W + cols, mask=cols < N, other=0.0) * dy, x * rstd


@triton.jit
def rms_norm_dx(DX, DY, X, W, Rstd, N, BLOCK_SIZE: tl.constexpr):
    """dx = rstd * (w dy - x_hat mean(w dy x_hat)), a row a program; its first block stays in registers."""
    row = tl.program_id(0)
    DX += row.to(tl.int64) * N
    DY += row.to(tl.int64) * N
    X += row.to(tl.int64) * N
    rstd = tl.load(Rstd + row)
    first = tl.arange(0, BLOCK_SIZE)
    held_wdy, held_x_hat = scaled_gradient(DY, X, W, rstd, first, N)
    _along = held_wdy * held_x_hat
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        wdy, x_hat = scaled_gradient(DY, X, W, rstd, off + tl.arange(0, BLOCK_SIZE), N)
        _along += wdy * x_hat
    along = tl.sum(_along, axis=0) / N
    tl.store(DX + first, rstd * (held_wdy - held_x_hat * along), mask=first < N)
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        wdy, x_hat = scaled_gradient(DY, X, W, rstd, cols, N)
        tl.store(DX + cols, rstd * (wdy - x_hat * along), mask=cols < N)


@triton.jit
def rms_norm_partials(DW, DY, X, Rstd, M, N, rows_each, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sums of dy x_hat over one group of rows; DW is [groups, N]."""
    group = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    end = tl.minimum((group + 1) * rows_each, M)
    for first in range(group * rows_each, end, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < end) & (cols[None, :] < N)
        tile = rows[:, None].to(tl.int64) * N + cols[None, :]
        rstd = tl.load(Rstd + rows, mask=rows < end, other=0.0)
        dy = tl.load(DY + tile, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + tile, mask=mask, other=0.0).to(tl.float32)
        dw += dy * x * rstd[:, None]
    tl.store(DW + group * N + cols, tl.sum(dw, axis=0), mask=cols < N)


@triton.jit
def sum_groups(Out, Partials, groups, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Out [N] = sum of the rows of Partials [groups, N]."""
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for first in range(0, groups, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < groups) & (cols[None, :] < N)
        total += tl.load(Partials + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(Out + cols, tl.sum(total, axis=0), mask=cols < N)


#: Elements of the longest block (a power of two).
LONGEST = 16384


def warps_for(block: int) -> int:
    """Up to 32 elements of a block for each thread."""
    return min(16, max(4, block // 1024))


def rms_norm(x, weight, y, rstd, eps: float = 1e-6, longest: int = LONGEST):
    """y = rows of x [M, N] over their root mean square, times weight [N]; rstd [M] is the inverse of the former."""
    rows, columns = x.shape
    block = min(longest, triton.next_power_of_2(columns))
    rms_norm_fwd[(rows,)](x, y, weight, rstd, columns, eps, BLOCK_SIZE=block, num_warps=warps_for(block))
    return y


def groups_of_rows(columns: int, programs: int = 512) -> int:
    """Into how many groups of rows the sums over rows are cut, so that there are about this many programs."""
    return max(1, programs // triton.cdiv(columns, 64))


def rms_norm_backward(dy, x, weight, rstd, dx, dweight, partials, longest: int = LONGEST):
    """dx [M, N] and dweight [N] for the gradient dy [M, N] of :func:`rms_norm`, whose rstd is used; ``partials``, f32
    [groups_of_rows(N), N], is scratch."""
    rows, columns = x.shape
    block = min(longest // 2, triton.next_power_of_2(columns))  # of two arrays
    rms_norm_dx[(rows,)](dx, dy, x, weight, rstd, columns, BLOCK_SIZE=block, num_warps=warps_for(block))
    groups = groups_of_rows(columns)
    across = triton.cdiv(columns, 64)
    rms_norm_partials[(across, groups)](
        partials, dy, x, rstd, rows, columns, triton.cdiv(rows, groups), BLOCK_M=16, BLOCK_N=64
    )
    sum_groups[(across,)](dweight, partials, groups, columns, BLOCK_M=64, BLOCK_N=64)
    return dx


def reference(x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """RMS normalisation in float64."""
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight


def reference_backward(dy: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float = 1e-6) -> dict[str, np.ndarray]:
    """Gradients in float64."""
    dy, x = dy.astype(np.float64), x.astype(np.float64)
    rstd = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)
    x_hat = x * rstd
    along = (weight * dy * x_hat).mean(axis=1, keepdims=True)
    return {"dx": rstd * (weight * dy - x_hat * along), "dweight": (dy * x_hat).sum(axis=0)}


def main(device: Device, shape: tuple[int, int] = (151, 1000)) -> None:
    """RMS norm of a random matrix, and its gradients."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, *shape), dtype=np.float32) * 2.3
    weight = rng.standard_normal(shape[1], dtype=np.float32)
    y, rstd = device.empty(shape), device.empty(shape[0])
    rms_norm(device.array(x), device.array(weight), y, rstd)
    check("rms norm", device.numpy(y), reference(x, weight), tolerance=1e-5)
    dx, dweight = device.empty(shape), device.empty(shape[1])
    partials = device.empty((groups_of_rows(shape[1]), shape[1]))
    rms_norm_backward(*(device.array(v) for v in (dy, x, weight)), rstd, dx, dweight, partials)
    wanted = reference_backward(dy, x, weight)
    for name, found in {"dx": dx, "dweight": dweight}.items():
        check(f"rms norm {name}", device.numpy(found), wanted[name], tolerance=1e-5)


if __name__ == "__main__":
    main(device_from_command_line())
