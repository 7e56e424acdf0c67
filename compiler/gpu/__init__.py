"""The GPU stage: layouts in the types, tensor cores, shared memory; from tile IR to what ``targets/simt`` lowers.

:mod:`.pipeline` and :mod:`.overlap` list the steps, which hand on what :mod:`.work` says. Here are also the operations
that exist from this stage on (:mod:`.ops`, :mod:`.asynchronous`), and what is about whole programs: what is tried next
where one does not fit (:mod:`.attempts`), and the numbers by which that and more is decided (:mod:`.estimates`). The
folders import each other in one direction: ``layouts`` from no other, ``streams`` and ``memory`` from ``layouts``,
``latency`` from all.
"""

from .memory.scratch import print_gpu
from .ops import ConvertLayout, Mma, VectorLoad, VectorStore
from .pipeline import STEPS, check_of, lower_to_gpu

__all__ = ["STEPS", "ConvertLayout", "Mma", "VectorLoad", "VectorStore", "lower_to_gpu", "print_gpu", "check_of"]
