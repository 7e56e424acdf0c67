"""A seeded part of the random tile programs, and tests that they would notice a mistake."""

import numpy as np
import pytest
import tile_programs
import tiles


@pytest.mark.parametrize("first", range(1_000_000, 1_000_016, 4))
def test_random_tile_programs_are_those_of_numpy(first):
    for seed in range(first, first + 4):
        found = tiles.check(seed)
        assert not found, f"{found[0]}\n{tiles.generate(seed).text}"


#: What makes a program wrong, and what is in the text of programs that it makes wrong.
MISTAKES = {
    "a scan from the other end": ("reverse=True", "reverse=False", "reverse=True"),
    "operands of a scan change places": ("return a * c, b * c + d", "return a * c, d * a + b", ", after, "),
    "rising for falling": ("descending=True", "descending=False", "descending=True"),
    "another dimension": ("dim=0", "dim=-1", "dim=0"),
    "the other branch": ("pid == 1", "pid == 0", "pid == 1"),
    "no mask": ("mask=", "mask=True | ", "mask="),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_kernel_is_noticed(mistake, monkeypatch):
    """The comparison can fail, on the quickest of the targets."""
    old, new, sign = MISTAKES[mistake]
    text = tiles.Program.text.fget
    wanted = [seed for seed in range(200) if sign in text(tiles.generate(seed))]
    monkeypatch.setattr(tiles.Program, "text", property(lambda p: text(p).replace(old, new)))
    assert any(tiles.check(seed, ("cpu",)) for seed in wanted[:12])


def test_programs_use_every_operation():
    text = "".join(tiles.generate(seed).text for seed in range(150))
    names = """load store where maximum reshape view permute trans broadcast_to expand_dims join interleave cat split
        flip sort topk gather sum max min argmax argmin reduce cumsum associative_scan histogram dot static_range"""
    assert [name for name in names.split() if f"tl.{name}(" not in text] == []


def test_offsets_are_those_of_the_strides():
    found = tile_programs.offsets_of((2, 4), (1, 2))
    np.testing.assert_array_equal(found, [[0, 2, 4, 6], [1, 3, 5, 7]])
    assert tile_programs.packed((2, 4), (1, 0)) == (1, 2)
    assert tile_programs.offsets((2, 4), (1, 2)) == "(tl.arange(0, 2)[:, None] * 1 + tl.arange(0, 4)[None, :] * 2)"
