"""What programs use beside kernels, under the names of Triton's package ``triton.tools``."""

from __future__ import annotations


def set_allocator(allocator: object) -> None:
    """Accepted as ``triton.set_allocator``, without effect: ``allocator`` is never called.

    Triton's kernels keep the descriptors that they make in memory of the device, which it allocates. Kernels of
    deuteron need none.
    """
