"""``compile``: stages, metadata, the disk cache, running, pickling."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import KernelSource, knobs
from deuteron.compiler.errors import CompilationError, DeviceError, IRError, LaunchError, TargetError
from deuteron.compiler.runtime.variant.cache import CacheWarning, variant_cache
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.target import ARCHITECTURES, LIMITS, Target
from deuteron.compiler.targets.nvptx.kernel import machine_for

TEXT = """
import deuteron.language as tl
import deuteron

FACTOR = tl.constexpr(3)

@deuteron.jit
def scale(x, y, n, BLOCK: tl.constexpr = 32):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * FACTOR, mask=i < n)
"""


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)


ADD = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


def compile_add(**options: Any) -> Any:
    return deuteron.compile(add, ADD, {"BLOCK": 64}, **options)


def test_compilation_errors_come_through() -> None:
    with pytest.raises(CompilationError, match="test_compile.py"):
        deuteron.compile(add, ADD, {"BLOCK": 63})


def test_one_becomes_a_constant() -> None:
    variant = make_variant(add, {**ADD, "n": "i32:1"}, {"BLOCK": 64}, "cpu", {})
    assert list(variant.signature) == ["x", "y", "out"]
    assert variant.constants == {"n": 1, "BLOCK": 64}


def test_stages_are_made_when_asked_for() -> None:
    kernel = compile_add(stop_after="tile")
    assert list(kernel.asm) == ["tile", "llvm", "object", "asm"]
    assert "func @add" in kernel.asm["tile"]
    assert "define" in kernel.asm["llvm"]
    assert isinstance(kernel.asm["object"], bytes)
    assert "ret" in kernel.asm["asm"]
    with pytest.raises(KeyError, match="'ptx' is not one of tile, llvm, object, asm"):
        kernel.asm["ptx"]


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_ptx_without_a_gpu(target: str) -> None:
    kernel = compile_add(target=target, num_warps=8)
    assert list(kernel.asm) == ["tile", "gpu", "llvm", "ptx", "cubin", "asm"]
    assert f".target sm_{target.partition(':')[2]}" in kernel.asm["ptx"]
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert kernel.metadata.num_warps == 8
    assert kernel.metadata.registers is not None and kernel.metadata.registers > 0
    assert kernel.metadata.spills == 0
    for stage in ("frontend", "tile", "gpu", "llvm", "ptx", "cubin"):
        assert kernel.metadata.stage_ms[stage] > 0
    x = np.zeros(4, np.float32)
    with pytest.raises(DeviceError, match="compiled for cuda.* cannot run on cpu"):
        kernel.run((1,), x, x, x, 1)
    if len(deuteron.list_devices()) == 1:
        with pytest.raises(DeviceError, match="'cuda:0' is not present: no NVIDIA driver"):
            kernel.run((1,), x, x, x, 1, device="cuda:0")


def test_ptx_where_no_assembler_is_installed(tmp_path: Path) -> None:
    with knobs.ptxas_path.scope(tmp_path / "no-ptxas"):
        kernel = compile_add(target="cuda:90a")
        assert ".visible .entry add" in kernel.asm["ptx"]
        assert kernel.metadata.registers is None
        with pytest.raises(TargetError, match="no ptxas at"):
            kernel.asm["cubin"]
        assert kernel.code().startswith(b"//")  # what a driver assembles itself


def test_text_is_compiled_without_being_executed() -> None:
    source = KernelSource.from_text("raise SystemExit('executed')\n" + TEXT, "scale")
    kernel = deuteron.compile(source, {"x": "*f32", "y": "*f32", "n": "i32"})
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    kernel.run((2,), x, y, 40)
    np.testing.assert_array_equal(y, 3 * x)


def test_text_kernels_launch_like_functions() -> None:
    kernel = deuteron.JITFunction(KernelSource.from_text(TEXT, "scale"))
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    kernel[lambda meta: (deuteron.cdiv(meta["n"], meta["BLOCK"]),)](x, y, 40)
    np.testing.assert_array_equal(y, 3 * x)
    with knobs.interpret.scope(True):
        kernel[(2,)](x, y, 20)
    np.testing.assert_array_equal(y, 3 * x)


def test_kernels_show_the_globals_of_their_functions() -> None:
    assert add.__globals__ is globals()
    assert deuteron.JITFunction(KernelSource.from_text(TEXT, "scale")).__globals__ == {}


def test_run_and_its_errors() -> None:
    kernel = compile_add()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 100), dtype=np.float32)
    out = np.full(101, 7, np.float32)
    kernel.run((2,), x, y, out, 100)
    np.testing.assert_array_equal(out[:100], x + y)
    assert out[100] == 7
    kernel[(2,)](x, y, out, 100)
    for arguments, message in [
        ((x, y, out), "add takes 4 run-time arguments .x, y, out, n., got 3"),
        ((x, y, out.astype(np.float64), 5), "'out' is a numpy.ndarray of float64.* for \\*f32"),
        ((x, 3, out, 5), "argument 'y' is a int 3, the kernel was compiled for \\*f32"),
        ((x, y, out, 2**40), "argument 'n' is a int 1099511627776, .* for i32"),
        ((x, y, out, 1.5), "argument 'n' is a float 1.5"),
        ((x, y, out, x), "argument 'n' is a numpy.ndarray"),
        ((x, [], out, 5), "argument 'y': a builtins.list is neither"),
    ]:
        with pytest.raises(LaunchError, match=message):
            kernel.run((2,), *arguments)


@deuteron.jit
def add_some(pair, out, n, step: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i * step, tl.load(pair[0] + i, mask=i < n) + tl.load(pair[1] + i, mask=i < n), mask=i < n)


def test_a_compiled_kernel_takes_the_arguments_of_all_parameters() -> None:
    x, y, out = np.arange(40, dtype=np.float32), np.ones(40, np.float32), np.zeros(40, np.float32)
    kernel = compile_add()
    kernel[(1,)](x, y, out, 40, 64)
    np.testing.assert_array_equal(out, x + y)
    launched = add_some[(1,)]((x, y), out, 1, 1, BLOCK=64)  # n is 1, which becomes part of the code
    out[:] = 0
    launched[(1,)]((x, y), out, 1, 1, 64)
    np.testing.assert_array_equal(out, (x + y) * (np.arange(40) < 1))
    out[:] = 0
    launched[(1,)](x, y, out)
    assert out[0] == 1
    with pytest.raises(LaunchError, match="takes 3 run-time arguments .*, got 4"):
        launched[(1,)]((x, y), out, 1, 1)
    with pytest.raises(LaunchError, match="argument 'n' is 2, the kernel was compiled for 1"):
        launched[(1,)]((x, y), out, 2, 1, 64)


def test_a_compiled_kernel_takes_the_arguments_of_all_but_constexpr_parameters() -> None:
    x, y, out = np.arange(40, dtype=np.float32), np.ones(40, np.float32), np.zeros(40, np.float32)
    launched = add[(1,)](x, y, out, 1, BLOCK=64)  # n is 1, which becomes part of the code
    out[:] = 0
    launched[(1,)](x, y, out, 1)
    np.testing.assert_array_equal(out, (x + y) * (np.arange(40) < 1))
    with pytest.raises(LaunchError, match="argument 'n' is 2, the kernel was compiled for 1"):
        launched[(1,)](x, y, out, 2)


def test_broken_promises_are_refused() -> None:
    kernel = deuteron.compile(add, {**ADD, "x": "*f32:16", "n": "i32:16"}, {"BLOCK": 64})
    raw = np.zeros(200, np.float32)
    start = -raw.ctypes.data % 64 // 4
    good, bad = raw[start : start + 100], raw[start + 1 : start + 101]
    kernel.run((1,), good, good, good, 16)
    with pytest.raises(LaunchError, match="'x' is not a multiple of 16, as the signature promised"):
        kernel.run((1,), bad, good, good, 16)
    with pytest.raises(LaunchError, match="'n' is not a multiple of 16"):
        kernel.run((1,), good, good, good, 17)


def test_cache_hit_runs_and_remembers(private_cache: Path) -> None:
    first = compile_add()
    second = compile_add()
    assert (first.metadata.cached, second.metadata.cached) == (False, True)
    assert second.asm["object"] == first.asm["object"]
    assert second.metadata.stage_ms == first.metadata.stage_ms
    assert second.asm["tile"] == first.asm["tile"]
    x = np.ones(10, np.float32)
    second.run((1,), x, x, x, 10)
    assert x.tolist() == [2.0] * 10
    with knobs.always_compile.scope(True):
        assert compile_add().metadata.cached is False


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_entries_are_compiled_again(private_cache: Path, damage: str) -> None:
    path = variant_cache().path(compile_add().hash)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes({"truncate": raw[:-10], "flip": raw, "empty": b""}[damage])
    with pytest.warns(CacheWarning, match="is damaged"):
        kernel = compile_add()
    assert kernel.metadata.cached is False
    assert compile_add().metadata.cached is True


def test_what_changes_the_key() -> None:
    def variant_key(signature: Any = ADD, constexprs: Any = None, target: str = "cpu", **options: Any) -> str:
        return make_variant(add, signature, constexprs or {"BLOCK": 64}, target, options).key

    keys = [
        variant_key(),
        variant_key({**ADD, "n": "i64"}),
        variant_key({**ADD, "x": "*f32:16"}),
        variant_key({**ADD, "x": "*const f32"}),
        variant_key(constexprs={"BLOCK": 128}),
        variant_key(constexprs={"BLOCK": 64.0}),
        variant_key(target="cuda:80"),
        variant_key(target="cuda:90a"),
        variant_key(target="cuda:90a", num_warps=8),
        variant_key(target="cuda:90a", maxnreg=128),
        variant_key(debug=True),
        variant_key(enable_fp_fusion=False),
    ]
    assert len(set(keys)) == len(keys)
    assert variant_key() == keys[0]
    other = KernelSource.from_text(TEXT.replace("tl.constexpr(3)", "tl.constexpr(4)"), "scale")
    sources = [KernelSource.from_text(TEXT, "scale"), other]
    types = {"x": "*f32", "y": "*f32", "n": "i32"}
    assert len({make_variant(s, types, {}, "cpu", {}).key for s in sources}) == 2


@pytest.mark.parametrize("options", [{"num_stages": 5}, {"num_warps": 8}, {"maxnreg": 64}])
def test_options_without_effect_share_one_compilation(options: dict[str, int]) -> None:
    """On the CPU none of these changes code: the second variant is the first one, under its own options."""
    first = compile_add()
    second = compile_add(**options)
    assert not first.metadata.cached and second.metadata.cached
    assert second.code() == first.code() and second.hash == first.hash
    (name, value) = next(iter(options.items()))
    assert getattr(second.metadata, name) == value


def test_pickled_kernels_run() -> None:
    kernel = pickle.loads(pickle.dumps(compile_add()))
    x = np.ones(10, np.float32)
    kernel.run((1,), x, x, x, 10)
    assert x.tolist() == [2.0] * 10
    with pytest.raises(TargetError, match="'tile' of a kernel that came from another process"):
        kernel.asm["tile"]


def test_kernel_dump(tmp_path: Path) -> None:
    with knobs.kernel_dump.scope(True), knobs.dump_dir.scope(tmp_path / "dump"):
        compile_add()
    assert {p.suffix for p in (tmp_path / "dump").rglob("add.*")} == {
        ".tile",
        ".llvm",
        ".object",
        ".asm",
    }


def test_one_record_makes_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its PTX version and the limits of its SMs were in tables of their own, where it was a KeyError."""
    monkeypatch.setitem(ARCHITECTURES, "88", replace(ARCHITECTURES["86"], limits=LIMITS["87"], ptx_version=90))
    Target.parse.cache_clear()
    try:
        llvm = compile_add(target="cuda:88", stop_after="llvm").asm["llvm"]
        machine = machine_for(Target.parse("cuda:88"))
    finally:
        Target.parse.cache_clear()
    assert "define" in llvm and (machine.processor, machine.features) == ("sm_88", "+ptx90")


