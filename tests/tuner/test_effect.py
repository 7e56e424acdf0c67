"""Which parameters change no code: in every order of the choices, and for choices of any kind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from deuteron.tuner.codec import Scalar
from deuteron.tuner.space import Configuration, Parameter, Space
from deuteron.tuner.workloads.effect import without_effect

Codes = Mapping[Scalar, str | None]


def idle(order: tuple[Scalar, ...], codes: Codes) -> bool:
    """Whether a parameter whose choices give ``codes`` has no effect."""
    space = Space((Parameter("choice", order), Parameter("other", (1, 2))))

    def code(config: Configuration) -> str | None:
        return codes[config["choice"]]

    default = {"choice": order[0], "other": 1}
    found = without_effect(space, default, ("choice",), code)
    assert found in ((), ("choice",))
    return bool(found)


def in_every_order(codes: Codes) -> set[bool]:
    return {idle(order, codes) for order in itertools.permutations(codes)}


@pytest.mark.parametrize(
    ("codes", "why"),
    [
        ({2: "short", 3: "long", 5: "long", 6: "long"}, "the first differs from all others"),
        ({2: "short", 3: "short", 5: "short", 6: "long"}, "the last does"),
        ({2: "short", 3: "long", 5: "short", 6: "short"}, "the second does"),
        ({2: "short", 3: "long", 5: "long", 6: None}, "the last does not compile"),
        ({2: "a", 3.5: "b", 10: "b", 11: "b"}, "numbers are not in the order of their texts"),
        ({False: "plain", True: "persistent", "auto": "plain"}, "a text stands for one of the others"),
        ({False: "plain", True: "persistent", "auto": "persistent"}, "a text stands for the other one"),
        ({4: "b", "none": "a", "some": "b", "wide": "b"}, "there are numbers and texts"),
    ],
)
def test_an_effect_is_seen(codes: Codes, why: str) -> None:
    assert in_every_order(codes) == {False}, why


@pytest.mark.parametrize("choices", [(2, 3, 5, 6), (False, True, "auto"), ("x", "y", 1, 2.5), (True, "1", 2)])
def test_what_changes_nothing_is_idle(choices: tuple[Scalar, ...]) -> None:
    codes = dict.fromkeys(choices, "same")
    assert in_every_order(codes) == {True}
    assert in_every_order({**codes, choices[-1]: None}) == {True}, "one that does not compile says nothing"
    assert in_every_order({**dict.fromkeys(choices), choices[0]: "same"}) == {False}, "nothing was compared"
