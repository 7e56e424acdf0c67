"""Damaged profiles through every format: a part of what mutated_profiles.py runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mutated_profiles import OUTPUTS, failures  # type: ignore[import-not-found]


@pytest.mark.parametrize("seed", range(2))
def test_no_traceback_and_no_hang(seed: int, tmp_path: Path) -> None:
    codes: Counter[int | None] = Counter()
    assert list(failures(50, seed, tmp_path, codes)) == []
    assert sum(codes.values()) == 50 * len(OUTPUTS)
    assert min(codes[0], codes[2]) > 50, "some files must be readable and some must not"
