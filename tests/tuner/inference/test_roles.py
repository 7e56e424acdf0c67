"""What a parameter is, is told from what it changes; names say nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from edited_kernels import KERNELS, kernel

from deuteron.compiler import KernelSource
from deuteron.tuner.inference import Subject, infer_space, subject_of_kernel
from deuteron.tuner.inference.devices import device_of
from deuteron.tuner.inference.roles import probe_of, roles_of


def roles(text: str, target: str = "cpu", **values: object) -> dict[str, str]:
    subject = subject_of_kernel(kernel(text), target, constexprs=None)
    subject = Subject(subject.source, subject.target, subject.signature, {**subject.base, **values})
    return {name: found.role for name, found in roles_of(subject, probe_of(subject)).items()}


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("copy", {"FLAVOUR": 64}, {"FLAVOUR": "tile"}),
        ("copy", {"FLAVOUR": 1}, {"FLAVOUR": "tile"}),
        ("row_loop", {"WIDTH": 256}, {"WIDTH": "tile"}),
        ("whole_row", {"BLOCK_SIZE": 256}, {"BLOCK_SIZE": "extent"}),
        ("skip", {"BLOCK": 64, "GROUP": 1}, {"BLOCK": "tile", "GROUP": "order"}),
        ("rows_of_heads", {"BLOCK_D": 64, "ROWS": 16}, {"BLOCK_D": "extent", "ROWS": "extent"}),
        ("heads", {"BLOCK_D": 64, "ROWS": 16}, {"BLOCK_D": "extent", "ROWS": "tile"}),
        (
            "flags",
            {"BLOCK": 64, "BLOCK_EVEN": True, "BLOCK_KIND": "once", "TILE": 64},
            {"BLOCK": "tile", "BLOCK_EVEN": "flag", "BLOCK_KIND": "value", "TILE": "unused"},
        ),
        ("flags", {"BLOCK_EVEN": 1, "BLOCK_KIND": ""}, {"BLOCK": "tile", "TILE": "unused", "BLOCK_KIND": "value"}),
        ("scale", {"BLOCK": 64, "BLOCK_FACTOR": 64}, {"BLOCK": "tile", "BLOCK_FACTOR": "value"}),
        (
            "matmul",
            {"P": 64, "Q": 64, "R": 32, "S": 8},
            {"P": "tile", "Q": "tile", "R": "tile", "S": "order"},
        ),
    ],
)
def test_roles(text: str, values: Mapping[str, object], wanted: Mapping[str, str]) -> None:
    found = roles(text, **values)
    assert {name: found[name] for name in wanted} == wanted


def test_which_axes_of_a_product() -> None:
    subject = subject_of_kernel(kernel("matmul"), "cuda:90a", constexprs={})
    subject = Subject(subject.source, "cuda:90a", subject.signature, {"P": 64, "Q": 64, "R": 32, "S": 8})
    found = roles_of(subject, probe_of(subject))
    assert {name: found[name].influence.dot for name in "PQR"} == {"P": {"M"}, "Q": {"N"}, "R": {"K"}}
    assert {name: found[name].influence.bounds for name in "PQR"} == {"P": {"M"}, "Q": {"N"}, "R": {"K"}}


def test_names_say_nothing() -> None:
    """Parameters called otherwise have the same roles, values and reasons, in the same order."""
    device, target = device_of("h200")
    values = {"P": 64, "Q": 64, "R": 32, "S": 8}
    other = dict(zip(values, ("HEAD_DIM", "IS_BLOCK", "num_groups", "BLOCK_SIZE"), strict=True))
    renamed = [(rf"\b{name}\b", new) for name, new in other.items()]
    seen = []
    for edits, names in (([], {}), (renamed, other)):
        text = KERNELS
        for pattern, new in edits:
            text = re.sub(pattern, new, text)
        subject = subject_of_kernel(KernelSource.from_text(text, "matmul"), target)
        base = {names.get(name, name): value for name, value in values.items()}
        subject = Subject(subject.source, target, subject.signature, base)
        found = infer_space(subject, device)
        back = {new: name for name, new in names.items()}
        shown = [(p.role, p.choices, p.default) for p in found.parameters]
        rules = [re.sub(r"\w+", lambda word, back=back: back.get(word[0], word[0]), c.text) for c in found.constraints]
        seen.append((shown, rules))
    assert seen[0] == seen[1]
