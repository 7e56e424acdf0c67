"""Lines of machine code: the cubin with lines has the code of the one that runs, and its table is read as binutils
read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from example_variants import CASES, EXAMPLES, each_case, example_variant

from deuteron.compiler.runtime.variant.lined import lined_cubin
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.targets.assembler import has_ptxas
from deuteron.profiler import MalformedProfile
from deuteron.profiler.sources.debug_lines import LineTable, SourceLine, sections

pytestmark = pytest.mark.skipif(not has_ptxas(), reason="needs ptxas")


@cache
def lined(case: tuple[str, str, str, str]) -> bytes:
    return lined_cubin(example_variant(*case))


@each_case
def test_the_code_with_lines_is_the_code_that_runs(case: tuple[str, str, str, str]) -> None:
    cubin = build(example_variant(*case)).artifacts["cubin"]
    assert isinstance(cubin, bytes)
    plain, found = sections(cubin), sections(lined(case))
    text = f".text.{case[1]}"
    assert plain[text] and plain[text] == found[text]
    assert ".debug_line" in found and ".debug_line" not in plain


@each_case
def test_instructions_come_from_lines_of_the_kernel(case: tuple[str, str, str, str]) -> None:
    file = EXAMPLES / case[0]
    found = sections(lined(case))
    table = LineTable(found[".debug_line"])
    places = [table.at(address) for address in range(0, len(found[f".text.{case[1]}"]), 16)]
    known = [place for place in places if place is not None]
    assert len(known) > len(places) // 2
    assert {place.file for place in known} == {str(file)}
    texts = {file.read_text().splitlines()[place.line - 1].strip() for place in known}
    assert any("tl.store(" in text for text in texts) and any("tl.load(" in text for text in texts)


@each_case
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs binutils")
def test_tables_are_read_as_binutils_read_them(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    (tmp_path / "kernel.cubin").write_bytes(lined(case))
    command = ["objdump", "--dwarf=decodedline", str(tmp_path / "kernel.cubin")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\S+\s+(\d+)\s+(0x[0-9a-f]+|0)\b", shown, re.MULTILINE)
    expected = {int(address, 16): int(line) for line, address in rows}  # of several rows the last one counts
    table = LineTable(sections(lined(case))[".debug_line"])
    assert expected and {address: place.line for address in expected if (place := table.at(address))} == expected


def unit(program: bytes, version: int = 2) -> bytes:
    """A line table of the files /f/a.py and /b.py."""
    header = bytes([16, *([1] if version >= 4 else []), 1, 0xFB, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1])
    header += b"/f\0\0a.py\0\1\0\0/b.py\0\0\0\0\0"
    body = version.to_bytes(2, "little") + len(header).to_bytes(4, "little") + header + program
    return len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize("version", [2, 4])
def test_every_opcode(version: int) -> None:
    program = bytes([0, 9, 2, *(0x20).to_bytes(8, "little")])  # set_address 32
    program += bytes([3, 0x80, 0x01, 1])  # advance_line 128, copy
    program += bytes([2, 2, 4, 2, 3, 0x7F, 1])  # advance_pc 2 x 16, set_file 2, advance_line -1, copy
    program += bytes([5, 7, 6, 10 + 14 + 5 + 3])  # set_column, negate_stmt, special: 1 step, line +3
    program += bytes([8, 1, 9, 0x40, 0, 1])  # const_add_pc 17 steps, copy, fixed_advance_pc 64, copy
    program += bytes([3, *(-131 & 127 | 128).to_bytes(1, "little"), 0x7E, 1])  # to line 0
    program += bytes([2, 1, 0, 1, 1])  # end_sequence
    table = LineTable(unit(program, version) * 2)
    at = {address: table.at(address) for address in (0x10, 0x20, 0x3F, 0x40, 0x4F, 0x50, 0x160, 0x1A0, 0x1000)}
    assert at == {
        0x10: None,
        0x20: SourceLine("/f/a.py", 129),
        0x3F: SourceLine("/f/a.py", 129),
        0x40: SourceLine("/b.py", 128),
        0x4F: SourceLine("/b.py", 128),
        0x50: SourceLine("/b.py", 131),
        0x160: SourceLine("/b.py", 131),
        0x1A0: None,
        0x1000: None,
    }


def test_damage_is_an_error_of_ours() -> None:
    image = lined(CASES[0])
    for broken in (b"", b"text", image[:100], image[:64] + b"\xff" * 64):
        with pytest.raises(MalformedProfile):
            sections(broken)
    whole = sections(image)[".debug_line"]
    for end in range(1, 40):
        with pytest.raises(MalformedProfile):
            LineTable(whole[:end])
    with pytest.raises(MalformedProfile):
        LineTable(unit(b"", version=5))


def test_without_ptxas_the_linker_writes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    monkeypatch.setattr(import_module("deuteron.compiler.targets.nvptx.assemble"), "has_ptxas", lambda: False)
    found = sections(lined_cubin(example_variant(*CASES[0])))
    table = LineTable(found[".debug_line"])
    assert any(table.at(address) for address in range(0, len(found[".text.softmax_kernel"]), 16))
