"""Printing from a kernel, and stepping through one in a debugger.

python examples/debugging.py                        device_print from the compiled kernel
TRITON_INTERPRET=1 python examples/debugging.py     stops in pdb inside the kernel: type p x, n, c
"""

import numpy as np
from harness import Device, device_from_command_line

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import knobs


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    tl.static_print(f"BLOCK_SIZE:{BLOCK_SIZE}")
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    if pid == 1:
        tl.device_print("pid", pid)
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


@triton.jit
def stepping_kernel(x_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    import pdb

    pdb.set_trace()
    tl.store(output_ptr + offsets, x * 2, mask=mask)


def main(device: Device) -> None:
    """Run the kernel that prints, and under the interpreter the one that stops."""
    x = np.arange(16, dtype=np.float32)
    output = device.empty(16)
    add_kernel[(2,)](device.array(x), device.array(x), output, 16, BLOCK_SIZE=8)
    print(device.numpy(output))
    if knobs.interpret.get():
        stepping_kernel[(1,)](x, device.numpy(output), 16, BLOCK_SIZE=16)


if __name__ == "__main__":
    main(device_from_command_line())
