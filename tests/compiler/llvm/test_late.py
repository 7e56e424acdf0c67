"""What is stored is computed just before its store, in LLVM text."""

from __future__ import annotations

import re

import pytest

from deuteron.compiler.llvm.driver import Machine, compile_text
from deuteron.compiler.llvm.late import compute_late
from deuteron.compiler.targets.nvptx.machine import TRIPLE

#: A tile at a time, as code generators write it.
BLOCK = """define void @f(ptr %a, ptr %b, i1 %some, float %x) {
entry:
  %l0 = load float, ptr %a
  %a1 = getelementptr float, ptr %a, i32 1
  %l1 = load float, ptr %a1
  %s0 = fadd float %l0, %x
  %s1 = fadd float %l1, %x
  %e0 = call float @llvm.nvvm.ex2.approx.f32(float %s0)
  %e1 = call float @llvm.nvvm.ex2.approx.f32(float %s1)
  %unused = fadd float %e0, %e1
  %b1 = getelementptr float, ptr %b, i32 1
  store float %e0, ptr %b
  call void asm sideeffect "@$2 st.global.b32 [$0], $1;", "l,f,b,~{memory}"(ptr %b1, float %e1, i1 %some)
  %later = fmul float %x, %x
  br label %end
end:
  %both = fadd float %unused, %later
  store float %both, ptr %a
  ret void
}"""
DECLARED = "declare float @llvm.nvvm.ex2.approx.f32(float)\n"


def names(lines: list[str]) -> list[str]:
    """Registers that are written, and what else happens."""
    return [line.split(" = ")[0].strip() if " = " in line else line.split()[0] for line in lines]


def test_each_store_finds_what_it_needs_just_before_it() -> None:
    lines = compute_late(BLOCK.split("\n"))
    begin, end = names(lines).index("%l1") + 1, lines.index("end:")
    assert names(lines[begin:end]) == [
        "%s0", "%e0", "store", "%b1", "%s1", "%e1", "call", "%unused", "%later", "br",
    ]  # fmt: skip


def test_nothing_is_lost_and_all_is_still_made_before_it_is_used() -> None:
    before, after = BLOCK.split("\n"), compute_late(BLOCK.split("\n"))
    assert sorted(before) == sorted(after)
    made: set[str] = set(re.findall(r"%\w+", before[0]))
    for line in after[1:]:
        found = re.findall(r"%[\w.]+", line)
        if " = " in line:
            assert made.issuperset(found[1:]), line
            made.add(found[0])
        elif "label" not in line:
            assert made.issuperset(found), line
    machine = Machine(TRIPLE, "sm_90a", "+ptx84")
    assert compile_text(DECLARED + "\n".join(after) + "\n", machine, "assembly")


@pytest.mark.parametrize(
    "between", ['call void asm sideeffect "bar.sync 0;", ""()', "%again = load float, ptr %a", "fence seq_cst"]
)
def test_what_threads_do_together_and_what_they_load_stays_where_it_is(between: str) -> None:
    """Then one store is not put off to the other."""
    text = BLOCK.replace("  store float %e0, ptr %b\n", f"  store float %e0, ptr %b\n  {between}\n")
    assert compute_late(text.split("\n")) == text.split("\n")


def test_sums_of_what_is_loaded_are_not_put_off() -> None:
    lines = compute_late(BLOCK.split("\n"))
    assert lines[: names(lines).index("%l1") + 1] == BLOCK.split("\n")[: names(BLOCK.split("\n")).index("%l1") + 1]


@pytest.mark.parametrize(("loads", "late"), [(16, True), (17, False)])
def test_what_much_was_loaded_for_stays_where_it_is(loads: int, late: bool) -> None:
    """64 words at most."""
    given = ", ".join(f"%w{n}" for n in range(4))
    loaded = [
        f'  %r{n} = call {{i32, i32, i32, i32}} asm sideeffect "ld.global.v4.b32 {{$0, $1, $2, $3}}, [$4];"({given})'
        for n in range(loads)
    ]
    lines = ["entry:", *loaded, "  %s0 = fadd float %x, %x", "  %s1 = fadd float %y, %y", "  store float %s0, ptr %a"]
    lines += ["  store float %s1, ptr %b", "  br label %end"]
    made = names(compute_late(lines)[1 + loads :])
    assert made == (["%s0", "store", "%s1", "store", "br"] if late else ["%s0", "%s1", "store", "store", "br"])
