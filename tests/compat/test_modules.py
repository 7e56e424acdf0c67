"""Triton's modules, and one object for each of ours under both names."""

from __future__ import annotations

#: What public libraries import from Triton besides its language: a scan of torch, SGLang, FlagGems, Liger-Kernel,
#: flash-linear-attention, unsloth, torchao, conch, cut-cross-entropy and bitsandbytes.
USED = {
    "triton": "__version__ autotune cdiv compile CompilationError Config constexpr_function heuristics jit JITFunction "
    "knobs KernelInterface language next_power_of_2 OutOfResources reinterpret runtime set_allocator TensorWrapper "
    "testing tools",
    "triton.backends": "backends",
    "triton.backends.compiler": "BaseBackend GPUTarget",
    "triton.backends.nvidia.compiler": "CUDABackend CUDAOptions PTXASError get_ptxas",
    "triton.backends.nvidia.driver": "CudaDriver CudaUtils",
    "triton.compiler": "ASTSource IRSource CompiledKernel compile CompilationError make_backend",
    "triton.compiler.compiler": "ASTSource CompiledKernel make_backend",
    "triton.compiler.errors": "CompilationError",
    "triton.errors": "TritonError",
    "triton.knobs": "HookChain autotuning cache compilation language nvidia propagate_env proton runtime",
    "triton.language.core": "CONSTEXPR_0 _unwrap_if_constexpr dtype tensor view",
    "triton.language.extra": "libdevice cuda",
    "triton.language.extra.cuda": "libdevice",
    "triton.language.extra.cuda.gdc": "gdc_launch_dependents gdc_wait",
    "triton.language.extra.cuda.libdevice": "pow rsqrt tanh",
    "triton.language.extra.cuda.utils": "globaltimer num_threads num_warps smid",
    "triton.language.extra.libdevice": "pow rsqrt tanh",
    "triton.language.math": "rsqrt exp log2",
    "triton.language.standard": "_log2 sum zeros_like",
    "triton.profiler": "start finalize scope",
    "triton.profiler.hooks": "LaunchHook",
    "triton.profiler.hooks.launch": "COMPUTE_METADATA_SCOPE_NAME LaunchHook",
    "triton.profiler.language": "enter_scope exit_scope scope",
    "triton.profiler.profile": "start activate deactivate finalize profile DEFAULT_PROFILE_NAME",
    "triton.profiler.proton": "main",
    "triton.profiler.scope": "scope cpu_timed_scope enter_scope exit_scope",
    "triton.profiler.state": "state COMPUTE_METADATA_SCOPE_NAME COMPUTE_METADATA_SCOPE_PREFIX",
    "triton.profiler.viewer": "main",
    "triton.runtime": "autotuner driver Autotuner Heuristics JITFunction OutOfResources",
    "triton.runtime.autotuner": "Autotuner autotune Config Heuristics OutOfResources PTXASError driver knobs "
    "get_cache_invalidating_env_vars get_cache_manager triton_key",
    "triton.runtime.cache": "FileCacheManager get_cache_manager knobs triton_key",
    "triton.runtime.driver": "driver",
    "triton.runtime.errors": "InterpreterError OutOfResources PTXASError",
    "triton.runtime.jit": "ConstexprFunction constexpr_function jit JITCallable JITFunction KernelInterface "
    "reinterpret TensorWrapper",
    "triton.testing": "assert_close Benchmark do_bench get_dram_gbps get_max_simd_tflops get_max_tensorcore_tflops "
    "nvsmi perf_report",
    "triton.tools.tensor_descriptor": "TensorDescriptor",
}


def test_what_libraries_import_is_there(program):
    program(
        f"import importlib\nfor module, names in {USED!r}.items():\n"
        "    found = importlib.import_module(module)\n"
        "    for name in names.split():\n"
        "        exec(f'from {module} import {name}')\n"
    )