def test_the_precision_knob_is_part_of_the_key() -> None:
    def key() -> str:
        return make_variant(add, ADD, {"BLOCK": 64}, "cpu", {}).key

    with knobs.f32_default.scope("tf32"):
        first = key()
    with knobs.f32_default.scope("ieee"):
        assert key() != first


def test_a_pass_that_breaks_the_ir_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.compiler.tile import passes

    def spoil(function: Any) -> Any:
        function.body.ops.reverse()
        return function

    monkeypatch.setattr(passes, "PIPELINE", (*passes.PIPELINE, ("spoil", spoil)))
    with knobs.verify.scope(True), pytest.raises(IRError, match="the pass spoil broke add: "):
        compile_add(stop_after="tile")
    monkeypatch.undo()
    with knobs.verify.scope(True):
        assert "func @add" in compile_add(stop_after="tile").asm["tile"]


def test_threads_may_need_the_same_variant_at_once() -> None:
    kernel = deuteron.JITFunction(KernelSource.from_text(TEXT, "scale"))
    arrays = [np.full(100, i, np.float32) for i in range(8)]

    def work(x: np.ndarray) -> np.ndarray:
        y = np.zeros_like(x)
        for _ in range(20):
            kernel[(4,)](x, y, 100)
        return y

    with ThreadPoolExecutor(8) as pool:
        for x, y in zip(arrays, pool.map(work, arrays), strict=True):
            np.testing.assert_array_equal(y, 3 * x)


