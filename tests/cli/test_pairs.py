"""NAME=VALUE options."""

from __future__ import annotations

import pytest

from deuteron.cli.errors import CommandError
from deuteron.cli.pairs import parse_pairs, parse_value, split_outside


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a=1,b=2", ["a=1", "b=2"]),
        ("a=max(1,2),b=(3,4)", ["a=max(1,2)", "b=(3,4)"]),
        ("a='x,y'", ["a='x,y'"]),
        ("a=1,,", ["a=1"]),
        ("", []),
    ],
)
def test_split_outside_brackets_and_quotes(text: str, parts: list[str]):
    assert split_outside(text) == parts


def test_pairs_of_one_and_of_several_texts():
    assert parse_pairs(["x=*f32:16,n=i32", "m = i64"], "--s") == {
        "x": "*f32:16",
        "n": "i32",
        "m": "i64",
    }
    assert parse_pairs(["rest.0=*f32,rest.10.1=i32"], "--s") == {"rest.0": "*f32", "rest.10.1": "i32"}


@pytest.mark.parametrize("text", ["x", "=1", "1=x", "a b=1", "a.=1", "a.b=1", ".1=1"])
def test_what_is_no_pair(text: str):
    with pytest.raises(CommandError, match="is not NAME=VALUE"):
        parse_pairs([text], "--s")


def test_values():
    from deuteron.compiler.ir.types import SCALARS

    values = [parse_value(t) for t in ("1024", "1.5", "True", "None", "relu", "'1'", "(1, 2)")]
    assert values == [1024, 1.5, True, None, "relu", "1", (1, 2)]
    assert parse_value("tl.float16") is SCALARS["f16"]
