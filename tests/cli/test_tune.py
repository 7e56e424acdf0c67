"""``deuteron tune``: built-in workloads, files, resumption, and what it leaves behind."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.cli.output import print_records
from deuteron.tuner import Interval, JobSpec, read_bundle
from deuteron.tuner.workloads import WorkloadSpec, builtin_workload

SMALL = ("--trials", "3", "--seconds", "4")


@pytest.fixture(scope="module")
def home_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def home(home: Path, home_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One for all searches of this file, whose worker processes are then forked from one template."""
    monkeypatch.setenv("DEUTERON_HOME", str(home_of_all))
    return home_of_all


def test_matmul_end_to_end(run, tmp_path: Path):
    out = tmp_path / "out"
    ran = run(
        *("tune", "matmul", "--shape", "M=96,N=80,K=64", "--dtype", "f32", "--device", "cpu"),
        *(*SMALL, "--out", out),
    )
    assert ran.code == 0, ran.err
    for heading in ("default", "best", "speed-up", "configuration"):
        assert heading in ran.out
    assert "K=64,M=96,N=80" in ran.out
    assert "best so far" in ran.err
    (record,) = read_bundle(out / "records.bundle").records()
    assert (record.kernel_name, dict(record.shape)) == (
        "matmul_kernel",
        {"M": 96, "N": 80, "K": 64},
    )
    assert record.checked
    assert record.speedup.low <= record.speedup.median <= record.speedup.high
    for name in ("journal.jsonl", "records.bundle", "search.hatchet"):
        assert str(out / name) in ran.out
    tree = json.loads((out / "search.hatchet").read_text())
    assert tree[0]["children"][0]["frame"]["name"] == "matmul_kernel"


def test_the_same_command_takes_finished_trials_over(run, tmp_path: Path):
    command = ("tune", "vector_add", "--shape", "n=4096", *SMALL, "--out", tmp_path / "out")
    first = run(*command)
    assert first.code == 0
    journal = (tmp_path / "out" / "journal.jsonl").read_text()
    trials = journal.count('"kind":"trial_finished"')
    again = run(*command)
    assert f"{trials} trials were taken over" in again.err
    assert again.out == first.out


def test_a_search_starts_from_an_earlier_one(run, tmp_path: Path):
    first = run(*("tune", "vector_add", "--shape", "n=4096", "--trials", "6", "--out", tmp_path / "first"))
    assert first.code == 0, first.err
    second = run(
        *("tune", "vector_add", "--shape", "n=8192", "--trials", "3", "--out", tmp_path / "second"),
        *("--from", tmp_path / "first", "--from", tmp_path / "first" / "records.bundle"),
    )
    assert second.code == 0, second.err
    assert "starts from n=4096 f32 on cpu" in second.err and "(6 configurations)" in second.err
    assert "among the best known before" in (tmp_path / "second" / "journal.jsonl").read_text()
    assert "took 3 of 3 configurations" in second.err
    other = run(
        *("tune", "softmax", "--shape", "M=8,N=8", "--trials", "1", "--out", tmp_path / "third"),
        *("--from", tmp_path / "first"),
    )
    assert other.code == 0 and "knows no search of softmax_kernel" in other.err


def test_searches_of_another_kind_of_device_are_said_to_be_of_no_use(run, tmp_path: Path):
    (tmp_path / "known.json").write_text(
        '{"searches": [{"kernel_name": "vector_add_kernel", "kernel_hash": "", "device": "cuda/h200", '
        '"shape": {"n": 64}, "dtype": "f32", "known": [{"config": {"BLOCK_SIZE": 64}, "time_ns": 9.0}]}]}'
    )
    ran = run(
        *("tune", "vector_add", "--shape", "n=64", "--trials", "1", "--out", tmp_path / "out"),
        *("--from", tmp_path / "known.json"),
    )
    assert ran.code == 0, ran.err
    assert "knows vector_add_kernel on cuda/h200 alone, which says nothing of cpu" in ran.err


def test_the_command_that_shows_the_profile_can_be_pasted(run, tmp_path: Path):
    """Folders with blanks came apart."""
    ran = run("tune", "vector_add", "--shape", "n=1024", "--trials", "1", "--out", tmp_path / "my runs")
    assert ran.code == 0, ran.err
    command = re.search(r"\(proton-viewer (.*)\)", ran.out)
    assert shlex.split(command[1]) == ["-m", "time/us", str(tmp_path / "my runs" / "search.hatchet")]


