"""What tests read out of Chrome traces, and what must hold of all of them."""

from __future__ import annotations

import itertools
import json


def strict(text: str) -> dict:
    """A document of JSON as the standard has it: no NaN, no key twice."""

    def unique(pairs: list[tuple[str, object]]) -> dict:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def in_ns(microseconds: float) -> int:
    """A time of the document in nanoseconds, which must be whole: no digit was lost."""
    assert abs(microseconds * 1000 - round(microseconds * 1000)) < 1e-3
    return round(microseconds * 1000)


def lanes_of(events: list[dict]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}


def check_lines(spans: list[dict]) -> None:
    """Of two events of one line one is within the other, or they are apart."""
    by_line: dict[int, list[tuple[int, int]]] = {}
    for event in spans:
        begin = in_ns(event["ts"])
        by_line.setdefault(event["tid"], []).append((begin, begin + in_ns(event["dur"])))
    for line in by_line.values():
        for (a, b), (c, d) in itertools.combinations(line, 2):
            assert b <= c or d <= a or (a <= c and d <= b) or (c <= a and b <= d)
