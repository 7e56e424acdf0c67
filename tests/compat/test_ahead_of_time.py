"""``triton.compile`` with ASTSource and GPUTarget, and what kernels say about themselves."""

from __future__ import annotations

KERNEL = """
import inspect
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["out"])
def add(x, out, n, scale: tl.float32, BLOCK: tl.constexpr = 128):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)

SIGNATURE = {"x": "*fp32", "out": "*fp32", "n": "i32", "scale": "fp32", "BLOCK": "constexpr"}
"""


def test_source_for_a_gpu_gives_ptx(program):
    program(
        KERNEL
        + """
H100 = GPUTarget("cuda", 90, 32)
made = triton.compile(ASTSource(add, SIGNATURE, {"BLOCK": 256}), target=H100, options={"num_warps": 8})
assert ".target sm_90a" in made.asm["ptx"] and made.metadata.num_warps == 8 and made.metadata.shared == 0
assert "define" in made.asm["llir"] and "store" in made.asm["ttir"] and "gpu." in made.asm["ttgir"] + "gpu."
promises = {(place,): [["tt.divisibility", 16]] for place in range(3)}
source = ASTSource(add, SIGNATURE, {(4,): 256}, promises)
aligned = triton.compile(source, target=H100)
assert ".v2.b32" in aligned.asm["ptx"] and ".v2.b32" not in made.asm["ptx"], aligned.asm["ptx"]
assert source.hash() != ASTSource(add, SIGNATURE, {(4,): 256}).hash()
a100 = triton.compile(ASTSource(add, SIGNATURE, {"BLOCK": 256}), target=GPUTarget("cuda", 80, 32))
assert ".target sm_80" in a100.asm["ptx"]
named = triton.compile(ASTSource(add, SIGNATURE, {"BLOCK": 256}), target=H100, options={"arch": "sm80"})
assert named.hash == a100.hash
here = triton.compile(ASTSource(add, SIGNATURE, {"BLOCK": 256}), target=GPUTarget("cpu", 0, 1))
assert here.kind == "cpu"
for options in ({"num_warps": 3}, {"no_such": 1}, {"launch_cooperative_grid": 1}, {"arch": 80}):
    try:
        triton.compile(ASTSource(add, SIGNATURE, {"BLOCK": 256}), target=H100, options=options)
    except triton.TritonError as error:
        assert list(options)[0] in error.message
    else:
        raise AssertionError(options)
"""
    )


def test_kernels_describe_themselves(program):
    program(
        KERNEL
        + """
assert add.arg_names == ["x", "out", "n", "scale", "BLOCK"] and add.__name__ == "add" == add.fn.__name__
assert [(p.num, p.name, p.is_constexpr, p.do_not_specialize) for p in add.params] == [
    (0, "x", False, False), (1, "out", False, False), (2, "n", False, True), (3, "scale", False, False),
    (4, "BLOCK", True, False)]
assert add.params[1].do_not_specialize_on_alignment and not add.params[1].do_not_specialize
assert add.params[4].default == 128 and add.params[0].default is inspect.Parameter.empty and add.constexprs == [4]
assert add.params[3].annotation_type == "f32" and add.params[0].annotation == ""
assert list(add.signature.parameters) == add.arg_names and add.do_not_specialize == ["n"]
assert add.raw_src[0].startswith("@triton.jit") and add.raw_src[1].startswith("def add(")
assert open(__file__).read().splitlines()[add.starting_line_number - 1] == add.raw_src[0].rstrip()
assert add.src.startswith("def add(") and len(add.cache_key) == 64
"""
    )


def test_driver_tells_of_the_machine(program):
    program(
        """
import triton
active = triton.runtime.driver.active
found = active.utils.get_device_properties(active.get_current_device())
assert found["multiprocessor_count"] > 0 and found["warpSize"] in (1, 32)
target = active.get_current_target()
backend = triton.compiler.make_backend(target)
assert target.backend in ("cpu", "cuda") and backend.hash() == triton.compiler.make_backend(target).hash()
assert backend.parse_options({"num_warps": 2}).num_warps == 2
assert active.get_benchmarker()(lambda: None, warmup=1, rep=1, quantiles=(0.5,)) >= 0
triton.runtime.driver.set_active(triton.runtime.driver.active)
"""
    )


def test_names_of_the_backend_for_nvidia(program):
    program(
        """
import dataclasses, stat, triton, deuteron
from pathlib import Path
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.backends.nvidia import compiler, driver
assert {"num_warps", "num_stages", "maxnreg"} <= {f.name for f in dataclasses.fields(compiler.CUDAOptions)}
backend = compiler.CUDABackend(GPUTarget("cuda", 90, 32))
assert backend.parse_options({"num_warps": 8}) == compiler.CUDAOptions(num_warps=8)
assert backend.parse_options({"num_warps": 8}).__dict__["num_warps"] == 8  # as Inductor of PyTorch 2.15 asks
assert backend.hash() == triton.compiler.make_backend(GPUTarget("cuda", 90, 32)).hash()
assert isinstance(backend, BaseBackend)
assert isinstance(triton.compiler.make_backend(GPUTarget("cpu", 0, 1)), BaseBackend)
assert not compiler.CUDABackend.supports_target(GPUTarget("hip", "gfx942", 64))
assert compiler.PTXASError is triton.runtime.errors.PTXASError
for wrong in (GPUTarget("cpu", 0, 1), GPUTarget("hip", "gfx942", 64)):
    try:
        compiler.CUDABackend(wrong)
    except triton.TritonError as error:
        assert wrong.backend in str(error)
    else:
        raise AssertionError(wrong)

tool = Path(__file__).with_name("ptxas")
triton.knobs.propagate_env = False
import deuteron.compiler.knobs as knobs
for said, found in (("Cuda compilation tools, release 13.1, V13.1.80", "13.1"), ("no version", None)):
    tool.write_text(f"#!/bin/sh\\necho '{said}'\\n")
    tool.chmod(0o755)
    with knobs.ptxas_path.scope(tool):
        try:
            assert compiler.get_ptxas(90) == compiler.NvidiaTool(str(tool), found)
        except triton.TritonError:
            assert found is None
try:
    driver.CudaUtils()
except triton.TritonError:  # no GPU here
    pass
else:
    assert driver.CudaUtils().get_device_properties(0)["warpSize"] == 32
"""
    )


def test_what_is_inlinable_is_a_jit_callable(program):
    program(
        KERNEL
        + """
from triton.runtime.jit import JITCallable
assert isinstance(add, JITCallable) and isinstance(tl.sigmoid, JITCallable)
assert isinstance(triton.constexpr_function(lambda x: x), JITCallable)
assert not isinstance(add.fn, JITCallable) and not isinstance(triton.autotune([], [])(add), JITCallable)
"""
    )
