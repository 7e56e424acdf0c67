"""The GPU stage: layouts in the types, tensor cores, shared memory; from tile IR to what ``targets/simt`` lowers."""

from .ops import ConvertLayout, Mma, VectorLoad, VectorStore
from .pipeline import STEPS, lower_to_gpu
from .scratch import print_gpu

__all__ = ["STEPS", "ConvertLayout", "Mma", "VectorLoad", "VectorStore", "lower_to_gpu", "print_gpu"]
