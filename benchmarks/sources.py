"""Example kernels under either compiler, and what figures depend on: shared by the GPU benchmarks."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def load_kernels(name: str, package: str, folder: Path = EXAMPLES) -> ModuleType:
    """A file of kernels, such as an example, decorated by ``package`` (deuteron or triton): same text, other compiler.

    Both compilers read source files, and their caches are shared by processes, so the file's place follows from its
    text alone.
    """
    text = (folder / f"{name}.py").read_text()
    text = text.replace("import deuteron.language as tl", f"import {package}.language as tl")
    text = text.replace("import deuteron as triton", f"import {package} as triton")
    text = text.replace("from harness import", "from examples_harness import")
    sys.modules.setdefault("examples_harness", _harness())
    made = Path(tempfile.gettempdir()) / f"deuteron-benchmarks-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    path = made / f"{name}_{package}_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text)
        unfinished.rename(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _harness() -> ModuleType:
    """Stands in for ``examples/harness.py``, which only the examples' own ``main`` needs."""
    module = ModuleType("examples_harness")
    for name in ("Device", "check", "device_from_command_line"):
        setattr(module, name, None)
    return module


def environment() -> dict[str, str]:
    """Commit (``$COMMIT`` where the checkout has no history), machine, GPU, driver and versions."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = {
        "commit": os.environ.get("COMMIT") or git.stdout.strip(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
    }
    for package in ("numpy", "llvmlite", "torch", "triton"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | _gpu()


def _gpu() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [v.strip() for v in done.stdout.splitlines()[0].split(",")]
    return dict(zip(("gpu", "driver", "power_limit", "max_sm_clock"), values, strict=False))
