"""The assembler itself: what it refuses, how its processes end, and what stands in for it."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from deuteron.compiler import knobs
from deuteron.compiler.errors import AssemblerError, TargetError
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, assembler
from deuteron.compiler.targets.nvptx import assemble, emit_ptx
from deuteron.compiler.targets.ptxas import Ptxas


def test_rejected_code_shows_the_assemblers_log() -> None:
    with pytest.raises(AssemblerError, match="ptxas cannot assemble.*\n.*error"):
        assemble(".version 8.0\n.target sm_90a\nnonsense\n", Target.parse("cuda:90a"), Schedule())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("SEGV", "DEUTERON_PTXAS_PATH.*another version"), ("KILL", "memory"), ("RTMIN", "DEUTERON_PTXAS_PATH")],
)
def test_a_ptxas_that_a_signal_ends_is_named_with_what_helps(tmp_path, name: str, hint: str) -> None:
    fake = tmp_path / "ptxas"
    fake.write_text(
        "#!/bin/sh\ncase $1 in --version) echo V12.8.93 Build compiler.35583870_0; exit;; esac\n"
        f"cat > /dev/null\necho 'begun' 1>&2\nkill -{name} $$\n"
    )
    fake.chmod(0o755)
    target = Target.parse("cuda:90a")
    with knobs.ptxas_path.scope(fake), pytest.raises(AssemblerError) as told:
        assemble("", target, Schedule())
    build = re.escape(f"{fake} (ptxas 12.8.93 compiler.35583870_0)")
    assert re.fullmatch(rf"{build} was ended by SIG{name} while .* for cuda:90a\nbegun", told.value.message)
    assert re.search(hint, told.value.hint or "")


def test_a_ptxas_that_gets_no_input_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError), Ptxas(Target.parse("cuda:90a")) as waiting:
        raise ZeroDivisionError
    assert waiting._process.poll() is not None
    assert waiting._output.closed


def test_ptxas_has_a_roomy_heap_unless_the_environment_says_otherwise(tmp_path, monkeypatch) -> None:
    fake = tmp_path / "ptxas"
    fake.write_text('#!/bin/sh\nfor output; do :; done\ncat > /dev/null\nprintf "$GLIBC_TUNABLES" > $output\n')
    fake.chmod(0o755)

    def told() -> str:
        with knobs.ptxas_path.scope(fake), Ptxas(Target.parse("cuda:90a")) as waiting:
            return waiting.assemble("")[0].decode()

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "glibc.malloc.hugetlb=1" in told()
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert told() == "glibc.malloc.check=0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_ptxas_does_not_wait_for_a_process_forked_meanwhile(standard_kernels) -> None:
    ptx = emit_ptx(standard_kernels["vector_add"].program(), Target.parse("cuda:90a"))
    with Ptxas(Target.parse("cuda:90a")) as waiting:
        child = os.fork()
        if not child:
            time.sleep(30)
            os._exit(0)
        try:
            assert waiting.assemble(ptx)[0][:4] == b"\x7fELF"
            assert os.waitpid(child, os.WNOHANG) == (0, 0)  # still there
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.fixture
def without_ptxas(monkeypatch) -> None:
    monkeypatch.setattr(assembler, "_installed_ptxas", lambda: None)
    with knobs.ptxas_path.scope(None):
        yield


def test_nvjitlink_stands_in_for_ptxas(standard_kernels, without_ptxas) -> None:
    pytest.importorskip("nvidia.cu13", reason="needs the extra cuda: pip install nvidia-nvjitlink")
    sample, target = standard_kernels["softmax"], Target.parse("cuda:90a")
    ptx = emit_ptx(sample.program(), target)
    cubin = assemble(ptx, target, sample.schedule)
    assert cubin.image[:4] == b"\x7fELF"
    assert cubin.spill_bytes == 0 and 16 <= cubin.registers <= 64
    with pytest.raises(AssemblerError, match="nvJitLink cannot assemble the kernel for cuda:90a"):
        assemble(".version 8.0\n.target sm_90a\nnonsense\n", target, sample.schedule)


def test_a_ptxas_that_is_not_there_is_named(tmp_path) -> None:
    with (
        knobs.ptxas_path.scope(tmp_path / "ptxas"),
        pytest.raises(TargetError, match="there is no ptxas at"),
    ):
        assemble("", Target.parse("cuda:90a"), Schedule())