def test_several_shapes_and_dtypes(run, tmp_path: Path):
    """What is given twice, by whatever name, is one search."""
    ran = run(
        *("tune", "vector_add", "--shape", "n=4096", "--shape", "n=5000", "--shape", "n=4_096"),
        *("--dtype", "f32", "--dtype", "f16", "--dtype", "float32", "--trials", "2", "--seconds", "8"),
        *("--out", tmp_path / "out"),
    )
    assert ran.code == 0, ran.err
    found = {(r.shape["n"], r.dtype) for r in read_bundle(tmp_path / "out/records.bundle").records()}
    assert found == {(4096, "f32"), (4096, "f16"), (5000, "f32"), (5000, "f16")}


def test_results_go_to_the_home_when_no_folder_is_named(run, home: Path):
    assert run("tune", "vector_add", "--shape", "n=4096", *SMALL).code == 0
    assert len(list(home.glob("tune/vector_add-*/records.bundle"))) == 1


def test_a_kernel_of_a_file_is_inferred(run, examples: Path, tmp_path: Path):
    ran = run(
        *("tune", f"{examples}/vector_add.py:add_kernel", "--shape", "n_elements=5000"),
        *(*SMALL, "--out", tmp_path / "out"),
    )
    assert ran.code == 0, ran.err
    (record,) = read_bundle(tmp_path / "out/records.bundle").records()
    assert record.kernel_name == "add_kernel"
    assert set(record.config) == {"BLOCK_SIZE"}
    assert dict(record.dims_from_arguments) == {"n_elements": "n_elements"}


def test_options_say_what_the_text_does_not(run, examples: Path, tmp_path: Path):
    saved = tmp_path / "softmax.json"
    ran = run(
        *("tune", f"{examples}/softmax.py:softmax_kernel", "--shape", "M=37,N=50"),
        *("--tensor", "output_ptr=M,N", "--tensor", "input_ptr=M,N"),
        *("--scalar", "input_row_stride=N,output_row_stride=N,n_rows=M,n_cols=N"),
        *("--constexpr", "BLOCK_SIZE=next_power_of_2(N)", "--search", "num_stages=1,2"),
        *("--grid", "min(M, 16)", "--save-workload", saved),
    )
    assert (ran.code, ran.out) == (0, f"workload: {saved}\n")
    spec = WorkloadSpec.from_json(json.loads(saved.read_text()))
    assert {t.name: (t.shape, t.role) for t in spec.tensors} == {
        "output_ptr": (("M", "N"), "output"),
        "input_ptr": (("M", "N"), "input"),
    }
    assert spec.scalars["input_row_stride"] == "N"
    assert spec.constexprs == {"BLOCK_SIZE": "next_power_of_2(N)"}
    assert spec.grid == ("min(M, 16)",)
    assert spec.space_for("cpu").names == ("num_stages",)
    tuned = run("tune", saved, *SMALL, "--out", tmp_path / "out")
    assert tuned.code == 0, tuned.err
    assert "M=37,N=50" in tuned.out


def test_a_saved_workload_has_the_shapes_and_dtypes_that_were_given(run, tmp_path: Path):
    saved = tmp_path / "matmul.json"
    sizes = ("--shape", "M=4,N=4,K=4", "--shape", "M=8,N=4,K=4", "--dtype", "bf16")
    assert run("tune", "matmul", *sizes, "--save-workload", saved).code == 0
    job = JobSpec.from_json({"workload": json.loads(saved.read_text())})
    assert (job.shapes, job.dtypes) == (({"M": 4, "N": 4, "K": 4}, {"M": 8, "N": 4, "K": 4}), ("bf16",))
    assert set(job.workload.dtypes) == set(builtin_workload("matmul").dtypes)


