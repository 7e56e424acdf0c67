"""The viewer of two profiles: the difference of one from the other, frame by frame."""

from __future__ import annotations

import json
from pathlib import Path

from viewed_profiles import H100, kernel

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import Profile


def test_difference_of_two_profiles(profile: Profile) -> None:
    other = Profile()
    kernel(other, "A", "gemm", time_ns=1_000_000)
    kernel(other, "A", "new", time_ns=1_000_000)
    assert proton_viewer.render(profile, ["time/ms"], diff_profile=other) == (
        "6.000 ROOT\n"
        "├─ 2.000 A\n"
        "│  ├─ 1.000 copy ◀ \n"
        "│  ├─ 2.000 gemm\n"
        "│  └─ nan new ▶ \n"
        "└─ 4.000 B ◀ \n"
        "   └─ 4.000 copy ◀ \n"
        "\n"
    )


def test_equal_siblings_are_subtracted_in_their_order(tmp_path: Path) -> None:
    """The first of one file with the first of the other, the second with the second."""

    def file(name: str, *times: int) -> Path:
        def node(frame: str, time_ns: int, children: list[object]) -> dict[str, object]:
            metrics = {"count": 0 if children else 1, "time (ns)": time_ns}
            if not children:
                metrics |= {"device_id": "0", "device_type": "CUDA"}
            return {"frame": {"name": frame, "type": "function"}, "metrics": metrics, "children": children}

        path = tmp_path / name
        leaves = [node("k", time, []) for time in times]
        path.write_text(json.dumps([node("ROOT", 0, leaves), {"CUDA": {"0": H100}}]))
        return path

    left, right = file("left.hatchet", 3_000_000, 9_000_000), file("right.hatchet", 1_000_000, 4_000_000)
    shown = proton_viewer.render(left, ["time/ms"], diff_profile=right)
    root, *leaves = (line.lstrip("├└─ ") for line in shown.splitlines() if line)
    assert (root, sorted(leaves)) == ("7.000 ROOT", ["2.000 k", "5.000 k"])  # which comes first is hatchet's choice


def test_frames_meet_by_their_whole_names_however_they_are_shown() -> None:
    """Two functions of one name, on the same line of two files, are two."""
    before, after = Profile(), Profile()
    kernel(before, "/a/f.py:3@bar", "k", time_ns=1_000_000)
    kernel(before, "/b/g.py:3@bar", "k", time_ns=5_000_000)
    kernel(after, "/b/g.py:3@bar", "k", time_ns=7_000_000)
    assert proton_viewer.render(after, ["time/ms"], format="function_line", diff_profile=before) == (
        "1.000 ROOT\n├─ nan 3@bar ▶ \n│  └─ nan k ▶ \n└─ 2.000 3@bar\n   └─ 2.000 k\n\n"
    )
