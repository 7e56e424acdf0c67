"""The GPU stage: layouts in the types, tensor cores, shared memory; from tile IR to what ``targets/simt`` lowers."""

from .ops import ConvertLayout, Mma, VectorLoad, VectorStore
from .pipeline import lower_to_gpu

__all__ = ["ConvertLayout", "Mma", "VectorLoad", "VectorStore", "lower_to_gpu"]