def test_variables_that_decide_what_is_compiled(program):
    """Autotuners of libraries store their choices under them."""
    assert (
        program(
            "import os\n"
            "from triton.runtime.autotuner import get_cache_invalidating_env_vars\n"
            "for name in ('TRITON_F32_DEFAULT', 'DEUTERON_F32_DEFAULT', 'TRITON_PRINT_AUTOTUNING'):\n"
            "    os.environ.pop(name, None)\n"
            "before = get_cache_invalidating_env_vars()\n"
            "os.environ['TRITON_F32_DEFAULT'] = 'ieee'\n"
            "os.environ['TRITON_PRINT_AUTOTUNING'] = '1'\n"
            "added = set(get_cache_invalidating_env_vars().items()) - set(before.items())\n"
            "print(sorted(added))\n"
        ).strip()
        == "[('TRITON_F32_DEFAULT', 'ieee')]"
    )


def test_a_module_is_one_object_under_both_names(program):
    printed = program(
        """
import sys, triton, triton.profiler.viewer, triton.language.extra.cuda.libdevice, triton.runtime.driver
import deuteron.compat.triton, deuteron.profiler.viewer, deuteron.language
import triton.compiler.compiler as compiler
assert triton is deuteron.compat.triton and triton.language is deuteron.language
assert triton.profiler.viewer is deuteron.profiler.viewer
assert triton.jit is deuteron.jit and triton.JITFunction is deuteron.JITFunction
assert compiler is sys.modules["deuteron.compat.triton.compiler.compiler"]
twice = {}
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None) and name.partition(".")[0] in ("triton", "deuteron"):
        twice.setdefault(module.__file__, set()).add(id(module))
        assert module.__spec__.name == module.__name__, (name, module.__spec__)
assert all(len(objects) == 1 for objects in twice.values())
print(len(twice), triton.runtime.driver.active.get_current_device())
"""
    )
    assert int(printed.split()[0]) > 50


def test_state_of_the_profiler_is_kept_once(program):
    """A submodule that were imported a second time would hold its own."""
    program(
        """
import deuteron.profiler.mode as ours
import triton.profiler.mode as theirs
import triton.profiler as proton
assert ours is theirs and proton.mode is ours
"""
    )


def test_modules_of_the_profiler_hide_no_class_of_their_name(program):
    """``triton.profiler.scope`` is a module in import statements and a class as an attribute, as others are."""
    program(
        """
import sys
import triton.profiler as proton
from triton.profiler.state import state
from triton.profiler.scope import scope
import triton.profiler.hooks.launch as launch
import triton.profiler.scope, triton.profiler.state, triton.profiler.proton
import triton.profiler.profile
assert proton.state is state and proton.scope is scope and isinstance(state, type)
assert proton.profile is not sys.modules["triton.profiler.profile"] and callable(proton.profile)
import deuteron.profiler.states, deuteron.profiler
assert sys.modules["triton.profiler.state"] is deuteron.profiler.states
assert deuteron.profiler.scope is scope
assert launch is sys.modules["deuteron.profiler.hooks.launch"]
"""
    )


def test_modules_run_as_programs_under_triton_s_name(program):
    """What ``python -m triton.profiler.proton`` looks up, in a process that has the alias."""
    printed = program(
        """
import runpy, sys
for module, option in (("triton.profiler.proton", "-h"), ("triton.profiler.viewer", "-h")):
    sys.argv = [module, option]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert end.code == 0, end.code
"""
    )
    assert "usage: proton " in printed and "usage: proton-viewer " in printed


def test_settings_of_an_area_are_listed_with_their_variables(program):
    """As the fixtures of Triton's tests read them, to have the environment without them."""
    program(
        """
import triton
found = {name: setting.key for name, setting in triton.knobs.proton.knob_descriptors.items()}
assert set(found) == set(triton.knobs.proton.knobs), found
assert all(key.startswith(("DEUTERON_", "TRITON_")) for key in found.values()), found
"""
    )


