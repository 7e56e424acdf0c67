"""Very long code is optimised by few passes, and computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.llvm import driver
from deuteron.compiler.targets.cpu import program
from deuteron.compiler.tile import elementwise as e


@pytest.mark.parametrize("limit", [0, program.LONG_TEXT])
def test_what_is_long_is_optimised_briefly(both, same, monkeypatch, limit):
    asked, original = [], driver.compile_text

    def compile_text(*args, **options):
        asked.append(options["brief"])
        return original(*args, **options)

    monkeypatch.setattr(driver, "compile_text", compile_text)
    monkeypatch.setattr(program, "LONG_TEXT", limit)
    x = np.arange(64, dtype=np.float32)

    def make(k, x):
        low, high, step = (k.constant(v, "i32") for v in (0, 5, 1))
        return k.loop(low, high, step, [x], lambda i, a: (k.emit(e.Sqrt(k.binary(e.Add, a, 1))),))

    found, wanted = both(make, x)
    same(found[0], wanted[0])
    assert asked == [limit == 0]
