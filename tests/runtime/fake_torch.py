"""What launches ask of torch's tensors, without torch."""

from __future__ import annotations


class Dtype:
    """Told apart by identity, as torch's are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


FLOAT, HALF = Dtype("float32"), Dtype("float16")


class Tensor:
    """What launches ask of a tensor."""

    def __init__(self, address: int = 0x7F0000001000, dtype: Dtype = FLOAT, device: int = 0, elements: int = 1) -> None:
        self.address, self.dtype, self.device_index, self.elements = address, dtype, device, elements

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.device_index

    def numel(self) -> int:
        return self.elements


Tensor.__module__, Tensor.__qualname__ = "torch", "Tensor"


class Parameter(Tensor):
    """A subclass, as torch.nn.Parameter is."""


class Shifted(Tensor):
    """A subclass with an address of its own."""

    def data_ptr(self) -> int:
        return self.address + 16
