"""Layer normalisation, forward and backward: rows of any length, in blocks.

python examples/layer_norm.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, check, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def layer_norm_fwd(
    X,  # input
    Y,  # output
    W,  # weights
    B,  # biases
    Mean,
    Rstd,
    stride,  # elements from one row to the next
    N,  # columns
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    # A row a program: its first block stays in registers, the others are read three times.
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    first = tl.arange(0, BLOCK_SIZE)
    held = tl.load(X + first, mask=first < N, other=0.0).to(tl.float32)
    _mean = held
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        _mean += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    held = tl.where(first < N, held - mean, 0.0)
    _var = held * held
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + first, mask=first < N)
    b = tl.load(B + first, mask=first < N)
    tl.store(Y + first, held * rstd * w + b, mask=first < N)
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def scaled_gradient(DY, X, W, mean, rstd, cols, N):
    """w dy and x_hat of some columns of a row."""
    mask = cols < N
    x_hat = (tl.load(X + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
    return tl.load(W + cols, mask=mask, other=0.0).to(tl.float32) * tl.load(DY + cols, mask=mask, other=0.0), x_hat


@triton.jit
def layer_norm_dx(DX, DY, X, W, Mean, Rstd, N, BLOCK_SIZE: tl.constexpr):
    """dx = rstd * (w dy - mean(w dy) - x_hat mean(w dy x_hat)), a row a program; its first block stays in registers."""
    row = tl.program_id(0)
    DX += row.to(tl.int64) * N
    DY += row.to(tl.int64) * N
    X += row.to(tl.int64) * N
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    first = tl.arange(0, BLOCK_SIZE)
    held_wdy, held_x_hat = scaled_gradient(DY, X, W, mean, rstd, first, N)
    _along = held_wdy * held_x_hat
    _sum = held_wdy
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        wdy, x_hat = scaled_gradient(DY, X, W, mean, rstd, off + tl.arange(0, BLOCK_SIZE), N)
        _along += wdy * x_hat
        _sum += wdy
    along = tl.sum(_along, axis=0) / N
    average = tl.sum(_sum, axis=0) / N
    tl.store(DX + first, rstd * (held_wdy - average - held_x_hat * along), mask=first < N)
    for off in range(BLOCK_SIZE, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        wdy, x_hat = scaled_gradient(DY, X, W, mean, rstd, cols, N)
        tl.store(DX + cols, rstd * (wdy - average - x_hat * along), mask=cols < N)


@triton.jit
def layer_norm_partials(
    DW, DB, DY, X, Mean, Rstd, M, N, rows_each, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Sums of dy x_hat and of dy over one group of rows; DW and DB are [groups, N]."""
    group = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    db = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    end = tl.minimum((group + 1) * rows_each, M)
    for first in range(group * rows_each, end, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < end) & (cols[None, :] < N)
        tile = rows[:, None].to(tl.int64) * N + cols[None, :]
        mean = tl.load(Mean + rows, mask=rows < end, other=0.0)
        rstd = tl.load(Rstd + rows, mask=rows < end, other=0.0)
        dy = tl.load(DY + tile, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + tile, mask=mask, other=0.0).to(tl.float32)
        dw += dy * (x - mean[:, None]) * rstd[:, None]
        db += dy
    tl.store(DW + group * N + cols, tl.sum(dw, axis=0), mask=cols < N)
    tl.store(DB + group * N + cols, tl.sum(db, axis=0), mask=cols < N)


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


def layer_norm(x, weight, bias, y, mean, rstd, eps: float = 1e-5, longest: int = LONGEST):
    """y = normalised rows of x [M, N] times weight [N] plus bias [N]; also the row statistics [M]."""
    rows, columns = x.shape
    block = min(longest, triton.next_power_of_2(columns))
    layer_norm_fwd[(rows,)](
        x, y, weight, bias, mean, rstd, columns, columns, eps, BLOCK_SIZE=block, num_warps=warps_for(block)
    )
    return y


def groups_of_rows(columns: int, programs: int = 512) -> int:
    """Into how many groups of rows the sums over rows are cut, so that there are about this many programs."""
    return max(1, programs // triton.cdiv(columns, 64))


def layer_norm_backward(dy, x, weight, mean, rstd, dx, dweight, dbias, partials, longest: int = LONGEST):
    """dx [M, N], dweight [N] and dbias [N] for the gradient dy [M, N] of :func:`layer_norm`, whose mean and rstd are
    used; ``partials``, two arrays f32 [groups_of_rows(N), N], are scratch."""
    rows, columns = x.shape
    block = min(longest // 2, triton.next_power_of_2(columns))  # of two arrays
    layer_norm_dx[(rows,)](dx, dy, x, weight, mean, rstd, columns, BLOCK_SIZE=block, num_warps=warps_for(block))
    groups = groups_of_rows(columns)
    across = triton.cdiv(columns, 64)
    layer_norm_partials[(across, groups)](
        partials[0], partials[1], dy, x, mean, rstd, rows, columns, triton.cdiv(rows, groups), BLOCK_M=16, BLOCK_N=64
    )
    for total, parts in ((dweight, partials[0]), (dbias, partials[1])):
        sum_groups[(across,)](total, parts, groups, columns, BLOCK_M=64, BLOCK_N=64)
    return dx


def reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Layer normalisation in float64."""
    x = x.astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(x.var(axis=1, keepdims=True) + eps) * weight + bias


def reference_backward(dy: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float = 1e-5) -> dict[str, np.ndarray]:
    """Gradients in float64."""
    dy, x = dy.astype(np.float64), x.astype(np.float64)
    rstd = 1 / np.sqrt(x.var(axis=1, keepdims=True) + eps)
    x_hat = (x - x.mean(axis=1, keepdims=True)) * rstd
    wdy = weight * dy
    along = (wdy * x_hat).mean(axis=1, keepdims=True)
    dx = rstd * (wdy - wdy.mean(axis=1, keepdims=True) - x_hat * along)
    return {"dx": dx, "dweight": (dy * x_hat).sum(axis=0), "dbias": dy.sum(axis=0)}


def main(device: Device, shape: tuple[int, int] = (151, 1000)) -> None:
    """Layer norm of a random matrix, and its gradients."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32) * 2.3 - 0.5
    weight, bias = (rng.standard_normal(shape[1], dtype=np.float32) for _ in range(2))
    y, mean, rstd = device.empty(shape), device.empty(shape[0]), device.empty(shape[0])
    layer_norm(*(device.array(v) for v in (x, weight, bias)), y, mean, rstd)
    check("layer norm", device.numpy(y), reference(x, weight, bias), tolerance=1e-5)
    check("its means", device.numpy(mean), x.astype(np.float64).mean(axis=1), tolerance=1e-5)
    dy = rng.standard_normal(shape, dtype=np.float32)
    dx, dweight, dbias = device.empty(shape), device.empty(shape[1]), device.empty(shape[1])
    partials = [device.empty((groups_of_rows(shape[1]), shape[1])) for _ in range(2)]
    inputs = (device.array(v) for v in (dy, x, weight))
    layer_norm_backward(*inputs, mean, rstd, dx, dweight, dbias, partials)
    wanted = reference_backward(dy, x, weight)
    for name, found in {"dx": dx, "dweight": dweight, "dbias": dbias}.items():
        check(f"layer norm {name}", device.numpy(found), wanted[name], tolerance=1e-5)


if __name__ == "__main__":
    main(device_from_command_line())
