"""Dropout from a seed: the mask is never stored, the same seed gives it again.

python examples/dropout.py [--device cpu|cuda:0]
"""

import numpy as np
from harness import Device, device_from_command_line

import deuteron as triton
import deuteron.language as tl


@triton.jit
def seeded_dropout_kernel(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    random = tl.rand(seed, offsets)
    x_keep = random > p
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


def seeded_dropout(x, output, p: float, seed: int):
    """output = x with a share p of its elements zeroed and the others scaled by 1 / (1 - p)."""
    n_elements = x.shape[0]
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
    seeded_dropout_kernel[grid](x, output, n_elements, p, seed, BLOCK_SIZE=1024)
    return output


def main(device: Device, size: int = 100_000) -> None:
    """One seed twice, another seed once."""
    x = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    runs = []
    for seed in (123, 123, 512):
        output = device.empty(size)
        seeded_dropout(device.array(x), output, 0.5, seed)
        runs.append(device.numpy(output))
    first, again, other = runs
    share = np.mean(first == 0)
    kept = first != 0
    if not (np.array_equal(first, again) and not np.array_equal(first, other)):
        raise SystemExit("dropout: the seed does not decide the mask")
    if abs(share - 0.5) > 0.01 or not np.allclose(first[kept], 2 * x[kept], rtol=1e-6):
        raise SystemExit(f"dropout: {share:.3f} of the elements are zero, or the rest is not scaled")
    print(f"dropout: {share:.3f} of the elements are zero, the same ones for the same seed")


if __name__ == "__main__":
    main(device_from_command_line())