SHARED = """
import sys, warnings
import numpy as np
import deuteron
from deuteron.compiler import KernelSource
warnings.simplefilter("error")
kernel = deuteron.JITFunction(KernelSource.from_file(sys.argv[1], "scale"))
x = np.arange(2000, dtype=np.float32)
for block in (16, 32, 64, 128, 256):
    y = np.zeros_like(x)
    kernel[lambda meta: (deuteron.cdiv(2000, meta["BLOCK"]),)](x, y, 2000, BLOCK=block)
    assert (y == 3 * x).all()
print(sum(k.metadata.cached for k in kernel.cache.values()))
"""


@pytest.mark.parametrize("size", ["1G", "20K"])  # the second evicts all the time
def test_processes_share_compiled_variants(tmp_path: Path, size: str) -> None:
    source = tmp_path / "kernel.py"
    source.write_text(TEXT)
    environment = {
        **os.environ,
        "DEUTERON_CACHE_DIR": str(tmp_path / "shared"),
        "DEUTERON_CACHE_BYTES": size,
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, str(source)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for worker in workers:
        _, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
    again = subprocess.run(
        [sys.executable, "-c", SHARED, str(source)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    if size == "1G":
        assert again.stdout == "5\n"
    entries = list((tmp_path / "shared").rglob("*.entry"))
    assert sum(p.stat().st_size for p in entries) <= (1 << 30 if size == "1G" else 20 << 10)
