"""Search spaces found in kernels: what each compile-time parameter does is read off the IR that it changes.

:func:`infer_space` compiles a kernel for two values of a parameter and compares what comes out. Nothing is told from
names. :func:`with_inferred_space` puts the result into a workload.
"""

from .devices import device_of
from .infer import infer_space, with_inferred_space
from .inferred_space import FoundConstraint, InferredParameter, InferredSpace
from .subject import Subject, subject_of_kernel, subject_of_problem

__all__ = [
    "FoundConstraint",
    "InferredParameter",
    "InferredSpace",
    "Subject",
    "device_of",
    "infer_space",
    "subject_of_kernel",
    "subject_of_problem",
    "with_inferred_space",
]
