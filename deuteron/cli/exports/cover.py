"""A dispatch rule as JSON, and as a Python function that needs nothing else."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from .names import python_name

if TYPE_CHECKING:
    from deuteron.tuner.cover import Cover, DispatchRule
    from deuteron.tuner.cover.tree import Branch
    from deuteron.tuner.learn import RuleWorth

#: What the module's functions mean by these; as parameters they would hide it.
_OWN_NAMES = ("CONFIGS", "_NEAREST", "_distance", "min", "int")
_NEAREST = '''
_NEAREST = [
%s]


def config_for(%s):
    """The configuration of the measured shape that is nearest: by the squares of log2 ratios of the sizes."""
    wanted = {%s}
    return CONFIGS[min(_NEAREST, key=lambda known: _distance(known[0], wanted))[1]]


def _distance(known, wanted):
    return sum(math.log2(known[dim] / wanted[dim]) ** 2 for dim in known)
'''


def cover_python(kernel: str, cover: Cover, rule: DispatchRule, worth: RuleWorth | None = None) -> str:
    """A module with ``CONFIGS`` and ``config_for(dims)``. ``worth``: of the rule at shapes that were left out.

    Raises:
        CommandError: the kernel or a size has a name that Python code cannot have, or a size one of the module's own.
    """
    shapes = len(cover.table.shapes)
    kernel = python_name(kernel, "the kernel")
    for dim in rule.dims:
        python_name(dim, "the size", _OWN_NAMES)
    elsewhere = "" if worth is None else "\n\n" + textwrap.fill(f"In making this, {worth}.", 100)
    head = (
        f'"""Configurations of {kernel} that deuteron chose for {shapes} shapes.\n\n'
        f'At each of them the worst loss to the best one measured is {cover.tolerance:.2%} at most.{elsewhere}\n"""\n'
    )
    configs = "".join(f"    {dict(config)!r},\n" for config in rule.configs)
    body = f"CONFIGS = [\n{configs}]\n"
    dims = ", ".join(rule.dims)
    if rule.tree is None:
        known = "".join(f"    ({dict(shape)!r}, {config}),\n" for shape, config in rule.nearest)
        names = ", ".join(f'"{dim}": {dim}' for dim in rule.dims)
        return f"{head}\nimport math\n\n{body}" + _NEAREST % (known, dims, names)
    tree, integers = "\n".join(_lines(rule.tree, "    ")), ", ".join(f"int({dim})" for dim in rule.dims)
    return (
        f'{head}\n{body}\n\ndef config_for({dims}):\n    """The configuration for a launch of these sizes."""\n'
        f"    # Products of NumPy's integers would wrap.\n    {dims} = {integers}\n{tree}\n"
    )


def _lines(node: Branch, indent: str) -> list[str]:
    from deuteron.tuner.cover.tree import Leaf  # lazy: help starts without the tuner

    if isinstance(node, Leaf):
        return [f"{indent}return CONFIGS[{node.config}]"]
    below, above = _lines(node.below, indent + "    "), _lines(node.above, indent)
    return [f"{indent}if {node.text} <= {node.most}:", *below, *above]


def cover_json(kernel: str, cover: Cover, rule: DispatchRule, worth: RuleWorth | None = None) -> str:
    """The rule (:meth:`DispatchRule.to_json`), what each shape gets, what was not measured, and what the rule was worth
    at shapes that were left out."""
    table, losses = cover.table, rule.losses(cover)
    found = {
        "kernel": kernel,
        "tolerance": cover.tolerance,
        "at_least": cover.least,
        "smallest": len(cover.configs) == cover.least,
        "worst_loss": max(losses),
        "mean_loss_with_the_best": cover.mean,
        "rule": rule.to_json(),
        "left_out": None if worth is None else worth.to_json(),
        "shapes": [
            {
                "shape": dict(table.shapes[served.shape]),
                "weight": table.weights[served.shape],
                "best": dict(table.configs[served.best]),
                "dispatched": rule.pick(table.shapes[served.shape]),
                "loss": loss,
                "loss_range": table.loss_range(served.shape, cover.configs[rule.pick(table.shapes[served.shape])]),
            }
            for served, loss in zip(cover.served, losses, strict=True)
        ],
        "missing": [
            {"shape": dict(table.shapes[shape]), "config": dict(table.configs[config])}
            for shape, config in cover.missing
        ],
    }
    return json.dumps(found, indent=2) + "\n"
