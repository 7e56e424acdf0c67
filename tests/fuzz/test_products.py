"""A seeded part of the sweep over kernels around matrix products, and tests that it would notice a mistake."""

from dataclasses import replace

import products
import pytest

make = products.product_cases.make


#: Seeds by architecture. Of 90a also: a ring that threads fill for products of warp groups, arrays that are stored and
#: read again, by loads and by a stream, and a ring of slots smaller than the next one's swizzle repeats; then loops
#: that are rotated, one and two a kernel, and such ones of 8 bits; then blocks of few rows, loops with branches
#: that say where they read, operands that threads make, and sums in f16. Of 120 an array without extent.
ROTATED = (191, 238, 329, 506, 753, 904, 923, *(40_000_000 + more for more in (0, 19, 25, 28)))
FEW_ROWS = range(10_000_000, 10_000_005)
CHOSEN = range(30_002_000, 30_002_006)
MADE = (50_000_000 + more for more in (142, 151, 155, 186, 189, 193, 204, 212, 246))
HALVES = range(60_000_000, 60_000_005)
CASES = {
    "90a": (*range(6), 146, 152, 177, 902, *ROTATED, *FEW_ROWS, *CHOSEN, *MADE, *HALVES),
    "80": (*range(48, 51), *HALVES[:3]),
    "120": (*range(64, 66), 300488),
}
#: Seeds that together use all that there is, quickly; were the generator to change, others are looked at.
VARIED = (31, 44, 152, 10_000_000)
#: Cases of one test.
BLOCK = 8


@pytest.mark.parametrize(
    ("arch", "first"), [(arch, first) for arch, seeds in CASES.items() for first in range(0, len(seeds), BLOCK)]
)
def test_random_products_are_those_of_float64(arch, first):
    for seed in CASES[arch][first : first + BLOCK]:
        outcome = products.check(seed, arch)
        assert not outcome.is_finding, f"{outcome}\n{make(seed).describe()}"
        assert seed not in ROTATED or arch != "90a" or "products in flight" in outcome.uses


MISTAKES = {
    "a row that is not stored": ("c_mask = (rm[:, None] < M)", "c_mask = (rm[:, None] < M - 1)"),
    "a row too many": ("c_mask = (rm[:, None] < M)", "c_mask = (rm[:, None] < M + 1)"),
    "a step of K left out": ("k0 = k * BK", "k0 = (k + 1) * BK"),
    "the accumulator does not begin at zero": ("acc = tl.zeros((BM, BN)", "acc = tl.full((BM, BN), 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_kernel_is_noticed(mistake, monkeypatch):
    old, new = MISTAKES[mistake]

    def broken(seed):
        case = make(seed)
        return replace(case, text=case.text.replace(old, new))

    wanted = [seed for seed in range(100) if old in make(seed).text and make(seed).expected[-1].values.size][:4]
    monkeypatch.setattr(products.product_cases, "make", broken)
    assert any(products.check(seed, "90a").is_finding for seed in wanted)


def test_cases_use_all_that_there_is():
    used = set()
    for seed in (*VARIED, *range(60), *ROTATED):
        used.update(products.uses(seed, "90a"))
        if used >= {*products.USES, "persistent", "guards"}:
            return
    pytest.fail(f"only {used}")
