"""Tests that say ``device="cuda"``, on a machine without a GPU: PyTorch makes their arrays on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
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
    torch.cuda.is_bf16_supported = lambda including_emulation=True: tensor_core_generation >= (8, 0)


def told_of_an_h100() -> None:
    """PyTorch says that there is one H100, to libraries that choose kernels and configurations by the device."""
    properties = SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, warp_size=32, total_memory=80 << 30,
        max_threads_per_multi_processor=2048, L2_cache_size=50 << 20, shared_memory_per_block_optin=227 << 10,
    )  # fmt: skip
    answers = {
        "get_device_name": properties.name, "get_device_capability": (9, 0), "get_device_properties": properties,
        "current_device": 0, "device_count": 1, "synchronize": None, "is_available": True,
    }  # fmt: skip
    torch.cuda.device = torch.cuda.device_of = torch.cuda.stream = lambda *_: nullcontext()
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)


def _for_the_cpu(decorator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decorator)
    def decorate(*functions: Any, device_type: str, **options: Any) -> Any:  # it comes by place or as fwd or bwd
        return decorator(*functions, device_type="cpu", **options)

    return decorate
