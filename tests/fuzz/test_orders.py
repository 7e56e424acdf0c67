"""A seeded part of the random programs on one array, and tests that they would notice a mistake."""

from collections import Counter

import orders
import pytest

from deuteron.compiler.gpu.memory.meetings import Meetings


@pytest.mark.parametrize("first", range(1_000_000, 1_000_036, 6))
def test_an_array_holds_what_the_program_says(first):
    for number, seed in enumerate(range(first, first + 6)):
        found = orders.check(seed, (orders.TARGETS[number % 3],))
        assert not found, f"{found[0]}\n{orders.generate(seed).text}"


def test_some_accesses_may_meet_and_others_cannot(monkeypatch):
    answers = Counter()
    meet = Meetings._meet

    def counted(self, op, touch):
        found = meet(self, op, touch)
        answers[found, bool(touch.earlier)] += 1
        return found

    monkeypatch.setattr(Meetings, "_meet", counted)
    for seed in range(120):
        orders.compiled(orders.generate(seed), "90a")
    assert len(answers) == 4 and min(answers.values()) > 40


def test_a_missing_barrier_is_noticed(monkeypatch):
    """Not only if there are none at all: in each program one pair of accesses is taken to be apart."""
    meet = Meetings._meet

    def careless(self, op, touch):
        if not meet(self, op, touch):
            return False
        chosen = self.__dict__.setdefault("chosen", (op, touch.op))
        return chosen != (op, touch.op)

    monkeypatch.setattr(Meetings, "_meet", careless)
    found = [orders.check(seed, ("90a",)) for seed in range(24)]
    assert any("race in" in mismatch.what for mismatches in found for mismatch in mismatches)
