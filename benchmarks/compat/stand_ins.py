"""What Triton's tests import before they test anything, and the alias lacks.

A test file is one module: one missing name would lose all of its cases. What is supplied here is empty, so a case that
uses it fails; the names that were supplied are part of the result.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from kernel_parser import run_parser


class Missing:
    """Stands for an object that the alias lacks: it can be imported, and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> Missing:
        """As a decorator it takes a class or function away, so that the file can be imported."""
        return self

    def __repr__(self) -> str:
        return f"<{self._name}, which does not exist>"


class MissingError(Exception):
    """Stands for an error class that the alias lacks."""


#: Modules and the names that module-level statements of the tests take from them.
WANTED = {
    "triton.knobs": "CompileTimes compilation runtime cache base_knobs",
    "triton._utils": "canonicalize_dtype",
    "triton.compiler.errors": "CompilationError CompileTimeAssertionFailure",
    "triton.compiler.code_generator": "flatten_values_to_ir",
    "triton.runtime.jit": "MockTensor JITCallable JITFunction TensorWrapper reinterpret get_device_key "
    "type_canonicalisation_dict",
    "triton.runtime.errors": "InterpreterError",
    "triton.runtime.cache": "FileCacheManager RemoteCacheManager",
    "triton.runtime.interpreter": "_implicit_cvt",
    "triton.runtime.build": "compile_module_from_src",
    "triton.runtime._allocation": "NullAllocator",
    "triton.language.core": "builtin constexpr_type",
    "triton.language.target_info": "current_target",
    "triton.compiler": "ASTSource IRSource make_backend CompiledKernel",
    "triton.tools.disasm": "extract",
    "triton.tools.ragged_tma": "create_ragged_descriptor atomic_add_ragged load_ragged store_ragged",
    "triton._filecheck": "run_filecheck run_filecheck_test filecheck_test run_parser",
    "triton._C": "",
    "triton._C.libtriton": "ir passes llvm nvidia native_specialize_impl",
    "triton.backends.driver": "GPUDriver expand_signature wrap_handle_tensordesc_impl",
    "triton.experimental.gluon": "jit",
    "triton.experimental.gluon.language": "",
    "triton.experimental.gluon.language.nvidia": "",
    "triton.experimental.gluon.language.nvidia.blackwell": "clc",
    "triton.experimental.gluon.language.nvidia.hopper": "mbarrier",
    "triton.profiler.hooks.hook": "HookManager",
    "triton.profiler.hooks.instrumentation": "InstrumentationHook",
    "triton.profiler.metric": "transform_tensor_metrics",
    "triton": "must_use_result aggregate TritonError",
}  # fmt: skip


#: Triton's names of element types in signatures, a table that the tests' own helpers read: it works.
_SHORT = {f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_SHORT |= {"bool": "i1", "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16"}
_SHORT |= {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}
_MADE = {"triton.runtime.jit.type_canonicalisation_dict": _SHORT, "triton._filecheck.run_parser": run_parser}


def supply() -> list[str]:
    """Put an empty stand-in in every place that has nothing, and say which those are."""
    supplied = []
    for module_name, names in WANTED.items():
        module = _module(module_name)
        if module is None:
            module = ModuleType(module_name)
            sys.modules[module_name] = module
            parent, _, attribute = module_name.rpartition(".")
            setattr(_module(parent), attribute, module)
            supplied.append(module_name)
        for name in names.split():
            if not hasattr(module, name):
                error = name.endswith(("Error", "Failure"))
                full = f"{module_name}.{name}"
                setattr(module, name, _MADE.get(full, MissingError if error else Missing(full)))
                supplied.append(f"{module_name}.{name}")
    return supplied


#: What :func:`adapt` changes.
ADAPTED = "triton._internal_testing.torch_dtype_name"


def adapt(helpers: ModuleType) -> None:
    """Have the tests' own helpers read the dtype of a reinterpreted array, which is a text here; processes that they
    start pass over the wait for a GPU that is not there."""
    names = {short: name for name, short in _SHORT.items()}
    theirs = helpers.torch_dtype_name
    if not helpers.torch.cuda.is_available():
        helpers.torch.cuda.synchronize = lambda device=None: None
    helpers.torch_dtype_name = lambda dtype: names[dtype] if isinstance(dtype, str) else theirs(dtype)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