def test_constraints_are_said_and_kept(run, kernel_file, tmp_path: Path):
    kernel = (
        "@triton.jit\ndef ones(y, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    tl.store(y + i, 1.0, mask=i < n)\n"
    )
    given = (f"{kernel_file(kernel)}:ones", "--shape", "n=100", "--search", "B=64,128,256", "--grid", "1")
    rules = ("--constraint", "B >= n", "--constraint", "B >= 16 * num_warps")
    saved = tmp_path / "ones.json"
    assert run("tune", *given, *rules, "--save-workload", saved).code == 0
    spec = WorkloadSpec.from_json(json.loads(saved.read_text()))
    assert spec.space_for("cuda").constraints == ("B >= n", "B >= 16 * num_warps")
    assert spec.space_for("cpu").constraints == ("B >= n",)  # which has no warps
    assert run("tune", *given, *rules, "--infer-space", "--save-workload", saved).code == 0
    inferred = WorkloadSpec.from_json(json.loads(saved.read_text())).space_for("cpu")
    assert inferred.constraints[-1] == "B >= n"
    assert run("tune", *given, *rules[:2], *SMALL, "--out", tmp_path / "out").code == 0
    (record,) = read_bundle(tmp_path / "out/records.bundle").records()
    assert record.config["B"] in (128, 256) and record.reach.constraints == ("B >= n",)
    wrong = run("tune", *given, "--constraint", "B >= m", *SMALL)
    assert wrong.code == 2 and "uses the unknown name 'm'" in wrong.err


def test_expressions_may_name_constexprs_that_are_given(run, kernel_file, tmp_path: Path):
    kernel = """\
@triton.jit
def scaled(x, s, n, N: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):
    g = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    factor = tl.load(s + g, mask=g * GROUP < n)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor[:, None], mask=i < n)
"""
    saved = tmp_path / "scaled.json"
    given = (f"{kernel_file(kernel)}:scaled", "--shape", "N=1000", "--search", "ROWS=2,4", "--scalar", "n=N")
    fixed = ("--constexpr", "GROUP=16 * 2", "--constexpr", "N=2 * N")
    sizes = ("--tensor", "x=N", "--tensor", "s=cdiv(N, GROUP):input:f32", "--grid", "cdiv(N, GROUP * ROWS)")
    rules = ("--constraint", "GROUP * ROWS > 64")
    assert run("tune", *given, *fixed, *sizes, *rules, "--save-workload", saved).code == 0
    spec = WorkloadSpec.from_json(json.loads(saved.read_text()))
    assert [tensor.shape for tensor in spec.tensors] == [("N",), ("cdiv(N, 16 * 2)",)]  # the dim N, not the constexpr
    assert (spec.tensors[1].role, spec.tensors[1].dtype) == ("input", "f32")
    assert spec.grid == ("cdiv(N, 16 * 2 * ROWS)",)
    assert spec.space_for("cpu").constraints == ("16 * 2 * ROWS > 64",)
    assert run("tune", *given, *fixed, *sizes, *rules, *SMALL, "--out", tmp_path / "out").code == 0
    (record,) = read_bundle(tmp_path / "out/records.bundle").records()
    assert record.config["ROWS"] == 4
    varying = run("tune", *given, "--constexpr", "GROUP=ROWS", "--constexpr", "N=N", *sizes, *SMALL)
    assert varying.code == 2 and "the shape of s ('cdiv(N, ROWS)') uses the unknown name 'ROWS'" in varying.err


DESCRIBED = """\
workload = {
    "dims": ["n"],
    "tensors": [{"name": "y", "shape": ["n"], "role": "inout"}],
    "scalars": {"count": "n"},
    "grid": ["cdiv(n, B)"],
    "space": {"parameters": [{"name": "B", "choices": [64, 128]}]},
}


@triton.jit
def double(y, count, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 2 * tl.load(y + at, mask=at < count), mask=at < count)
"""


