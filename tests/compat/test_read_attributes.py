"""What PyTorch and other libraries read of kernels, of what decorates them and of what is compiled, with the types that
Triton 3.6 has there."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

import pytest

import deuteron.language as tl
from deuteron.compat import triton
from deuteron.compat.triton.backends.compiler import GPUTarget
from deuteron.compat.triton.compiler import ASTSource
from deuteron.compat.triton.runtime import driver
from deuteron.compat.triton.runtime.autotuner import Autotuner, Config, Heuristics
from deuteron.compat.triton.runtime.jit import JITFunction

NONE = type(None)


@triton.jit
def plain(x, n: tl.int32, BLOCK: tl.constexpr = 2):
    tl.store(x + tl.arange(0, BLOCK), n)


tuned = triton.autotune([Config({"BLOCK": 2}, num_warps=2)], key=["n"])(plain)
derived = triton.heuristics({"BLOCK": lambda arguments: 2})(plain)
compiled = triton.compile(ASTSource(plain, {"x": "*i32", "n": "i32"}, {"BLOCK": 2}), target=GPUTarget("cuda", 90, 32))

TABLE: dict[str, tuple[object, dict[str, type | tuple[type, ...]]]] = {
    "kernel": (
        plain,
        {
            **dict.fromkeys(("__name__", "__qualname__", "__module__", "module", "_fn_name", "src", "cache_key"), str),
            **dict.fromkeys(("arg_names", "params", "constexprs", "pre_run_hooks", "raw_src"), list),
            **dict.fromkeys(("do_not_specialize", "do_not_specialize_on_alignment"), (list, tuple)),
            **dict.fromkeys(("__globals__", "used_global_vals"), dict),
            "__doc__": (str, NONE),
            "device_caches": Mapping,
            "debug": (bool, NONE),
            "noinline": (bool, NONE),
            "version": object,
            "launch_metadata": object,
            "signature": inspect.Signature,
            "starting_line_number": int,
        },
    ),
    "parameter": (
        plain.params[1],
        {
            **dict.fromkeys(("name", "annotation", "annotation_type"), str),
            **dict.fromkeys(("is_constexpr", "is_const", "do_not_specialize", "do_not_specialize_on_alignment"), bool),
            "num": int,
            "default": object,
        },
    ),
    "autotuner": (
        tuned,
        {
            **dict.fromkeys(("configs", "keys", "arg_names", "reset_to_zero", "restore_value"), list),
            **dict.fromkeys(
                ("user_defined_pre_hook", "user_defined_post_hook", "use_cuda_graph", "cache_results"), bool
            ),
            **dict.fromkeys(("perf_model", "early_config_prune", "num_warmups", "num_reps"), NONE),
            "cache": dict,
            "configs_top_k": float,
            "fn": JITFunction,
        },
    ),
    "heuristics": (derived, {"fn": JITFunction, "values": dict, "arg_names": list}),
    "configuration": (
        tuned.configs[0],
        {
            **dict.fromkeys(("num_warps", "num_stages", "num_ctas"), int),
            **dict.fromkeys(("maxnreg", "pre_hook", "ir_override"), NONE),
            "kwargs": dict,
        },
    ),
    "compiled": (
        compiled,
        {**dict.fromkeys(("hash", "name"), str), "asm": Mapping, "shared": int, "n_regs": int, "n_spills": int},
    ),
    "metadata": (
        compiled.metadata,
        {**dict.fromkeys(("num_warps", "num_stages", "num_ctas", "shared"), int), "name": str, "hash": str},
    ),
}


@pytest.mark.parametrize("what", TABLE)
def test_attributes(what: str):
    value, wanted = TABLE[what]
    found = {name: type(getattr(value, name, "is missing")) for name in wanted}
    assert {n: kind for n, kind in found.items() if not issubclass(kind, wanted[n]) or not hasattr(value, n)} == {}


CALLED = {
    "kernel": ("run", "warmup", "repr", "preload", "add_pre_run_hook", "is_gluon", "parse", "get_capture_scope"),
    "autotuner": ("run", "warmup", "prune_configs", "pre_hook", "post_hook", "_bench"),
    "heuristics": ("run", "warmup"),
    "configuration": ("all_kwargs",),
    "compiled": ("run", "_init_handles"),
}


@pytest.mark.parametrize("what", CALLED)
def test_methods(what: str):
    assert [name for name in CALLED[what] if not callable(getattr(TABLE[what][0], name, None))] == []


def test_what_some_of_them_say():
    assert plain.module == __name__ and plain._fn_name == f"{__name__}.plain" and not plain.is_gluon()
    assert isinstance(plain.parse().body[0], ast.FunctionDef)
    assert callable(driver.active.get_benchmarker()) and callable(driver.active.get_current_target)
    assert "ir_override" not in tuned.configs[0].all_kwargs()


PARAMETERS = {
    Autotuner: "fn arg_names configs key reset_to_zero restore_value pre_hook post_hook prune_configs_by warmup rep "
    "use_cuda_graph do_bench cache_results",
    Heuristics: "fn arg_names values",
    Config: "kwargs num_warps num_stages num_ctas maxnreg pre_hook ir_override",
    triton.autotune: "configs key prune_configs_by reset_to_zero restore_value pre_hook post_hook warmup rep "
    "use_cuda_graph do_bench cache_results",
    triton.testing.do_bench: "fn warmup rep grad_to_none quantiles return_mode",
    triton.testing.do_bench_cudagraph: "fn rep grad_to_none quantiles return_mode",
}


@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__name__)
def test_parameters_in_their_order(function):
    wanted = PARAMETERS[function].split()
    assert list(inspect.signature(function).parameters)[: len(wanted)] == wanted


def test_what_pytorch_changes_of_configurations_stays_with_them():
    """It makes another autotuner of one, and calls ``top_k`` by the attribute's name."""
    prune = {"perf_model": lambda **arguments: 1.0, "early_config_prune": None, "configs_top_k": 2}
    again = triton.autotune([Config({"BLOCK": 2 << i}) for i in range(4)], key=[], prune_configs_by=prune)(plain)
    assert again.configs_top_k == 2 and len(again.prune([None, 3], {})) == 2
