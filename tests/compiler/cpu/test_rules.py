"""Every tile operation has a rule on the CPU target or a reason why not."""

from __future__ import annotations

import pytest

from deuteron.compiler.ir import REGISTRY
from deuteron.compiler.targets.cpu import RULES

TILE_OPS = sorted(n for n, c in REGISTRY.items() if ".compiler.tile." in c.__module__)


@pytest.mark.parametrize("name", TILE_OPS)
def test_rule_or_reason(name):
    op = REGISTRY[name]
    assert (op in RULES.rules) != (op in RULES.reasons)


def test_reasons_are_for_terminators_what_is_expanded_before_and_assembly_of_gpus():
    expanded, assembly = {"block_load", "block_store"}, {"inline_assembly", "effectful_assembly"}
    assert {op.mnemonic for op in RULES.reasons} == {"yield", "condition"} | expanded | assembly
