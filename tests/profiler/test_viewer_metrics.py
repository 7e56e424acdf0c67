"""Numbers of the viewer, worked out by hand: derived metrics, peaks, users' own metrics, shares and sums."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from viewed_profiles import H100, kernel, rows

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import MetricError, MetricNotFound, Profile
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.frames import read_tree


def test_derived_metrics(profile: Profile) -> None:
    text = proton_viewer.render(profile, ["tflop8/s", "gbyte/s", "avg_time/us", "time/%", "bytes/%", "util"])
    # gemm: 1513e9 / 3 ms; 1513 TFLOP/s is the peak, so 1 ms of 3. Its bytes need 1 ms at 3352.32 GB/s as well.
    assert rows(text)["gemm"] == ["504.333", "1117.440", "3000.000", "37.500", "69.087", "0.333"]
    # Scopes have the work of what is below them: 1513e9 and bytes of both kernels in 4 ms.
    assert rows(text)["A"][:1] == ["378.250"]
    assert rows(text)["A"][2:4] == ["800.000", "50.000"]
    assert rows(text)["ROOT"][4] == "100.000"


def test_names_are_in_any_case_and_may_follow_a_space(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = profile.write(tmp_path / "p.hatchet")
    assert viewer_main(["-m", "Time/MS, COUNT", str(path)]) == 0
    assert capsys.readouterr().out == proton_viewer.render(profile, ["time/ms", "count"])


@pytest.mark.parametrize("arch", ["75", "86", "103", "120"])
def test_architectures_that_protons_table_lacks_have_peaks(arch: str) -> None:
    profile = Profile()
    profile.device("CUDA", 0, **{**H100, "arch": arch})
    kernel(profile, "k", time_ns=1_000_000, flops16=1e9)
    value = float(rows(proton_viewer.render(profile, ["util"]))["k"][0])
    per_sm = {"75": 2048, "86": 2048, "103": 16384, "120": 2048}[arch]
    assert value == pytest.approx(1e9 / (per_sm / 2 * 114 * 1.755e9) / 1e-3, abs=6e-4)


def test_an_unknown_architecture_is_said_and_bytes_count(capsys: pytest.CaptureFixture) -> None:
    profile = Profile()
    profile.device("CUDA", 0, **{**H100, "arch": "61"})
    kernel(profile, "k", time_ns=1_000_000, flops16=1e9, bytes=1_676_160_000)
    assert rows(proton_viewer.render(profile, ["util"]))["k"] == ["0.500"]
    assert "arch '61'" in capsys.readouterr().err


def test_util_without_bytes_and_without_anything() -> None:
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    kernel(profile, "k", time_ns=1_000_000)
    assert rows(proton_viewer.render(profile, ["util"]))["k"] == ["nan"]
    profile.add(("k",), {"flops8": 1513e9 / 2})
    assert rows(proton_viewer.render(profile, ["util"]))["k"] == ["0.500"]


def test_cpu_kernels_are_not_held_against_the_gpus_peak() -> None:
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    kernel(profile, "gpu", time_ns=1_000_000, bytes=1_676_160_000)
    kernel(profile, "cpu", time_ns=1_000_000, bytes=1_676_160_000, device="CPU")
    shown = rows(proton_viewer.render(profile, ["util"]))
    assert shown["gpu"] == ["0.500"]
    assert shown["cpu"] == ["0.000"]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("nothing", "metric 'nothing' is not in the profile"),
        ("time/h", "unsupported unit 'h'"),
        ("device_id", "holds text"),
        ("v", "holds lists"),
        ("tflop64/s", "metric 'flops64' is not in the profile"),
    ],
)
def test_metrics_that_cannot_be_shown(
    metrics: str, message: str, profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    profile.add(("A", "gemm"), {"v": [1, 2]})
    path = profile.write(tmp_path / "p.hatchet")
    assert viewer_main(["-m", metrics, str(path)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and "hint: " in printed.err and "Traceback" not in printed.err
    with pytest.raises((MetricNotFound, MetricError)):
        proton_viewer.render(path, [metrics])


def test_user_metrics_are_summed_unless_they_mean_their_frame() -> None:
    profile = Profile()
    profile.add(("s", "a"), {"tokens": 3, "loss (exc)": 2.0, "lr (pty)": 0.1, "bytes": 100})
    profile.add(("s", "b"), {"tokens": 1, "loss (exc)": 4.0, "lr (pty)": 0.2, "bytes": 300})
    kernel(profile, "s", "k", time_ns=1000, bytes=600)
    found = rows(proton_viewer.render(profile, ["tokens", "tokens/%", "loss", "byte/s", "bytes/%", "lr"]))
    assert found["ROOT"] == ["4.000", "100.000", "nan", "1000000000.000", "100.000", "nan"]
    assert found["s"] == ["4.000", "100.000", "nan", "1000000000.000", "100.000", "nan"]
    assert found["a"][:3] == ["3.000", "75.000", "2.000"]
    assert found["b"][4:] == ["30.000", "0.200"]


def test_user_metrics_of_other_writers_are_summed_where_their_name_says_so() -> None:
    """Proton 3.9 puts no user's metric on ROOT."""
    frames = {"a": {"tokens (inc)": 3, "loss": 2.0, "bytes": 100}, "b": {"tokens (inc)": 1, "loss": 4.0, "bytes": 300}}
    children = [
        {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": []}
        for name, metrics in frames.items()
    ]
    root = {"frame": {"name": "ROOT", "type": "function"}, "metrics": {}, "children": children}
    found = rows(proton_viewer.render(json.dumps([root, {}]), ["tokens", "loss", "bytes"]))
    assert found == {
        "ROOT": ["4.000", "nan", "400.000"],
        "a": ["3.000", "2.000", "100.000"],
        "b": ["1.000", "4.000", "300.000"],
    }


def test_metrics_of_users_called_as_those_of_kernels() -> None:
    profile = Profile()
    kernel(profile, "epoch", "k", time_ns=1000, bytes=600)
    profile.add(("epoch",), {"time": 1.5, "Count": 3.0})
    found = rows(proton_viewer.render(profile, ["time", "time/us", "avg_time/ns", "count", "gbyte/s", "time/%"]))
    assert found["k"] == ["1000.000", "1.000", "1000.000", "1.000", "0.600", "100.000"]
    alone = Profile()
    alone.add(("epoch",), {"time": 1.5})
    assert rows(proton_viewer.render(alone, ["time"]))["epoch"] == ["1.500"]
    with pytest.raises(MetricError, match="no unit of time"):
        proton_viewer.render(alone, ["time/ms"])


def test_names_with_commas_and_without_letters(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    profile = Profile()
    profile.add(("a",), {"x,y": 2, "loss": 1, "(ns)": 1})
    path = str(profile.write(tmp_path / "p.hatchet"))
    assert viewer_main(["-m", '"x,y", loss', path]) == 0
    assert rows(capsys.readouterr().out)["a"] == ["2.000", "1.000"]
    assert viewer_main(["-l", path]) == 0
    assert "- '(ns)'\n" in capsys.readouterr().out


def test_shares_of_what_no_subtree_sums_are_of_the_sum_of_all() -> None:
    profile = Profile()
    profile.add(("s", "a"), {"loss (exc)": 1.0})
    profile.add(("s", "b"), {"loss (exc)": 3.0})
    found = rows(proton_viewer.render(profile, ["loss/%"]))
    assert (found["a"], found["b"]) == (["25.000"], ["75.000"])
    assert found["ROOT"] == found["s"] == ["nan"]


@pytest.mark.parametrize("seed", range(30))
def test_sums_are_rounded_as_by_numpy_in_the_order_of_the_file(seed: int) -> None:
    """Proton's viewer adds a frame's own value and its children's, as they are in the file, with NumPy."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, [8, 130, 3000][seed % 3]))
    values = draw.normal(size=count) * 10.0 ** draw.integers(-6, 6, size=count)
    values[draw.random(count) < 0.2] = np.nan
    values[0] = 1.0
    names = [f"{number:08x}" for number in draw.permutation(count)]
    children = [
        {
            "frame": {"name": name, "type": "function"},
            "metrics": {} if np.isnan(value) else {"x": value},
            "children": below,
        }
        for name, value in zip(names[1:], values[1:], strict=True)
        for below in [[{"frame": {"name": "y", "type": "function"}, "metrics": {"y": 1}, "children": []}]]
    ]
    literal = [
        {"frame": {"name": "ROOT", "type": "function"}, "metrics": {"x": values[0], "y": 0}, "children": children}
    ]
    tree = read_tree(json.dumps([*literal, {}]))
    assert tree.names[1::2] == sorted(names[1:])
    assert tree.totals("x")[0] == np.sum(np.nan_to_num(values))
