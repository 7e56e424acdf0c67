"""Programs written for Triton, run unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
import triton.testing
import triton.tools.tensor_descriptor
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def double(x):
    return libdevice.fmax(x * 2, x)

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, double(x), mask=i < n)

@triton.jit
def described(source, target, n, BLOCK: tl.constexpr):
    out = tl.make_tensor_descriptor(target, [n], [1], [BLOCK])
    block = tl.make_block_ptr(target, (n,), (1,), (BLOCK,), (BLOCK,), (0,))
    out.store([0], source.load([0]))
    tl.store(block, source.load([BLOCK]) + 1, boundary_check=(0,))

triton.set_allocator(lambda size, alignment, stream: None)
x = np.arange(100, dtype=np.float32)
out = np.zeros_like(x)
kernel[(triton.cdiv(100, 32),)](x, out, 100, BLOCK=32)
assert (out == 2 * x).all()
described[(1,)](TensorDescriptor.from_tensor(x, [32]), out, 60, BLOCK=32)
assert (out[:60] == x[:60] + (x[:60] >= 32)).all() and (out[60:] == 2 * x[60:]).all()
assert triton.runtime.driver.active.get_current_target().backend in ("cpu", "cuda")
print(sys.argv[1:], __name__)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deuteron.compat.triton", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_program_runs_with_its_arguments(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(f"{PROGRAM}\nimport os\nos.chdir('/')\nassert os.path.isfile(__file__), __file__\n")
    done = run(os.path.relpath(script), "a", "--b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['a', '--b'] __main__"


MODULES = """
import triton
import triton.backends.compiler
import triton.compiler.compiler
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import OutOfResources
from triton.runtime.cache import triton_key
from triton.runtime.jit import JITFunction, KernelInterface

@triton.autotune([triton.Config({})], [])
@triton.jit
def kernel(x_ptr):
    pass

assert isinstance(kernel, KernelInterface) and isinstance(kernel.fn, JITFunction)
assert triton.compiler.compiler.CompiledKernel is CompiledKernel
assert OutOfResources is triton.OutOfResources
target = triton.runtime.driver.active.get_current_target()
assert isinstance(target, triton.backends.compiler.GPUTarget) and not triton.backends.backends
assert triton_key() == triton_key() != ""
"""


def test_modules_that_libraries_import(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(MODULES)
    done = run(str(script))
    assert done.returncode == 0, done.stderr


def test_missing_script_is_a_message():
    done = run("nowhere.py")
    assert done.returncode == 2
    assert done.stderr == "error: there is no file nowhere.py\n"


def test_install_refuses_when_triton_is_there():
    code = (
        "import sys, types; sys.modules['triton'] = types.ModuleType('triton')\n"
        "from deuteron.compat import triton\n"
        "try: triton.install()\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "imported already" in done.stdout


SPAWNING = """
import multiprocessing, subprocess, sys
import numpy as np

def child(results):
    import importlib.util
    assert importlib.util.find_spec("triton") is not None and "triton" not in sys.modules
    import triton.language as tl
    from kernels import add_one
    import triton, deuteron.language
    x = np.zeros(4, np.float32)
    add_one[(1,)](x)
    results.put((x.tolist(), tl is deuteron.language, triton.__name__, sys.modules["triton"] is triton))

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        results = context.SimpleQueue()
        process = context.Process(target=child, args=(results,))
        process.start()
        process.join(60)
        print(method, process.exitcode, results.get() if process.exitcode == 0 else None)
    code = "import kernels, triton.language.extra.libdevice, triton; print(triton.__version__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
"""
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def add_one(x):
    i = tl.arange(0, 4)
    tl.store(x + i, tl.load(x + i) + 1)
"""


def test_processes_that_the_program_starts_find_deuteron(tmp_path: Path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "program.py").write_text(SPAWNING)
    # Triton itself would be found as this is: anywhere but in the first folder.
    (tmp_path / "other" / "triton").mkdir(parents=True)
    (tmp_path / "other" / "triton" / "__init__.py").write_text("raise ImportError('this is another one')")
    command = [sys.executable, "-P", "-m", "deuteron.compat.triton", "program.py"]
    path = os.pathsep.join(filter(None, [str(tmp_path / "other"), str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = "([1.0, 1.0, 1.0, 1.0], True, 'deuteron.compat.triton', True)"
    lines = [f"{method} 0 {found}" for method in ("spawn", "forkserver")]
    assert done.stdout.splitlines()[:2] == lines, done.stderr
    assert done.stdout.splitlines()[2:] == ["3.7.1"]


STATED = """
import importlib.metadata as metadata
import triton
assert metadata.version("triton") == metadata.version("Triton") == triton.__version__
found = metadata.distribution("triton")
assert found.metadata["Name"] == "triton" and found.requires is None and found.files is None
assert [one.version for one in metadata.distributions(name="triton")][0] == triton.__version__
assert "triton" in metadata.packages_distributions()["triton"]
assert metadata.version("numpy") and "numpy" in {one.metadata["Name"] for one in metadata.distributions()}
try:
    metadata.version("triton-kernels-of-nobody")
except metadata.PackageNotFoundError:
    print("sound")
"""


def test_libraries_that_ask_for_the_installed_version_get_that_of_the_language(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STATED)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deuteron.compat.triton", str(program)], capture_output=True, text=True
    )
    assert done.stdout == "sound\n", done.stderr