def test_arrays_that_are_only_said_to_be_passed(program):
    program(
        """
import base64, ml_dtypes, numpy as np, triton, triton.language as tl
from triton.runtime import _allocation, autotuner, cache
from triton.runtime.jit import MockTensor

@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

made = copy.warmup(triton.MockTensor(np.dtype("float16")), MockTensor(tl.float32, (4, 3, 2)), "i32", BLOCK=32)
x, out = np.arange(16, dtype=np.float16), np.zeros(16, np.float32)
assert copy[(1,)](x, out, 7, BLOCK=32).hash == made.hash and out.tolist() == [*range(7), *[0] * 9]
whole = np.zeros((4, 3, 2))
assert MockTensor(tl.float32, whole.shape).stride() == tuple(s // whole.itemsize for s in whole.strides)
assert MockTensor.wrap_dtype(5) == 5 and MockTensor(tl.int8).data_ptr() == 0

assert cache._base32("00ff10") == base64.b32encode(b"\\x00\\xff\\x10").decode().rstrip("=")
assert autotuner.JITFunction is triton.JITFunction and autotuner.get_cache_manager is cache.get_cache_manager
assert triton.runtime.errors.TritonError is triton.compiler.errors.TritonError is triton.TritonError
try:
    _allocation.NullAllocator()(16, 8, None)
except triton.TritonError as error:
    assert "set_allocator" in error.hint
_allocation.set_allocator(_allocation.NullAllocator())
"""
    )


#: What is not there -> what the error says.
MISSING = {
    "from triton.experimental import gluon": "does not implement triton.experimental.gluon",
    "import triton.experimental.gluon.language": "does not implement triton.experimental.gluon",
    "from triton._C.libtriton import ir": "cannot import name 'ir'",
    "from triton.tools import experimental_descriptor": "cannot import name",
    "triton.knobs.runtime.add_stages_inspection_hook": "deuteron compile --emit",
    "triton.knobs.compilation.override = True": "from their source only",
    "triton.runtime.driver.set_active(object())": "DEUTERON_DEVICE",
    "triton.Config({}, ir_override='k.ttgir')": "from their source only",
    "triton.compile('kernel.ttir')": "pass ASTSource",
    "triton.compiler.IRSource('kernel.ttir', None, None)": "does not read Triton's IR",
    "triton.compiler.make_backend(triton.backends.compiler.GPUTarget('hip', 'gfx942', 64))": "use cuda or cpu",
}


def test_what_is_missing_says_so(program):
    program(
        f"import triton\nfor statement, said in {MISSING!r}.items():\n"
        "    try:\n        exec(statement)\n"
        "    except Exception as error:\n        assert said in str(error), (statement, error)\n"
        "    else:\n        raise AssertionError(statement)\n"
    )


def test_settings_of_triton_that_are_not_here_say_what_to_use(program):
    program(
        """
import triton
areas = {
    "compilation": "override dump_ir_extract_di_local_variables store_binary_only enable_asan disable_line_info "
    "front_end_debugging instrumentation_mode",
    "nvidia": "cuobjdump nvdisasm ptxas_blackwell dump_nvptx dump_ptxas_log libcuda_path",
    "runtime": "add_stages_inspection_hook",
}
for area, names in areas.items():
    for name in names.split():
        try:
            getattr(getattr(triton.knobs, area), name)
        except AttributeError as error:
            assert f"has no {name!r} in deuteron: " in str(error), error
        else:
            raise AssertionError(name)
"""
    )


def test_plain_globals_are_read_where_the_setting_says_so(program):
    printed = program(
        """
import numpy as np, triton, triton.language as tl

width: tl.constexpr = 3

@triton.jit
def kernel(out):
    tl.store(out, width)

out = np.zeros(1, np.int32)
with triton.knobs.compilation.scope():
    triton.knobs.compilation.allow_non_constexpr_globals = True
    kernel[(1,)](out)
print(out[0], triton.knobs.compilation.allow_non_constexpr_globals)
"""
    )
    assert printed.split() == ["3", "False"]


def test_constants_of_the_standard_module_are_known_in_kernels(program):
    printed = program(
        """
import numpy as np, triton, triton.language as tl
from triton.language.standard import _log2

@triton.jit
def kernel(out, N: tl.constexpr, down: tl.constexpr = tl.core.CONSTEXPR_0):
    k: tl.constexpr = _log2(N)
    same: tl.constexpr = tl.standard._log2(N)
    tl.static_assert(k == same)
    tl.store(out, k + down)

out = np.zeros(1, np.int32)
kernel[(1,)](out, 64)
print(out[0])
"""
    )
    assert printed.strip() == "6"
