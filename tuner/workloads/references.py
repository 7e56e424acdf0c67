"""What workloads must compute: NumPy in float64, written for reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ..errors import WorkloadError

if TYPE_CHECKING:
    import numpy as np

Tensors: TypeAlias = "Mapping[str, np.ndarray]"
Reference: TypeAlias = "Callable[[Tensors, Mapping[str, float]], dict[str, np.ndarray]]"

#: The name that asks for the interpreter target instead of a NumPy function.
INTERPRETER = "interpreter"

REFERENCES: dict[str, Reference] = {}


def reference(name: str) -> Callable[[Reference], Reference]:
    """Register a reference: ``(inputs as float64 by tensor name, scalars by name) -> outputs by tensor name``."""

    def register(function: Reference) -> Reference:
        REFERENCES[name] = function
        return function

    return register


def find_reference(name: str) -> Reference:
    """The registered reference of that name; raises :class:`WorkloadError`."""
    if name not in REFERENCES:
        raise WorkloadError(f"unknown reference {name!r}", hint=f"one of {', '.join([*REFERENCES, INTERPRETER])}")
    return REFERENCES[name]


@reference("vector_add")
def vector_add(tensors: Tensors, scalars: Mapping[str, float]) -> dict[str, np.ndarray]:
    """``x + y``: vectors (n) to ``output_ptr`` (n)."""
    return {"output_ptr": tensors["x_ptr"] + tensors["y_ptr"]}


@reference("softmax")
def softmax(tensors: Tensors, scalars: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Softmax over the rows of ``input_ptr`` (M, N), the row's maximum taken off first."""
    import numpy as np

    x = tensors["input_ptr"]
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return {"output_ptr": exponentials / exponentials.sum(axis=1, keepdims=True)}


@reference("layer_norm")
def layer_norm(tensors: Tensors, scalars: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Layer normalisation of the rows of ``x_ptr`` (M, N) with weight and bias (N) and the scalar ``eps``; also mean
    (M) and 1/standard deviation (M)."""
    import numpy as np

    x = tensors["x_ptr"]
    mean = x.mean(axis=1)
    rstd = 1 / np.sqrt(x.var(axis=1) + scalars["eps"])
    normal = (x - mean[:, None]) * rstd[:, None]
    y = normal * tensors["weight_ptr"] + tensors["bias_ptr"]
    return {"y_ptr": y, "mean_ptr": mean, "rstd_ptr": rstd}


@reference("matmul")
def matmul(tensors: Tensors, scalars: Mapping[str, float]) -> dict[str, np.ndarray]:
    """``a @ b``: (M, K) and (K, N) to ``c_ptr`` (M, N)."""
    return {"c_ptr": tensors["a_ptr"] @ tensors["b_ptr"]}