def test_a_file_may_describe_its_kernel(run, kernel_file, tmp_path: Path):
    path = kernel_file(DESCRIBED)
    ran = run("tune", f"{path}:double", "--shape", "n=1000", *SMALL, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    (record,) = read_bundle(tmp_path / "out/records.bundle").records()
    assert record.config["B"] in (64, 128)


def test_indices_and_atomics_are_inferred(kernel_file):
    from deuteron.cli.kernel_file import read_kernel
    from deuteron.tuner.workloads.inferred import infer_workload

    source = read_kernel(
        str(
            kernel_file(
                "@triton.jit\ndef k(x, rows, total, n, eps, B: tl.constexpr):\n"
                "    at = tl.program_id(0) * B + tl.arange(0, B)\n"
                "    r = tl.load(rows + at, mask=at < n)\n"
                "    tl.atomic_add(total + r, tl.load(x + at, mask=at < n) + eps)\n"
            )
        )
    )
    spec = infer_workload(source, dims=("n",))
    assert {t.name: (t.dtype, t.role, t.fill) for t in spec.tensors} == {
        "x": ("$dtype", "input", "normal"),
        "rows": ("i32", "input", "zeros"),
        "total": ("$dtype", "inout", "normal"),
    }
    assert spec.scalars == {"n": "n", "eps": "1e-5"}
    assert spec.grid == ("cdiv(n, B)",)
    assert spec.bytes.replace(" ", "") == "1*(n)*element_bytes+1*(n)*4+2*(n)*element_bytes"


def test_choices_come_from_the_autotune_decorator(kernel_file):
    from deuteron.cli.kernel_file import read_kernel
    from deuteron.tuner.workloads.inferred import infer_workload

    source = read_kernel(
        str(
            kernel_file(
                '@triton.autotune([triton.Config({"B": b}) for b in (1, 2)], key=[])\n'
                "@triton.jit\ndef computed(x, B: tl.constexpr):\n    tl.store(x + tl.arange(0, B), 1.0)\n",
                "a.py",
            )
        )
    )
    assert infer_workload(source, dims=("n",)).space_for("cpu").parameters[0].choices[0] == 128
    source = read_kernel(
        str(
            kernel_file(
                '@triton.autotune([triton.Config({"B": 512}), triton.Config({"B": 32})], key=[])\n'
                "@triton.jit\ndef k(x, B: tl.constexpr):\n    tl.store(x + tl.arange(0, B), 1.0)\n",
                "b.py",
            )
        )
    )
    assert infer_workload(source, dims=("n",)).space_for("cpu").parameters[0].choices == (32, 512)


@pytest.mark.gpu
def test_on_a_gpu(run, tmp_path: Path):
    ran = run("tune", "softmax", "--shape", "M=512,N=781", "--device", "cuda:0", *SMALL)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("columns", [20, 80, 140, 240])
def test_configurations_are_never_cut(bundle: Path, monkeypatch: pytest.MonkeyPatch, columns: int):
    """A table where there is room for it, else a paragraph per record; on a terminal of any width."""
    (record,), long = read_bundle(bundle).records(), "default kept: AMBIGUOUS, best challenger 1.013x [1.004, 1.020]"
    rows = [Interval(1.0, 1.0, 1.0, 9), Interval(1.013, 1.004, 1.020, 9)]
    config = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 64, "num_warps": 4}
    record = replace(record, config=config, speedup=rows[0], challenger=rows[1], verdict="AMBIGUOUS")
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_records([record])
    text = re.sub("\x1b[^m]*m", "", shown.getvalue())
    assert "BLOCK_SIZE_M=128 BLOCK_SIZE_N=64 num_warps=4" in text and "\u2026" not in text
    assert (long in text) == (columns != 140)
    if columns >= 140:
        assert "speed-up" in text and all(len(line) <= columns for line in text.splitlines())
    else:
        assert len(text.splitlines()) == 4


OVERSHOOTS = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x + 1.0, mask=i < n)
    if n > 4096:
        tl.store(y_ptr + n, 1.0)
"""


@pytest.mark.parametrize(("shapes", "code"), [((1000, 5000, 2000), 1), ((5000,), 2)])
def test_what_failed_is_said_once_and_the_rest_is_in_the_bundle(run, kernel_file, tmp_path: Path, shapes, code):
    ran = run(
        *("tune", f"{kernel_file(OVERSHOOTS)}:kernel", "--tensor", "x_ptr=n", "--tensor", "y_ptr=n:output"),
        *("--grid", "cdiv(n, BLOCK)", "--search", "BLOCK=256,1024", "--trials", "2", "--out", tmp_path / "out"),
        *(part for n in shapes for part in ("--shape", f"n={n}")),
    )
    assert ran.code == code, ran.err
    assert ran.err.count("none of 2 configurations") == 1 and "wrote 4 bytes behind 'y_ptr'" in ran.err
    if code == 1:
        assert "error: 1 of 3 shapes have no result:\nn=5000 f32: none of" in ran.err
        assert "n=1000" in ran.out and "n=2000" in ran.out and str(tmp_path / "out/records.bundle") in ran.out
        assert {r.shape["n"] for r in read_bundle(tmp_path / "out/records.bundle").records()} == {1000, 2000}
