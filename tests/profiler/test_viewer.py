"""What the viewer prints of a profile: which frames, in which order and form, and what it is asked for in vain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from viewed_profiles import kernel, rows

import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import EmptyProfile, Profile
from deuteron.profiler.viewer.arguments import main as viewer_main


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


def test_a_scope_with_metrics_of_its_own_survives_its_hidden_children(profile: Profile) -> None:
    profile.add(("only",), {"bytes": 100})
    profile.node(("only", "__proton_launch_metadata", "x"))
    assert rows(proton_viewer.render(profile, ["bytes"]))["only"] == ["100.000"]


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


def test_a_threshold_of_zero_hides_nothing() -> None:
    profile = Profile()
    kernel(profile, "k", time_ns=1000)
    profile.add(("scope",), {"loss": 1.0})
    for threshold in ("0", "0.0"):
        assert "scope" in proton_viewer.render(profile, ["loss"], threshold=float(threshold))


def test_a_profile_in_memory_without_metrics_is_called_so() -> None:
    with pytest.raises(EmptyProfile, match="^the profile has no metrics"):
        proton_viewer.render(Profile(), ["time/ms"])


def test_a_folder_for_the_output_is_a_message(h200_profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert viewer_main(["-m", "time", "-o", ".", str(h200_profile)]) == 2
    assert "cannot write" in capsys.readouterr().err
