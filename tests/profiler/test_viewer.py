"""The viewer: numbers worked out by hand, and the reference's bugs that are not repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import EmptyProfile, MetricError, MetricNotFound, Profile
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.frames import read_tree

H100 = {
    "arch": "90",
    "bus_width": 5120,
    "clock_rate": 1755000,
    "memory_clock_rate": 2619000,
    "num_sms": 114,
}


def kernel(
    profile: Profile,
    *path: str,
    time_ns: int,
    count: int = 1,
    device: str = "CUDA",
    **metrics: object,
) -> None:
    node = profile.node(path)
    profile.add_launches(node, count=count, time_ns=time_ns, device_type=device, device_id=0)
    profile.add_to(node, metrics)


@pytest.fixture
def profile() -> Profile:
    """ROOT > A > {gemm 3 ms, copy 1 ms}, B > copy 4 ms, and bookkeeping frames that are not shown."""
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    kernel(profile, "A", "gemm", time_ns=3_000_000, flops8=1513e9, bytes=3_352_320_000)
    kernel(profile, "A", "copy", time_ns=1_000_000, count=4, bytes=1_000_000_000)
    kernel(profile, "B", "copy", time_ns=4_000_000, bytes=500_000_000)
    kernel(profile, "A", "__proton_launch_metadata:gemm", "helper", time_ns=9_000_000)
    profile.node(("empty", "emptier"))
    return profile


def rows(text: str) -> dict[str, list[str]]:
    """Values by frame name (the names are unique here but for `copy`, whose last line counts)."""
    found = {}
    for line in filter(None, text.splitlines()):
        *values, name = line.lstrip("│├└─ ").split()
        found[name] = values
    return {name: values for name, values in found.items() if values}


def test_times_are_summed_and_bookkeeping_is_hidden(profile: Profile) -> None:
    assert proton_viewer.render(profile, ["time/ms", "count"]) == (
        "8.000 6.000 ROOT\n"
        "├─ 4.000 5.000 A\n"
        "│  ├─ 1.000 4.000 copy\n"
        "│  └─ 3.000 1.000 gemm\n"
        "└─ 4.000 1.000 B\n"
        "   └─ 4.000 1.000 copy\n"
        "\n"
    )


def test_derived_metrics(profile: Profile) -> None:
    text = proton_viewer.render(profile, ["tflop8/s", "gbyte/s", "avg_time/us", "time/%", "bytes/%", "util"])
    # gemm: 1513e9 / 3 ms; 1513 TFLOP/s is the peak, so 1 ms of 3. Its bytes need 1 ms at 3352.32 GB/s as well.
    assert rows(text)["gemm"] == ["504.333", "1117.440", "3000.000", "37.500", "69.087", "0.333"]
    # Scopes have the work of what is below them: 1513e9 and bytes of both kernels in 4 ms.
    assert rows(text)["A"][:1] == ["378.250"]
    assert rows(text)["A"][2:4] == ["800.000", "50.000"]
    assert rows(text)["ROOT"][4] == "100.000"


def test_a_scope_with_metrics_of_its_own_survives_its_hidden_children(profile: Profile) -> None:
    profile.add(("only",), {"bytes": 100})
    profile.node(("only", "__proton_launch_metadata", "x"))
    assert rows(proton_viewer.render(profile, ["bytes"]))["only"] == ["100.000"]


def test_names_are_in_any_case_and_may_follow_a_space(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = profile.write(tmp_path / "p.hatchet")
    assert viewer_main(["-m", "Time/MS, COUNT", str(path)]) == 0
    assert capsys.readouterr().out == proton_viewer.render(profile, ["time/ms", "count"])


def test_totals_after_include_and_exclude_are_those_shown(profile: Profile) -> None:
    included = rows(proton_viewer.render(profile, ["time", "time/ms", "time/%"], include=".*copy"))
    assert included["ROOT"] == ["5000000.000", "5.000", "100.000"]
    assert included["A"] == ["1000000.000", "1.000", "20.000"]
    excluded = rows(proton_viewer.render(profile, ["time/ms"], exclude="A"))
    assert excluded == {"ROOT": ["4.000"], "B": ["4.000"], "copy": ["4.000"]}
    both = rows(proton_viewer.render(profile, ["time/ms"], include="copy", exclude="B"))
    assert both == {"ROOT": ["1.000"], "A": ["1.000"], "copy": ["1.000"]}


def test_threshold_hides_frames_without_changing_the_others(profile: Profile) -> None:
    shown = rows(proton_viewer.render(profile, ["time"], threshold=2_000_000))
    assert shown["ROOT"] == ["8000000.000"] and shown["A"] == ["4000000.000"]
    lines = proton_viewer.render(profile, ["time"], threshold=2_000_000).splitlines()
    assert sum("copy" in line for line in lines) == 1
    # A value of nan is not 0 or more; parents of what is shown stay.
    profile.node(("A", "waits")).metrics["cpu_time (ns)"] = 1
    assert "waits" in proton_viewer.render(profile, ["time"], threshold=0.0)  # as without a threshold
    assert "waits" in proton_viewer.render(profile, ["time"])


def test_quotes_and_other_python_in_a_regex_are_just_a_regex(profile: Profile) -> None:
    kernel(profile, "C", 'say "hi"', time_ns=1_000)
    text = proton_viewer.render(profile, ["time/us"], include='say "hi"')
    assert 'say "hi"' in text
    with pytest.raises(proton_viewer_errors(), match="no frame matches"):
        proton_viewer.render(profile, ["time/us"], include='" or __import__("os").abort() or "')


def proton_viewer_errors() -> type[Exception]:
    from deuteron.profiler import EmptyProfile

    return EmptyProfile


def test_sorted_list_has_the_top_kernel_and_not_root(profile: Profile) -> None:
    text = proton_viewer.render(profile, ["util"], print_sorted=True)
    listed = text.split("Sorted kernels by metric util\n")[1].splitlines()
    assert listed[0].split() == ["gemm", "0.3333"]
    assert not any(line.startswith("ROOT") for line in listed)
    assert len(listed) == 5


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "time", "-i", "("], "not a regular expression"),
        (["-m", "time", "-i", "zzz"], "no frame matches --include"),
        (["-m", "time", "-e", ".*"], "every frame matches --exclude"),
        (["-m", "time", "-t", "1e30"], "no frame has time (ns) (inc) of 1e+30 or more"),
    ],
)
def test_filters_that_leave_nothing(
    arguments: list[str],
    message: str,
    profile: Profile,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    path = profile.write(tmp_path / "p.hatchet")
    assert viewer_main([*arguments, str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_profile_without_metrics(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = Profile().write(tmp_path / "p.hatchet")
    assert viewer_main(["-m", "time", str(path)]) == 2
    assert "has no metrics" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--bogus", "a"], ["-f", "bogus", "a"], ["-t", "x", "a"]])
def test_wrong_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as caught:
        viewer_main(arguments)
    assert caught.value.code == 2
    assert "usage: proton-viewer" in capsys.readouterr().err


def test_listing(profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = profile.write(tmp_path / "p.hatchet")
    assert viewer_main(["-l", str(path)]) == 0
    assert capsys.readouterr().out == (
        "Available inclusive metrics:\n- bytes\n- count\n- flops8\n- time\nAvailable exclusive metrics:\n"
    )
    assert viewer_main([str(path)]) == 2
    assert "-m METRICS shows some, -l lists them" in capsys.readouterr().err


def test_depth_and_msgpack(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "p.hatchet_msgpack"
    path.write_bytes(profile.to_msgpack())
    assert proton_viewer.render(path, ["time/ms"], depth=1) == "8.000 ROOT\n\n"
    assert proton_viewer.render(profile.to_hatchet(), ["time/ms"], depth=0) == "\n"


FRAMES = "/usr/lib/a.py:7@main"


@pytest.mark.parametrize(
    ("format", "python", "older"),
    [
        ("full", FRAMES, "/x/b.py:run@9"),
        ("file_function_line", "a.py:7@main", "b.py:run@9"),
        ("function_line", "7@main", "run@9"),
        ("file_function", "a.py@main", "b.py@run"),
    ],
)
def test_formats_shorten_python_frames_only(format: str, python: str, older: str) -> None:
    profile = Profile()
    kernel(profile, FRAMES, "at::native::fill(int)", time_ns=1)
    kernel(profile, "/x/b.py:run@9", "scope/with/slashes", time_ns=1)
    text = proton_viewer.render(profile, ["count"], format=format)
    names = [line.split(" ")[-1] for line in text.splitlines() if line]
    assert sorted(names) == sorted(["ROOT", python, "at::native::fill(int)", older, "scope/with/slashes"])


def test_colors(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(profile.write(tmp_path / "p.hatchet"))
    assert viewer_main(["-m", "time/ms", "--color", "always", path]) == 0
    colored = capsys.readouterr().out
    assert "\033[38;5;196m8.000\033[0m ROOT" in colored and "Legend" in colored
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    viewer_main(["-m", "time/ms", path])
    assert "\033[" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    viewer_main(["-m", "time/ms", path])
    assert "\033[" not in capsys.readouterr().out


def test_python_functions_of_the_viewer(h200_profile: Path, capsys: pytest.CaptureFixture) -> None:
    gf, metrics = proton_viewer.parse(["time/us"], str(h200_profile))
    assert metrics == ["time/us (inc)"]
    assert gf.dataframe["time/us (inc)"].iloc[0] == pytest.approx(544.96)
    proton_viewer.print_tree(gf, metrics)
    assert capsys.readouterr().out == proton_viewer.render(h200_profile, ["time/us"])
    gf, inclusive, exclusive, devices = proton_viewer.read(str(h200_profile))
    # The file is of a Proton that put user metrics on ROOT.
    assert inclusive == ["bytes", "count", "flops16", "flops32", "time (ns)"]
    assert exclusive == ["device_id", "device_type", "cpu_time (ns)"]
    assert devices["CUDA"]["0"]["arch"] == "90"
    proton_viewer.show_metrics(str(h200_profile))
    assert "- time\n" in capsys.readouterr().out


def test_showing_a_profile_imports_neither_pandas_nor_the_compiler(h200_profile: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom deuteron.profiler.viewer.arguments import main as viewer_main\n"
        f"assert viewer_main(['-m', 'time', '-o', {str(tmp_path / 'tree')!r}, {str(h200_profile)!r}]) == 0\n"
        "try:\n    viewer_main(['-h'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pandas', 'hatchet', 'numpy', 'llvmlite', 'rich', 'msgpack'} & sys.modules.keys()\n"
        "heavy |= {'deuteron.compiler.runtime', 'deuteron.profiler.session'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--print-sorted" in done.stdout


def test_a_very_deep_tree(tmp_path: Path) -> None:
    profile = Profile()
    kernel(profile, *[f"f{i}" for i in range(400)], time_ns=1000)
    text = proton_viewer.render(profile, ["time/us"], depth=1000)
    assert text.splitlines()[-2].endswith("1.000 f399")
    deep = Profile()
    kernel(deep, *[f"f{i}" for i in range(3000)], time_ns=1000)
    assert proton_viewer.render(deep, ["time/us"]).count("\n") == 101


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


def test_names_of_metrics_and_devices_move_no_cursor(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    hostile = "\x1b]0;title\a\x1b[2J"
    profile = Profile()
    profile.add_launches(profile.node(("k",)), count=1, time_ns=10, device_type=f"CUDA{hostile}", device_id=0)
    profile.add(("k",), {f"{hostile}m ({hostile})": 1, "flops8": 3.0})
    profile.device(f"CUDA{hostile}", 0, arch=f"9{hostile}", num_sms=1, clock_rate=1)
    path = str(profile.write(tmp_path / "p.hatchet"))
    shown = f"{hostile}m"
    for arguments in (["-l"], ["-m", "none"], ["-m", "util"], ["-m", shown, "-f", "folded"], ["-m", shown, "-t", "9"]):
        viewer_main([*arguments, path])
        out, err = capsys.readouterr()
        assert "\x1b" not in out + err and "\\x1b" in out + err, arguments
    viewer_main(["-m", shown, "-f", "table", path])
    assert "\x1b" not in capsys.readouterr().out


def test_names_with_commas_and_without_letters(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    profile = Profile()
    profile.add(("a",), {"x,y": 2, "loss": 1, "(ns)": 1})
    path = str(profile.write(tmp_path / "p.hatchet"))
    assert viewer_main(["-m", '"x,y", loss', path]) == 0
    assert rows(capsys.readouterr().out)["a"] == ["2.000", "1.000"]
    assert viewer_main(["-l", path]) == 0
    assert "- '(ns)'\n" in capsys.readouterr().out


def test_a_threshold_of_zero_hides_nothing() -> None:
    profile = Profile()
    kernel(profile, "k", time_ns=1000)
    profile.add(("scope",), {"loss": 1.0})
    for threshold in ("0", "0.0"):
        assert "scope" in proton_viewer.render(profile, ["loss"], threshold=float(threshold))


def test_a_profile_in_memory_without_metrics_is_called_so() -> None:
    with pytest.raises(EmptyProfile, match="^the profile has no metrics"):
        proton_viewer.render(Profile(), ["time/ms"])


def test_shares_of_what_no_subtree_sums_are_of_the_sum_of_all() -> None:
    profile = Profile()
    profile.add(("s", "a"), {"loss": 1.0})
    profile.add(("s", "b"), {"loss": 3.0})
    found = rows(proton_viewer.render(profile, ["loss/%"]))
    assert (found["a"], found["b"]) == (["25.000"], ["75.000"])


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


def test_a_folder_for_the_output_is_a_message(h200_profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert viewer_main(["-m", "time", "-o", ".", str(h200_profile)]) == 2
    assert "cannot write" in capsys.readouterr().err
