"""Reading JSON: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.tuner.codec import Document, Finite, Scalar, canonical_json, convert, decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.events import JobCancelled, TrialFinished, decode_event, event_from_json
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.trial import Trial


class Part(Document, frozen=True, forbid_unknown_fields=True):
    size: int
    kind: Literal["round", "square"] = "round"


class Whole(Document, frozen=True):
    name: str
    weight: Finite = 0.0
    parts: tuple[Part, ...] = ()
    named: Mapping[str, Part] = {}
    config: Mapping[str, Scalar] = {}
    checked: bool = False


GOOD = {"name": "w", "weight": 2, "parts": [{"size": 1}], "named": {"a": {"size": 2, "kind": "square"}}}


def test_an_integer_is_a_number_and_unknown_fields_of_other_versions_are_ignored() -> None:
    read = convert({**GOOD, "since": "tomorrow"}, Whole, "file")
    assert read == Whole("w", 2.0, (Part(1),), {"a": Part(2, "square")})
    assert isinstance(read.weight, float)
    assert decode(json.dumps(GOOD), Whole, "file") == read == Whole.from_json(read.to_json())


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"name": None}, "file.name: expected text, found null", None),
        ({"weight": "heavy"}, "file.weight: expected a number, found the text 'heavy'", None),
        ({"weight": True}, "file.weight: expected a number, found true", None),
        ({"checked": 1}, "file.checked: expected true or false, found the number 1", None),
        ({"parts": {}}, "file.parts: expected a list, found an object with 0 fields", None),
        (
            {"parts": [{"size": 1}, {"size": 1.5}]},
            "file.parts[1].size: expected a whole number, found the number 1.5",
            None,
        ),
        ({"parts": [{}]}, "file.parts[0]: the field 'size' is missing", None),
        ({"parts": [{"size": 1, "sice": 2}]}, "file.parts[0]: unknown field 'sice'", "known fields: kind, size"),
        (
            {"named": {"a": {"size": 1}, "b": {"size": 1, "kind": "oval"}}},
            "file.named.b.kind: 'oval' is not possible",
            "one of round, square",
        ),
        (
            {"config": {"BLOCK": 1, "num_warps": None}},
            "file.config.num_warps: expected a number, text or true or false, found null",
            None,
        ),
        ({"config": []}, "file.config: expected an object, found a list of 0", None),
    ],
)
def test_a_refusal_names_the_field_and_what_would_do(change: dict[str, object], message: str, hint: str | None) -> None:
    for read in (
        lambda value: convert(value, Whole, "file"),
        lambda value: decode(json.dumps(value), Whole, "file"),
    ):
        with pytest.raises(SchemaError) as caught:
            read({**GOOD, **change})
        assert (caught.value.message, caught.value.hint) == (message, hint)


class Checked(Document, frozen=True):
    named: Mapping[str, int]
    mistaken: bool = False

    def __post_init__(self) -> None:
        if self.mistaken:
            raise ZeroDivisionError("a mistake")
        if "last" not in self.named:
            raise SchemaError("the last one is missing")


def test_an_entry_is_found_among_others_that_the_whole_needs() -> None:
    """Each entry is tried alone, where what checks the whole may refuse it; a mistake of that check is no refusal."""
    refused = {"named": {"first": 1, "last": "x"}}
    with pytest.raises(SchemaError, match=r"^file\.named\.last: expected a whole number, found the text 'x'"):
        convert(refused, Checked, "file")
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        convert({**refused, "mistaken": True}, Checked, "file")


def test_an_entry_is_found_before_a_name_that_is_no_text() -> None:
    """msgspec cannot read half of a surrogate pair, and says so by an error of its own."""
    refused = json.dumps({"named": {"first": 1, "last": "x"}, "\ud800": 1})
    with pytest.raises(SchemaError, match=r"^file\.named\.last: expected a whole number, found the text 'x'"):
        decode(refused, Checked, "file")


@pytest.mark.parametrize("weight", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_only_numbers_are_numbers(weight: str) -> None:
    with pytest.raises(SchemaError, match=r"file"):
        decode(f'{{"name": "w", "weight": {weight}}}', Whole, "file")
    with pytest.raises(SchemaError, match=r"file\.weight"):
        convert({"name": "w", "weight": float(weight)}, Whole, "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "w",\n]', "file: not valid JSON at line 2, column 1"),
        ('{"name": ', "file: not valid JSON at line 1"),
        (b'{"name": "\xff"}', "file: not UTF-8 text"),
        ("[" * 100_000, "file: JSON is nested too deeply"),
        ('{"name": "w", "config": {"x": ' + "9" * 5000 + "}}", "file"),
        ("", "file: not valid JSON"),
    ],
)
def test_what_is_no_json(text: str | bytes, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode(text, Whole, "file")
    assert caught.value.message.startswith(message)


def test_an_event_of_an_unknown_kind() -> None:
    with pytest.raises(SchemaError, match=r"event\.kind: 'job_lost' is not possible") as caught:
        event_from_json({"kind": "job_lost"})
    assert "job_cancelled" in (caught.value.hint or "")
    with pytest.raises(SchemaError, match="the field 'kind' is missing"):
        decode_event("{}")
    assert decode_event('{"kind": "job_cancelled", "at": "now"}') == JobCancelled("now")


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**70), 2**70), NUMBERS, st.text(max_size=8))


@given(
    config=st.dictionaries(st.text(max_size=8), SCALARS, max_size=4),
    median=NUMBERS,
    metrics=st.dictionaries(st.text(max_size=4), NUMBERS, max_size=3),
)
def test_events_survive_their_json(config: dict[str, Scalar], median: float, metrics: dict[str, float]) -> None:
    trial = Trial(3, config, "ok", "screen", Interval(median, median, median, 7), metrics=metrics)
    event = TrialFinished({"n": 2**40}, "f32", trial, None)
    text = canonical_json(event.to_json())
    read = decode_event(text)
    assert read == event == event_from_json(json.loads(text))
    assert canonical_json(read.to_json()) == text
    assert isinstance(read, TrialFinished)
    assert {k: type(v) for k, v in read.trial.config.items()} == {k: type(v) for k, v in config.items()}
