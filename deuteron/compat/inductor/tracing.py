"""What Dynamo, which traces programs for ``torch.compile``, has to know of deuteron's kernels and types."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import deuteron
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.gpu.arrays import Arrays
from deuteron.compiler.ir.core import Value
from deuteron.compiler.ir.parser import parse_function
from deuteron.compiler.ir.types import Pointer, Scalar
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype

from . import backends

#: Where PyTorch keeps what it knows of kernels in graphs.
KERNELS = "torch._higher_order_ops.triton_kernel_wrap"


def prepare(dynamo: ModuleType) -> None:
    """Have Dynamo, just imported, see kernels in the functions that it traces, and dtypes as constants. Without a
    device it would take both for Python."""
    backends.offer()
    constants: set[type] = getattr(dynamo.utils, "common_constant_types", set())
    constants.update((Scalar, Pointer))
    kernels: Any = importlib.import_module(KERNELS)
    if hasattr(kernels, "TensorAccesses"):
        kernels.identify_accessed_tensors = asking_deuteron(kernels, kernels.identify_accessed_tensors)


def asking_deuteron(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's question which arrays a kernel reads and writes, of which it seeks the answer in Triton's IR;
    ``otherwise`` answers, that all are written, where deuteron cannot tell."""

    def identify_accessed_tensors(kernel: Any, kwargs: Mapping[str, Any], descriptors: Mapping[str, Any]) -> Any:
        try:
            names = accesses(kernel, kwargs, descriptors)
        except (DeuteronError, TypeError):
            return otherwise(kernel, kwargs, descriptors)
        dependencies: Any = importlib.import_module("torch._inductor.dependencies")
        ordered: Any = importlib.import_module("torch.utils._ordered_set").OrderedSet
        read, written = (ordered(map(dependencies.StarDep, those)) for those in names)
        found = dependencies.ReadWrites(reads=read, writes=written, index_exprs=ordered())
        return kernels.TensorAccesses(read_writes=found, can_fuse_epilogue=False)

    return identify_accessed_tensors


def accesses(kernel: Any, arguments: Mapping[str, Any], descriptors: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The parameters whose arrays a kernel reads, and those it writes; of one with configurations, with the first.

    Raises:
        TypeError: that cannot be told, as of descriptors and of addresses in memory.
        DeuteronError: the kernel is wrong.
    """
    if descriptors:
        raise TypeError("descriptors in graphs are PyTorch's")
    chosen = kernel.configs[0].kwargs if getattr(kernel, "configs", None) else {}
    given = {**arguments, **chosen}
    types: dict[str, str] = {}
    constants: dict[str, object] = {}
    for parameter in kernel.base_fn.params:
        value = given.get(parameter.name)
        if parameter.is_constexpr or value is None:
            constants |= {parameter.name: value} if parameter.name in given else {}
        else:
            types[parameter.name] = _type(value)
    compiled = deuteron.compile(kernel.base_fn, types, constants, "cpu", stop_after="tile")
    function = parse_function(str(compiled.asm["tile"]))
    arrays = Arrays(function)
    names: dict[Value | None, str] = {p.value: p.value.name for p in function.parameters}
    sides = arrays.read(function), arrays.written(function)
    if None in sides[0] | sides[1]:
        raise TypeError("not every address comes from one parameter")
    return sorted(names[value] for value in sides[0]), sorted(names[value] for value in sides[1])


def _type(value: Any) -> str:
    """The type of an argument that stands in a graph: an array, a number, or a size that is not known yet."""
    if hasattr(value, "get_dtype"):  # of Inductor's own
        return f"*{canonical_dtype(value.get_dtype())}"
    if hasattr(value, "dtype"):
        return f"*{canonical_dtype(value.dtype)}"
    if isinstance(value, bool):
        return "i1"
    return "fp32" if isinstance(value, float) or type(value).__name__ == "SymFloat" else "i64"
