"""What programs ask of Triton's driver for NVIDIA's GPUs."""

from __future__ import annotations

from deuteron.compat.triton.runtime.driver import ActiveDriver as CudaDriver
from deuteron.compat.triton.runtime.driver import DeviceFacts
from deuteron.compiler import get_device

__all__ = ["CudaDriver", "CudaUtils"]


class CudaUtils(DeviceFacts):
    """Facts of GPUs. Nothing is compiled for it, unlike in Triton; what it finds out is whether the driver is there.

    Raises:
        DeviceError: there is no GPU, or no driver for it.
    """

    def __init__(self) -> None:
        get_device("cuda:0")
