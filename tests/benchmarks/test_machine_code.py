"""Machine code of two compilers beside each other, read as NVIDIA's tools print it."""

from __future__ import annotations

import pytest
from machine_code import MachineCode, comparison

LOOP = """
        .global         kernel
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   NOP ;
{label}
        /*0020*/              @!P1 LDG.E.128 R20, desc[UR6][R10.64] ;
        /*0030*/                   STL [R1], R22 ;
        /*0040*/                   LDS.U16 R7, [R5] ;
        /*0050*/              @!P0 BRA {start} ;
        /*0060*/             @!UP2 EXIT ;
{end}
        /*0070*/                   BRA {itself} ;
        /*0080*/                   NOP ;
"""
BY_LABELS = LOOP.format(label=".L_x_0:", start="`(.L_x_0)", end=".L_x_1:", itself="`(.L_x_1)")
BY_ADDRESSES = LOOP.replace(" ;", " ;   /* 0x000fe40000000f00 */").format(label="", start="0x20", end="", itself="0x70")


@pytest.mark.parametrize("text", [BY_LABELS, BY_ADDRESSES])
def test_instructions_are_counted_by_kind_and_by_loop(text: str):
    code = MachineCode.parse(text)
    assert code.kinds == {"LDC": 1, "LDG.128": 1, "STL.32": 1, "LDS.16": 1, "BRA": 2, "EXIT": 1}
    assert (code.registers, code.spills, code.loops) == (23, 1, [4])


def test_a_comparison_has_totals_and_what_differs_clearly():
    ours = MachineCode.parse("\n".join([BY_LABELS, *["/*0090*/  FADD R30, R1, R2 ;"] * 8]))
    first, second = comparison("sum", ours, MachineCode.parse(BY_LABELS)).splitlines()
    assert first.split(maxsplit=1)[1] == "registers 31/23  spills 1/1  instructions 15/7  loops 4/4"
    assert second.split() == ["FADD", "8/0"]
    assert comparison("same", ours, ours).endswith("loops 4/4")
