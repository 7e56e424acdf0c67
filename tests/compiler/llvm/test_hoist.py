"""What loops do not change leaves them, in LLVM text."""

from __future__ import annotations

from deuteron.compiler.llvm.driver import Machine, compile_text
from deuteron.compiler.llvm.hoist import hoist_invariants
from deuteron.compiler.targets.nvptx.machine import TRIPLE

NEST = """define void @f(ptr %a, i32 %n) {
entry:
  %k = mul i32 %n, 3
  br label %outer
outer:
  %i = phi i32 [0, %entry], [%ii, %last]
  %again = add i32 %k, 1
  br label %inner
inner:
  %j = phi i32 [0, %outer], [%jj, %inner]
  %own = mul i32 %i, %again
  %both = add i32 %own, %j
  %free = shl i32 %n, 2
  %where = getelementptr i32, ptr %a, i32 %free
  %held = load i32, ptr %where
  %of = xor i32 %held, 1
  %share = sdiv i32 %n, %free
  %rest = add i32 %share, 1
  %jj = add i32 %j, 1
  %more = icmp slt i32 %jj, %n
  br i1 %more, label %inner, label %last
last:
  %sum = add i32 %both, %free
  %ii = add i32 %i, 1
  %go = icmp slt i32 %ii, %sum
  br i1 %go, label %outer, label %end
end:
  ret void
}"""


def place_of(lines: list[str]) -> dict[str, str]:
    """By the names of values, the block that each one is in."""
    places, block = {}, ""
    for line in lines:
        if line.endswith(":"):
            block = line[:-1]
        elif " = " in line:
            places[line.split(" = ")[0].strip()] = block
    return places


def test_invariants_go_before_the_outermost_loop_that_leaves_them_alone() -> None:
    before, after = (place_of(lines) for lines in (NEST.split("\n"), hoist_invariants(NEST.split("\n"))))
    moved = {name: place for name, place in after.items() if place != before[name]}
    assert moved == {"%again": "entry", "%free": "entry", "%where": "entry", "%own": "outer"}
    assert before.keys() == after.keys()


def test_the_order_of_what_moves_stays() -> None:
    lines = hoist_invariants(NEST.split("\n"))
    entry = lines[lines.index("entry:") : lines.index("outer:")]
    names = [line.split(" = ")[0].strip() for line in entry if " = " in line]
    assert names == ["%k", "%again", "%free", "%where"]
    assert entry[-1] == "  br label %outer"


def test_a_loop_that_is_entered_by_a_condition_keeps_everything() -> None:
    text = NEST.replace("  br label %outer", "  %any = icmp slt i32 0, %n\n  br i1 %any, label %outer, label %end", 1)
    after = place_of(hoist_invariants(text.split("\n")))
    assert after["%again"] == "outer" and after["%where"] == after["%own"] == "outer"


def test_llvm_takes_what_was_moved() -> None:
    text = f'target triple = "{TRIPLE}"\n' + "\n".join(hoist_invariants(NEST.split("\n")))
    assert b".func f(" in compile_text(text, Machine(TRIPLE, "sm_80"), "assembly", speed=1, brief=True)


FORWARD = """define void @f(ptr %a, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%ii, %last]
  br label %second
first:
  %late = add i32 %loaded, %n
  %also = shl i32 %late, 1
  br label %last
second:
  %loaded = load i32, ptr %a
  br label %first
last:
  %ii = add i32 %i, %also
  %more = icmp slt i32 %ii, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}"""


def test_what_needs_a_value_that_is_made_further_down_stays() -> None:
    """Blocks may stand in another order than they run in."""
    lines = hoist_invariants(FORWARD.split("\n"))
    assert lines == FORWARD.split("\n")
    text = f'target triple = "{TRIPLE}"\n' + "\n".join(lines)
    assert b".func f(" in compile_text(text, Machine(TRIPLE, "sm_80"), "assembly", speed=1, brief=True)
