"""``triton.tools.compile`` and ``triton.tools.link``: what they write is compiled as C, and run on a driver that prints
its calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import deuteron
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime.cuda.descriptors import _DATA_TYPES, _PADDINGS, _SWIZZLES
from deuteron.tools.compile import CompileArgs, compile_kernel, find_kernel, main
from deuteron.tools.link import LinkerError, read_headers
from deuteron.tools.link import main as link

FAKE = Path(__file__).parent / "fake_driver"
HELPERS = """
import deuteron as triton

@triton.jit
def squared(x):
    return x * x
"""
KERNELS = """
import deuteron as triton
import deuteron.language as tl
import helpers_of_kernels

@triton.jit
def product(c, a, b, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * cm + n[None, :] * cn, helpers_of_kernels.squared(total), mask=inside)

@triton.jit
def scale(x, factor, small, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor + small + wide, mask=i < n)

@triton.jit
def named(x, register):
    tl.store(x, register)
"""
PRODUCT = "*fp32:16, *fp16:16, *fp16:16, i32, i32, i32, {} 64, 64, 64"
ONES = PRODUCT.format("i32:16, i32:1, i32:16, i32:1, i32:16, i32:1,")
ANY = PRODUCT.format("i32, i32, i32, i32, i32, i32,")
GRID = "(M + 63) / 64, (N + 63) / 64, 1"
compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("deuteron.tools.compile.install", lambda: None)  # the name triton would stay in this process
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "helpers_of_kernels.py").write_text(HELPERS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("helpers_of_kernels", None)


def write(folder: Path, kernel: str, signature: str, grid: str, **more: object) -> tuple[str, Path, Path]:
    """Function, header and source of a kernel in ``folder``."""
    given = {"target": "cuda:90:32", "num_warps": 4, "out_path": folder / kernel, **more}
    name, (header, source) = compile_kernel(CompileArgs(str(folder / "kernels.py"), kernel, signature, grid, **given))
    return name, header, source


def run(folder: Path, sources: list[Path], main_function: str, headers: list[Path]) -> list[str]:
    """The lines that the driver prints; every warning of the C compiler is an error, and headers are C++, too."""
    program = folder / "program.c"
    included = "\n".join(f'#include "{header.name}"' for header in headers)
    program.write_text(f"{included}\n#include <stdio.h>\nint main(void) {{ {main_function} return 0; }}\n")
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(FAKE), "-I", str(folder)]
    files = [*map(str, sources), str(program), str(FAKE / "driver.c")]
    subprocess.run(["cc", "-std=c99", *strict, *files, "-o", str(folder / "program")], check=True, timeout=120)
    if shutil.which("c++"):
        subprocess.run(["c++", *strict, "-fsyntax-only", "-x", "c++", str(program)], check=True, timeout=120)
    done = subprocess.run([str(folder / "program")], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def embedded(source: Path) -> list[bytes]:
    """The arrays of bytes in a C file."""
    arrays = re.findall(r"launch_cubin\d+\[(\d+)\] = \{([^}]*)\}", source.read_text())
    found = [bytes(int(word, 16) for word in text.split(",")) for _, text in arrays]
    assert [len(data) for data in found] == [int(size) for size, _ in arrays]
    return found


@compiler
def test_a_launch_follows_the_recipe_and_falls_back_where_a_promise_is_broken(folder):
    name, header, source = write(folder, "product", ONES, GRID, out_name="mm")
    assert re.fullmatch(r"mm_[0-9a-f]{8}_0d1d2d6d7c8d9c10d11c", name)
    assert header.name == f"product.{name.removeprefix('mm_')}.h" and source.suffix == ".c"
    kernel = find_kernel(folder / "kernels.py", "product")
    types = {n: t.strip() for n, t in zip((p.name for p in kernel.parameters), ONES.split(","), strict=True)}
    made = deuteron.compile(
        kernel, {n: t for n, t in types.items() if not t.isdecimal()}, dict.fromkeys(("BM", "BN", "BK"), 64),
        "cuda:90a", num_warps=4,
    )  # fmt: skip
    recipe = made.metadata.recipe
    images = embedded(source)
    assert images[0] == made.asm["cubin"] and len(images) > 1 and recipe.guards and recipe.descriptors

    pointers = "(CUdeviceptr)4096, (CUdeviceptr)8192, (CUdeviceptr)12288"
    calls = f'printf("%d\\n", {name}((CUstream)5, {pointers}, 100, 200, 96, 64, 128, 208)); '
    calls += f'printf("%d\\n", {name}((CUstream)5, {pointers}, 100, 200, -5, 64, 128, 208)); '
    calls += f'printf("%d\\n", {name}((CUstream)5, {pointers}, 0, 200, 96, 64, 128, 208)); unload_{name}();'
    lines = run(folder, [source], calls, [header])
    assert lines[0] == "load 7f454c46" and lines[1] == "function product"
    values = {"a": 8192, "b": 12288, "c": 4096, "M": 100, "N": 200, "K": 96, "am": 64, "bk": 128, "cm": 208}
    maps = [line for line in lines if line.startswith("map")]
    assert maps == [expected_map(descriptor, values) for descriptor in recipe.descriptors]
    launches = [line for line in lines if line.startswith("launch")]
    shape = launched(recipe, made.metadata.shared, (2, 4, 1))
    passed = "4096,8192,12288,100,200,96,64,128,208,"
    numbers = "".join(f"{7000 + i}," for i in range(len(maps)))
    assert launches[0] == f"{shape} arguments={passed}{numbers}{'2,4,1,' if recipe.persistent else ''}"
    assert launches[1].endswith("arguments=4096,8192,12288,100,200,-5,64,128,208,"), "K breaks the guard of the first"
    assert len(launches) == 2 and lines.count("0") == 3, "a grid without programs launches nothing"
    assert lines[-2:] == ["unload", "unload"]


def expected_map(made, values: dict[str, int]) -> str:
    """What the launcher of the running process tells the driver of a descriptor, from innermost to outermost."""
    from deuteron.compiler.runtime.launch.host_code import evaluator

    names = list(values)
    sizes, strides = (evaluator(e, names)(tuple(values.values())) for e in (made.sizes, made.strides))
    size = {"f16": 2, "f32": 4}[made.elem]
    shown = "".join(f"{min(n, 1 << 32)}," for n in sizes[::-1])
    steps = "".join(f"{n * size}," for n in strides[-2::-1])
    box = "".join(f"{n}/1," for n in made.box[::-1])
    modes = f"0,{_SWIZZLES[made.swizzle]},3,{_PADDINGS[made.padding]}"
    base = values[made.base]
    return f"map type={_DATA_TYPES[made.elem]} at={base} sizes={shown} strides={steps} box={box} modes={modes}"


def launched(recipe: LaunchRecipe, shared: int, grid: tuple[int, int, int]) -> str:
    programs = grid[0] * grid[1] * grid[2]
    x, y, z = (min(programs, 132 * recipe.occupancy), 1, 1) if recipe.persistent else grid
    return f"launch {x} {y} {z} threads={recipe.threads} shared={shared} stream=5"


@compiler
def test_scalars_arrive_as_what_they_are(folder):
    name, header, source = write(folder, "scale", "*fp32:16, fp32, i16, i64, i32, 128", "(n + 127) / 128, 1, 1")
    declared = "CUdeviceptr x, float factor, int16_t small, int64_t wide, int32_t n"
    assert f"{name}(CUstream launch_stream, {declared});" in header.read_text()
    lines = run(folder, [source], f"{name}(NULL, 16, 1.0f, 3, 5, 300);", [header])
    assert lines[-1].startswith("launch 3 1 1 threads=128 shared=0 stream=0 arguments=16,1065353216,")
    assert lines[-1].endswith(",5,300,")


@compiler
def test_linked_functions_are_chosen_by_what_they_promise(folder):
    names, headers, sources = zip(
        *(write(folder, "product", s, GRID, out_name="mm") for s in (ANY, ONES)),
        write(folder, "product", ANY, GRID, out_name="mm", num_warps=8),
        strict=True,
    )
    assert link([*map(str, headers), "-o", str(folder / "linked")]) == 0
    pointers = "(CUdeviceptr)4096, (CUdeviceptr)8192, (CUdeviceptr)12288, 128, 128, 64"
    calls = f'printf("%d algorithms\\n", mm_get_num_algos()); mm_default(0, {pointers}, 64, 1, 128, 1, 128, 1); '
    calls += f"mm_default(0, {pointers}, 63, 1, 128, 1, 128, 1); mm_default(0, {pointers}, 64, 2, 128, 1, 128, 1); "
    calls += (
        f'mm(0, {pointers}, 64, 1, 128, 1, 128, 1, 1); printf("%d\\n", mm(0, {pointers}, 64, 1, 128, 1, 128, 1, 2));'
    )
    lines = run(folder, [*sources, folder / "linked.c"], calls, [folder / "linked.h"])
    taken = [len(line.split("arguments=")[1].split(",")) - 1 for line in lines if line.startswith("launch")]
    threads = [int(line.split("threads=")[1].split()[0]) for line in lines if line.startswith("launch")]
    assert lines[0] == "2 algorithms" and lines[-1] == "1"
    special = len(deuteron_arguments(sources[1]))
    assert taken == [special, 12, 12, 12] and threads[1:] == [128, 128, 256]


def deuteron_arguments(source: Path) -> list[str]:
    """What the first variant in a C file is passed."""
    return re.search(r"launch_arguments\[\] = \{(.*), NULL\}", source.read_text())[1].split(", ")


def test_headers_that_do_not_fit_together(folder):
    _, product, _ = write(folder, "product", ANY, GRID)
    _, scale, _ = write(folder, "scale", "*fp32, fp32, i16, i64, i32, 128", "1, 1, 1")
    _, other, _ = write(folder, "scale", "*fp32, fp64, i16, i64, i32, 128", "1, 1, 1", out_path=folder / "other")
    (folder / "empty.h").write_text("int x;\n")
    (folder / "hip.h").write_text("// tt-linker-backend: hip\n")
    for headers, message in (
        ([product, scale], "different kernels"),
        ([scale, other], "takes CUdeviceptr x, double factor"),
        ([folder / "empty.h"], "has no directive"),
        ([folder / "hip.h"], "is for hip"),
        ([folder / "nowhere.h"], "cannot read"),
    ):
        with pytest.raises(LinkerError, match=message):
            read_headers(headers)
        assert link([*map(str, headers), "-o", str(folder / "out")]) == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"-n": "nothing"}, "has no kernel 'nothing'"),
        ({"-s": "*fp32, i32"}, "the signature has 2 parts, scale has 6 parameters"),
        ({"-s": "*fp32, fp32, i16, i64, i33, 128"}, "unknown dtype 'i33'"),
        ({"-s": "*fp32, fp32, i16, i64, i32, i32"}, "declares 'BLOCK' as tl.constexpr"),
        ({"-g": "1, 1"}, "--grid '1, 1' has 2 sizes"),
        ({"-t": "hip:gfx942:64"}, "no backend 'hip'"),
        ({"-t": "cpu"}, "cpu is no GPU"),
        ({"-n": "named", "-s": "*i32, i32"}, "the parameter 'register' has a name that the C code needs"),
        ({"-w": "3"}, "num_warps = 3"),
        ({"-on": "a b"}, "--out-name 'a b' is no name in C"),
        ({"-on": ""}, "--out-name '' is no name in C"),
        ({"-o": ""}, "--out-path '.' names no file"),
        ({"-o": "nowhere/out"}, "cannot write nowhere/out."),
    ],
)
def test_mistakes_end_with_2_and_a_message(folder, capsys, changed, message):
    options = {"-n": "scale", "-s": "*fp32, fp32, i16, i64, i32, 128", "-g": "1, 1, 1", "-t": "cuda:90", **changed}
    assert main(["kernels.py", *(word for pair in options.items() for word in pair)]) == 2
    assert message in capsys.readouterr().err
    assert not list(folder.glob("*.c"))


@pytest.mark.parametrize(
    ("text", "raised"),
    [("x = (", "SyntaxError"), ("1 / 0", "ZeroDivisionError"), ("raise SystemExit(0)", "SystemExit")],
)
def test_a_file_that_does_not_run_to_its_end(folder, capsys, text, raised):
    """What it raised is shown from its own frames on; one that exits wrote nothing, and that was a success."""
    (folder / "broken.py").write_text(text)
    assert main(["broken.py", "-n", "x", "-s", "i32", "-g", "1, 1, 1", "-t", "cuda:90"]) == 2
    err = capsys.readouterr().err
    assert err.endswith(f"error: broken.py did not run to its end: it raised {raised}\n")
    assert "broken.py" in err.partition("error: broken.py")[0] and "importlib" not in err


def test_a_header_that_is_given_twice_is_loaded_once(folder):
    name, header, _ = write(folder, "scale", "*fp32, fp32, i16, i64, i32, 128", "1, 1, 1")
    assert link([str(header), str(header), "-o", str(folder / "linked")]) == 0
    assert (folder / "linked.c").read_text().count(f" load_{name}();") == 1
    for words, message in ((["--prefix", "1"], "--prefix '1' is no name"), (["-o", ""], "--out '.' names no file")):
        assert link([str(header), "-o", str(folder / "linked"), *words]) == 2, message


def test_under_tritons_name_in_a_process_of_its_own(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS.replace("deuteron", "triton"))
    (tmp_path / "helpers_of_kernels.py").write_text(HELPERS.replace("deuteron", "triton"))
    tool = [sys.executable, "-P", "-m", "deuteron.compat.triton", "-m"]
    options = ["-n", "scale", "-s", "*fp32:16, fp32, i16, i64, i32, 128", "-g", "1, 1, 1", "-t", "cuda:80:32"]
    environment = {**os.environ, "DEUTERON_HOME": str(tmp_path / "home")}
    for words in (
        ["triton.tools.compile", str(tmp_path / "kernels.py"), *options, "-o", str(tmp_path / "out")],
        ["triton.tools.nothing"],
    ):
        done = subprocess.run(
            [*tool, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == (0 if words[0].endswith("compile") else 2), done.stderr
        assert "Traceback" not in done.stderr
    (header,) = tmp_path.glob("out.*.h")
    assert "// tt-linker-backend: cuda" in header.read_text()
