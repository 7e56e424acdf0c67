"""The .tile files: tile IR with what it computes, or with what a pass makes of it, in comments.

``// run: 2`` (a grid) starts one execution on every target; the lines after it give the parameters by name:
``// n: 3``, ``// x: [1, 2]`` and ``// out: [0, 0] -> [1, 2]`` for what memory must hold afterwards. ``// pass: fold
dce`` runs passes and compares the printed function with the file's CHECK lines.
"""

from __future__ import annotations

import ast
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from deuteron.compiler.ir import Function, Pointer, parse_function, print_function, verify
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import passes

FILES = sorted((Path(__file__).parent / "files").glob("*.tile"))
_PARAMETER = re.compile(r"// (\w+): ([\[\]\d.,\s+\-e]+?)(?: -> (.*))?$")


@dataclass
class Run:
    """One execution: the grid, and for every parameter what goes in and what must come out."""

    grid: tuple[int, ...]
    inputs: dict[str, object] = field(default_factory=dict)
    outputs: dict[str, object] = field(default_factory=dict)


def runs_of(text: str) -> list[Run]:
    found: list[Run] = []
    for line in text.splitlines():
        if line.startswith("// run: "):
            grid = ast.literal_eval(line.removeprefix("// run: "))
            found.append(Run(grid if isinstance(grid, tuple) else (grid,)))
        elif found and (m := _PARAMETER.match(line)):
            found[-1].inputs[m[1]] = ast.literal_eval(m[2])
            if m[3]:
                found[-1].outputs[m[1]] = ast.literal_eval(m[3])
    return found


RUNS = [
    pytest.param(path, index, id=f"{path.stem}-{index}")
    for path in FILES
    for index in range(len(runs_of(path.read_text())))
]
CHECKED = [path for path in FILES if "// pass: " in path.read_text()]


def execute(function: Function, run: Run, run_on_target) -> None:
    arguments: dict[str, np.ndarray | int | float] = {}
    for parameter in function.parameters:
        elem, given = parameter.value.type.elem, run.inputs[parameter.name]
        is_array = isinstance(elem, Pointer)
        arguments[parameter.name] = np.array(given, dtype_of(elem.pointee)) if is_array else given
    before = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
    run_on_target(function, run.grid, list(arguments.values()))
    for name, old in before.items():
        expected = np.array(run.outputs.get(name, old), old.dtype)
        np.testing.assert_allclose(arguments[name], expected, rtol=1e-6, atol=0, err_msg=name)


@pytest.mark.parametrize(("path", "index"), RUNS)
def test_run(path, index, run_on_target):
    text = path.read_text()
    execute(verify(parse_function(text)), runs_of(text)[index], run_on_target)


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.stem)
def test_pass(path):
    text = path.read_text()
    (names,) = re.findall(r"// pass: (.*)", text)
    function = parse_function(text)
    for name in names.split():
        function = verify(getattr(passes, name)(function))
    options = Options(str(path))
    actual = print_function(function)
    matcher = Matcher(options, FInput("printed", actual), Parser.from_opts(options))
    matcher.stderr = io.StringIO()
    assert matcher.run() == 0, f"{matcher.stderr.getvalue()}\n{actual}"


def test_every_file_is_used():
    assert set(FILES) == {p.values[0] for p in RUNS} | set(CHECKED)
