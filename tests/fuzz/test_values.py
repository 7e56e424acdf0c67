"""A seeded part of the random programs of whole ranges, and tests that they would notice a mistake."""

import pytest
import values


@pytest.mark.parametrize("first", range(2_000_000, 2_000_020, 5))
def test_random_values_are_those_of_numpy(first):
    for seed in range(first, first + 5):
        found = values.check(seed)
        assert not found, f"{found[0]}\n{values.show(seed)}"


#: What makes a program wrong, and what it is put in place of.
MISTAKES = {
    "bits for a number": ("bitcast=True", "bitcast=False"),
    "a scan from the other end": ("reverse=True", "reverse=False"),
    "the high half of another product": ("tl.umulhi(", "tl.minimum("),
    "the wrong neighbour": (" <= ", " < "),
    "a product for a sum": ("tl.cumsum(", "tl.cumprod("),
    "no mask": ("mask=", "mask=True | "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_kernel_is_noticed(mistake, monkeypatch):
    """The comparison can fail, on the quickest of the targets."""
    old, new = MISTAKES[mistake]
    text = values.Program.text.fget
    wanted = [seed for seed in range(80) if old in text(values.generate(seed))]
    monkeypatch.setattr(values.Program, "text", property(lambda p: text(p).replace(old, new)))
    found = [mismatch for seed in wanted[:16] for mismatch in values.check(seed, ("tile",))]
    assert any(mismatch.what.startswith("WRONG") for mismatch in found)


def test_programs_use_every_kind_and_operation():
    text = "".join(values.generate(seed).text for seed in range(100))
    names = """load store where minimum maximum abs umulhi reshape permute sum xor_sum max min cumsum cumprod
        associative_scan"""
    assert [name for name in names.split() if f"tl.{name}(" not in text] == []
    assert [kind for kind in values.KINDS if f"== tl.{values.rules.SPELLED[kind]}," not in text] == []
