"""What made the code: one definition, for cached variants and for stored configurations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deuteron import compiler
from deuteron.compiler import KernelSource, knobs
from deuteron.compiler.runtime.variant import toolchain as module
from deuteron.compiler.runtime.variant.toolchain import toolchain
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets import Target, assembler

CPU, GPU = Target.parse("cpu"), Target.parse("cuda:90a")

TEXT = """
import triton
import triton.language as tl

@triton.jit
def copy(x, y):
    tl.store(y, tl.load(x))
"""


def key(target: str) -> str:
    source = KernelSource.from_text(TEXT, "copy")
    return make_variant(source, {"x": "*f32", "y": "*f32"}, {}, target, {}).key


def fake_ptxas(path: Path, said: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return path


def test_each_target_names_what_its_code_depends_on() -> None:
    common = {"deuteron", "compiler", "llvmlite", "target", "f32_default"}
    assert set(toolchain(CPU)) == common | {"host"}
    assert set(toolchain(GPU)) == common | {"assembler", "assembler_options"}
    assert toolchain(GPU, "580.95") == toolchain(GPU) | {"driver": "580.95"}
    assert len(str(toolchain(GPU, "580.95"))) < 1000  # what the service's key column holds


@pytest.mark.parametrize("target", ["cpu", "cuda:90a"])
def test_a_changed_compiler_makes_other_variants(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    before, chain = key(target), toolchain(Target.parse(target))
    monkeypatch.setattr(module, "compiler_digest", lambda: "another")
    assert key(target) != before
    assert toolchain(Target.parse(target)) == chain | {"compiler": "another"}


def test_a_changed_source_file_changes_the_digest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = tmp_path / "compiler"
    place = sources / Path(module.__file__).relative_to(Path(compiler.__file__).parent)
    place.parent.mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(place))
    digests = []
    for text in ("one = 1", "one = 2", "one = 1"):
        (sources / "ops.py").write_text(text)
        digests.append(module.compiler_digest.__wrapped__())
    assert digests[0] != digests[1] and digests[0] == digests[2]
    (tmp_path / "beside.py").write_text("two = 2")  # is not the compiler's
    assert module.compiler_digest.__wrapped__() == digests[2]


def test_the_assembler_is_known_by_its_build_not_by_its_place(tmp_path: Path) -> None:
    said = "Cuda compilation tools, release 13.0, V13.0.88 Build cuda_13.0.r13.0/compiler.36424714_0"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = fake_ptxas(tmp_path / folder / "ptxas", said)
        with knobs.ptxas_path.scope(path):
            assert toolchain(GPU)["assembler"] == "ptxas 13.0.88 compiler.36424714_0"
    with knobs.ptxas_path.scope(fake_ptxas(path, said.replace("V13.0.88", "V13.0.990"))):  # replaced in place
        assert toolchain(GPU)["assembler"] == "ptxas 13.0.990 compiler.36424714_0"
    with knobs.ptxas_path.scope(fake_ptxas(tmp_path / "wrapper", "hello")):
        assert toolchain(GPU)["assembler"].startswith("ptxas sha256 ")
    with knobs.ptxas_path.scope(tmp_path / "none"):
        assert toolchain(GPU)["assembler"] == "absent"


def test_without_ptxas_the_linker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "_installed_ptxas", lambda: None)
    with knobs.ptxas_path.scope(None):
        found = toolchain(GPU)["assembler"]
    assert found == "absent" or found.startswith("nvJitLink ")


def test_options_of_the_assembler_count_on_gpus_only() -> None:
    plain, cpu, gpu = toolchain(GPU), key("cpu"), key("cuda:90a")
    with knobs.ptxas_options.scope("--opt-level 2"):
        assert toolchain(GPU) == plain | {"assembler_options": "--opt-level 2"}
        assert (key("cpu") == cpu, key("cuda:90a") == gpu) == (True, False)
    with knobs.disable_ptxas_opt.scope(True):
        assert toolchain(GPU)["assembler_options"] == "-O0"
    with knobs.ptxas_options.scope("-v " * 500):
        assert toolchain(GPU)["assembler_options"].startswith("sha256 ")


def test_naming_it_loads_no_code_generator() -> None:
    """A launch from the cache needs the name and nothing of the code that generates or assembles."""
    program = (
        "import sys\n"
        "from deuteron.compiler.runtime.variant.toolchain import toolchain\n"
        "from deuteron.compiler.target import Target\n"
        "toolchain(Target.parse('cuda:90a'))\n"
        "print([name for name in sys.modules if 'nvptx' in name or name.startswith('llvmlite')])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
