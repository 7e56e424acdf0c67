"""Tests that say ``device="cuda"``, on a machine without a GPU: PyTorch makes their arrays on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CudaOnCpu(TorchFunctionMode):
    """While it is entered, devices called cuda are the CPU wherever a function of PyTorch is told one."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function with the CPU for cuda; ``x.cuda()`` is ``x``."""
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})


def on_cpu(value: Any) -> Any:
    """The CPU for a CUDA device, and everything else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def autocast_on_cpu(tensor_core_generation: tuple[int, int] = (8, 0)) -> None:
    """``torch.autocast("cuda")`` is the CPU's with the same dtype, and there is a device of compute capability 8.0."""
    original = torch.autocast

    class Autocast(original):  # type: ignore[misc, valid-type]
        def __init__(self, device_type: str, dtype: torch.dtype | None = None, **options: Any) -> None:
            if device_type == "cuda":
                device_type, dtype = "cpu", dtype or torch.float16
            super().__init__(device_type, dtype, **options)

    torch.autocast = torch.amp.autocast = Autocast  # type: ignore[misc, assignment]
    for name in ("custom_fwd", "custom_bwd"):
        setattr(torch.amp, name, _for_the_cpu(getattr(torch.amp, name)))
    torch.cuda.get_device_capability = lambda device=None: tensor_core_generation


def _for_the_cpu(decorator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decorator)
    def decorate(function: Any = None, *, device_type: str, **options: Any) -> Any:
        return decorator(function, device_type="cpu", **options)

    return decorate
