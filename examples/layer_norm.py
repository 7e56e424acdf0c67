"""Layer normalisation, forward: mean and variance of a row in one kernel, in blocks.

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
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        y = x_hat * w + b
        tl.store(Y + cols, y, mask=mask)


def layer_norm(x, weight, bias, y, mean, rstd, eps: float = 1e-5):
    """y = normalised rows of x [M, N] times weight [N] plus bias [N]; also the row statistics [M]."""
    rows, columns = x.shape
    block = min(4096, triton.next_power_of_2(columns))
    layer_norm_fwd[(rows,)](x, y, weight, bias, mean, rstd, columns, columns, eps, BLOCK_SIZE=block)
    return y


def reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """Layer normalisation in float64."""
    x = x.astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(x.var(axis=1, keepdims=True) + eps) * weight + bias


def main(device: Device, shape: tuple[int, int] = (151, 1000)) -> None:
    """Layer norm of a random matrix."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, dtype=np.float32) * 2.3 - 0.5
    weight, bias = (rng.standard_normal(shape[1], dtype=np.float32) for _ in range(2))
    y, mean, rstd = device.empty(shape), device.empty(shape[0]), device.empty(shape[0])
    layer_norm(*(device.array(v) for v in (x, weight, bias)), y, mean, rstd)
    check("layer norm", device.numpy(y), reference(x, weight, bias), tolerance=1e-5)
    check("its means", device.numpy(mean), x.astype(np.float64).mean(axis=1), tolerance=1e-5)


if __name__ == "__main__":
    main(device_from_command_line())
