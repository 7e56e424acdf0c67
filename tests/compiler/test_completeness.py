"""Operations x targets: each pair has a rule, or an explicit reason why there is none."""

import pytest

import deuteron.compiler.gpu  # noqa: F401  (registers its operations)
from deuteron.compiler.gpu.layouts.fitting import fits
from deuteron.compiler.gpu.memory.scratch import scratch
from deuteron.compiler.ir import REGISTRY, Effect, Op
from deuteron.compiler.targets import RuleSet, interpreter, nvptx
from deuteron.compiler.targets.cpu import elementwise
from deuteron.compiler.targets.cpu.rule_sets import buffers, statements, views
from deuteron.compiler.tile.axis.rules import RULES as AXIS_RULES

TILE = [op for op in REGISTRY.values() if op.__module__.startswith("deuteron.compiler.tile.")]
GPU = [op for op in REGISTRY.values() if op.__module__.startswith("deuteron.compiler.gpu.")]
CPU = [op for op in REGISTRY.values() if op.__module__.startswith("deuteron.compiler.targets.cpu.")]

#: The rule sets of each target, and the operations it is asked to lower.
TARGETS: dict[str, tuple[list[RuleSet], list[type[Op]]]] = {
    "interpreter": ([interpreter.evaluates], TILE),
    "cpu": ([statements, views, elementwise.rules], [*TILE, *CPU]),
    "nvptx": ([nvptx.RULES], [*TILE, *GPU]),
}


@pytest.mark.parametrize(
    ("target", "op"),
    [(name, op) for name, (_, ops) in TARGETS.items() for op in ops],
    ids=lambda value: value if isinstance(value, str) else value.mnemonic,
)
def test_rule_or_reason(target, op):
    sets, _ = TARGETS[target]
    if op.effect is Effect.TERMINATOR:
        return  # the operation that owns the region reads it
    assert any(op in rules.rules or rules.reasons.get(op) for rules in sets), (
        f"{target} has neither a rule nor a reason for {op.mnemonic}"
    )


def test_the_cpu_refuses_what_is_expanded_before_and_assembly_of_gpus():
    refused = {op for rules in TARGETS["cpu"][0] for op in rules.reasons}
    expanded, assembly = {"block_load", "block_store"}, {"inline_assembly", "effectful_assembly"}
    assert {op.mnemonic for op in refused} == expanded | assembly
    assert not any(op in rules.rules for rules in TARGETS["cpu"][0] for op in refused)


def test_registry_is_covered():
    assert len(TILE) >= 60
    assert {*TILE, *GPU, *CPU} == set(REGISTRY.values())


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.mnemonic)
def test_every_operation_says_what_it_does(op):
    generated = f"{op.__name__}("  # what dataclass writes where there is no docstring
    assert op.__doc__
    assert not op.__doc__.startswith(generated)


#: Operations whose results may be anything, as far as axis facts go.
OPAQUE = {"dot", "atomic_rmw", "atomic_cas"}


@pytest.mark.parametrize("op", TILE, ids=lambda op: op.mnemonic)
def test_axis_facts_know_every_operation_with_results(op):
    without = op.effect is not Effect.PURE and op.mnemonic != "load"
    assert op in AXIS_RULES or op.mnemonic in OPAQUE or without


#: What computes tiles on a GPU and is not elementwise: the stage cannot know by itself how.
MOVING = [op for op in nvptx.RULES.rules if op.effect is Effect.PURE and not op.elementwise]


@pytest.mark.parametrize("op", MOVING, ids=lambda op: op.mnemonic)
def test_the_gpu_stage_knows_layouts_and_shared_memory_of_every_operation(op):
    assert op in fits.rules, "compiler/gpu/layouts/fitting.py says how its layouts fit together"
    assert op in scratch.rules, "compiler/gpu/memory/scratch.py says how much shared memory it needs"


@pytest.mark.parametrize("op", views.rules, ids=lambda op: op.mnemonic)
def test_every_view_of_the_cpu_says_what_it_reads_in_memory(op):
    assert op in buffers.rules
