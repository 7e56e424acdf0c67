"""What SIMT targets share knows none of them: a second one needs to provide its interface alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from deuteron.compiler import Schedule, Target
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.targets import simt
from deuteron.compiler.targets.nvptx import RULES
from deuteron.compiler.targets.nvptx.machine import PtxMachine

SHARED = sorted(Path(simt.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_shared_rules_name_no_instruction_set(path: Path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"nvvm|\bptx|\bPTX|\.asm\(|capability|\bcuda\b", text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert "nvptx" not in (node.module or "")


def test_a_target_adds_rules_without_giving_them_to_others():
    own = set(RULES.rules) - set(simt.RULES.rules)
    assert {op.__module__.rpartition(".")[2] for op in own} == {"ops", "asynchronous", "assembly", "memory"}
    assert "gpu.mma" in {op.mnemonic for op in own}
    assert set(simt.RULES.rules) <= set(RULES.rules)


class _Foreign(PtxMachine):
    """Another machine, as far as threads, programs and barriers go."""

    name = "foreign"
    triple = "foreign-unknown-unknown"
    calling_convention = "foreign_kernel"

    def thread_id(self, state: simt.Lowering) -> str:
        return state.text.call("i32", "foreign.lane", [])

    def program_id(self, state: simt.Lowering, axis: int) -> str:
        return state.text.call("i32", f"foreign.program.{axis}", [])

    def barrier(self, state: simt.Lowering) -> None:
        state.text.call("void", "foreign.barrier", [])

    def shuffle_xor(self, state: simt.Lowering, value: str, word: str, lane_xor: int) -> str:
        return state.text.call(word, f"foreign.swap.{word}", [(word, value), ("i32", str(lane_xor))])

    def exp2(self, state: simt.Lowering, x: str, *, flush: bool) -> str:
        return state.text.call("float", "foreign.exp2", [("float", x)])


def test_the_shared_rules_ask_the_machine_for_everything_of_its_own(softmax):
    target, schedule = Target.parse("cuda:90a"), Schedule(num_warps=4)
    function = lower_to_gpu(softmax(1000, 4).tile(), target, schedule)
    text = str(simt.lower_kernel(function, _Foreign(target), schedule).module)
    assert 'target triple = "foreign-unknown-unknown"' in text
    assert f"define foreign_kernel void @{function.name}(" in text
    for name in ("lane", "program.0", "barrier", "swap.float", "exp2"):
        assert f"@foreign.{name}(" in text
    assert not re.search(r"tid\.x|\.ctaid|shfl|barrier\.cta|ex2", text)
