"""What tells Python functions apart that have no text of their own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import types

import pytest

from deuteron.compiler.source.bytecode import attributes_of, code_text, globals_of, is_code_of

DIFFERENT = [
    "lambda x: x + 1",
    "lambda x: x + 2",
    "lambda x: x + 1.0",
    "lambda x: x + True",
    "lambda x: x + 0.0",
    "lambda x: x + -0.0",
    "lambda x: x * 1",
    "lambda x: x + a",
    "lambda x: x + b",
    "lambda x: x.a",
    "lambda x, y: x - y",
    "lambda y, x: x - y",
    "lambda *x: x",
    "lambda **x: x",
    "lambda *, x: x",
    "lambda x, /: x",
    "lambda x: (lambda y: y + 1)(x)",
    "lambda x: (lambda y: y + 2)(x)",
    "lambda x: x in {'a', 'b', 'c'}",
    "lambda x: x in {'a', 'b', 'd'}",
    "lambda x: (x, (1, 'a'))",
    "lambda x: (x, (1, b'a'))",
    "lambda x: (yield x)",
]
PRINTED = """
import hashlib
from deuteron.compiler.source.bytecode import code_text
texts = [code_text(eval(text).__code__) for text in {texts!r}]
print(hashlib.sha256(repr(texts).encode()).hexdigest())
"""


def function_of(text: str, name: str = "f") -> types.FunctionType:
    names: dict[str, types.FunctionType] = {}
    exec(text, names)  # noqa: S102 -- the texts of these tests
    return names[name]


def test_code_that_differs_has_another_text() -> None:
    texts = [code_text(function_of(f"f = {text}").__code__) for text in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT)


def test_where_code_was_written_is_no_part_of_it() -> None:
    here, there = (function_of(f"{before}f = lambda x: x + 1") for before in ("", "# a comment\n\n"))
    assert code_text(here.__code__) == code_text(there.__code__)


def test_what_raises_is_caught_elsewhere() -> None:
    texts = [
        f"def f(x):\n    try:\n        a(x)\n{one}        b(x)\n{other}    except KeyError:\n        pass\n"
        for one, other in (("", ""), ("    except ValueError:\n        pass\n    try:\n", ""))
    ]
    assert len({code_text(function_of(text).__code__) for text in texts}) == 2


def test_every_process_has_the_same_text() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINTED.format(texts=DIFFERENT)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_what_code_reads() -> None:
    code = function_of("def f(x):\n    return [a.b.c(i) + d + x.e for i in g.h]\n").__code__
    assert set(globals_of(code)) == {"a", "d", "g"}
    found = attributes_of(code)
    assert found["a"] == {"b"} and found["a.b"] == {"c"} and found["g"] == {"h"} and "d" not in found


ENCLOSED = "def outer(n):\n    def f(x):\n        {body}\n    return f\nf = outer(1)\n"


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x + 1\n",
        "def f(x):\n    return f(x - 1) if x else 0\n",
        "def f(x, y=[1], *z, w: int = 3, **v) -> int:\n    'doc'\n    return (lambda: x)() + sum(i for i in z)\n",
        ENCLOSED.format(body="return x + n"),
        ENCLOSED.format(body="return f(x - n) if x else 0"),
        ENCLOSED.format(body="return g(x - n) if x else 0"),
    ],
)
def test_a_definition_is_known_by_its_code(text: str) -> None:
    code = function_of(text).__code__
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "f"]
    assert is_code_of(code, nodes[0])
    nodes[0].body.insert(0, ast.parse("x = -x").body[0])
    assert not is_code_of(code, nodes[0])


def test_a_definition_of_another_name_is_not_it() -> None:
    (node,) = ast.parse("def g(x):\n    return x\n").body
    assert isinstance(node, ast.FunctionDef)
    assert not is_code_of(function_of("def f(x):\n    return x\n").__code__, node)
