"""How long compiling takes is reported whole and by stages."""

from __future__ import annotations

import sys

from compile_time import run_child, stages, table


def test_a_fresh_process_says_what_each_stage_took(tmp_path):
    sample = run_child("deuteron", sys.executable, "vector add", "ptx", str(tmp_path))
    assert list(tmp_path.rglob("core*.pyc"))
    assert len(sample.variants) == len(sample.stages) == 3
    for whole, parts in zip(sample.variants, sample.stages, strict=True):
        assert {"frontend", "tile", "gpu", "llvm", "ptx"} <= parts.keys()
        assert 0 < sum(parts.values()) < whole

    figures = {"vector add to ptx": {"deuteron": [sample]}}
    assert "vector add to ptx, deuteron" in stages(figures)
    assert " ptx " in stages(figures)
    assert table(figures).splitlines()[1].split()[4:6] == [
        f"{sample.import_ms + sample.variants[0]:.1f}",
        "-",
    ]
