"""Every mistake gets exit code 2 and a message that names the place and the remedy, never a traceback."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

MATMUL = "{examples}/matmul.py:matmul_kernel"
ADD = "{examples}/vector_add.py:add_kernel"
SPACE = str(Path(__file__).parents[1] / "tuner" / "data" / "convolution-A4000-sample.json")
GPU = ["--target", "cuda:90a", "--emit", "ptx"]

#: Arguments, then texts that stderr must have: what is wrong, and what would work.
COMMAND_LINES: list[tuple[list[str], list[str]]] = [
    (["compile", "missing.py:k"], ["no file missing.py", "FILE:KERNEL"]),
    (["compile", "{examples}/matmul.py:nope"], ["no jit function 'nope'", "matmul_kernel"]),
    (["compile", "{examples}/matmul.py:matmul"], ["no jit function 'matmul'", "hint: did you mean matmul_kernel?"]),
    (["compile", "{examples}/harness.py:nope"], ["it has none", "@jit"]),
    *(([command, "{examples}"], ["/examples is a folder"]) for command in ("compile", "sanitize", "explain")),
    (["compile", "{examples}/heuristics.py"], ["scale_kernel, matmul_kernel", "name one"]),
    (["compile", "{examples}/harness.py"], ["no kernels", "@jit"]),
    (["compile", MATMUL, "--target", "cuda:70"], ["unknown target 'cuda:70'", "cuda:90a"]),
    (["compile", ADD, "--signature", "z=i32"], ["no parameter 'z'"]),
    (["compile", ADD, "--signature", "x_ptr=*f31"], ["unknown dtype 'f31'", "did you mean 'f32'"]),
    (["compile", ADD, "--signature", "x_ptr"], ["--signature 'x_ptr' is not NAME=VALUE"]),
    (["compile", ADD, "--constexpr", "BLOCK_SIZE=1,BLOCK_SIZE=2"], ["'BLOCK_SIZE' twice"]),
    (["compile", ADD, "--constexpr", "BLOCK_SIZE=100"], ["vector_add.py:", "^", "power of"]),
    (["compile", ADD, "--num-warps", "3", *GPU], ["num_warps = 3: it must be a power of 2", "1, 2, 4, 8, 16 or 32"]),
    (["compile", ADD, "--emit", "nope"], ["nope", "ptx"]),
    (["compile", ADD, "-o", "/nonexistent/x.s"], ["cannot write /nonexistent/x.s"]),
    (["tune", "soft_max"], ["no workload 'soft_max'", "softmax"]),
    (["tune", "missing.json"], ["cannot read the workload missing.json", "--save-workload"]),
    (["tune", "softmax", "--shape", "M=512"], ["lacks 'N'", "dims: M, N"]),
    (["tune", "softmax", "--shape", "M=512,N=0"], ["N=0", "1 to 2^40"]),
    (["tune", "softmax", "--shape", "M:512"], ["'M:512'", "M=512"]),
    (["tune", "softmax", "--dtype", "f31"], ["f31", "f32"]),
    (["tune", "softmax", "--strategy", "magic"], ["unknown strategy 'magic'", "random"]),
    (["replay", "missing.json"], ["missing.json: cannot be read"]),
    (["replay", "{examples}/matmul.py"], ["matmul.py: not a file of Kernel Tuner", "tune_params_keys"]),
    (["replay", "missing.jsonl"], ["missing.jsonl: cannot be read"]),
    (["replay", SPACE, "--strategy", "magic"], ["unknown strategy 'magic'", "surrogate"]),
    (["replay", SPACE, "--strategy", ","], ["no strategy is named", "--strategy surrogate"]),
    (["replay", SPACE, "--budget", "9" * 20], ["--budget", "1000000"]),
    (["serve", "--host", ""], ["DEUTERON_HOST: '' is no address to bind", "0.0.0.0"]),
    (["serve", "--host", " "], ["DEUTERON_HOST: ' ' is no address to bind"]),
    (["replay", SPACE, "--protocol", "free"], ["'free'", "charged"]),
    (["replay", SPACE, "--json", "/nonexistent/x.json"], ["cannot write /nonexistent/x.json"]),
    (["tune", "softmax", "--seconds", "0"], ["0", "more than 0"]),
    (["tune", "softmax", "--seconds", "inf"], ["inf seconds", "without --seconds there is no limit"]),
    (["tune", "softmax", "--seconds", "1e400"], ["inf seconds"]),
    (["submit", "softmax", "--seconds", "nan"], ["nan seconds"]),
    (["tune", "softmax", "--seed", "-1"], ["seed -1", "0 to 4294967295"]),
    (["tune", "softmax", "--seed", "4294967296"], ["seed 4294967296"]),
    (["worker", "nope"], ["'nope' is no address of a scheduler", "tcp://host:8786"]),
    (["worker", "tcp://host:x"], ["'tcp://host:x' is no address of a scheduler"]),
    (["demo", "--out", "/proc/x/y"], ["cannot make the folder /proc/x/y", "--out"]),
    (["tune", "softmax", "--trials", "0"], ["--trials"]),
    (["tune", "softmax", "--device", "cuda:77"], ["cuda:77", "devices here: cpu"]),
    (["tune", "softmax", "--out", "/proc/x"], ["cannot write /proc/x/journal", "another folder"]),
    (["tune", "softmax", "--shape", "M=8,N=8", "--from", "nothing-here"], ["nothing-here: cannot be read", "bundle"]),
    (["tune", "softmax", "--shape", "M=8,N=8", "--from", "http://127.0.0.1:9"], ["127.0.0.1:9"]),
    (["tune", "softmax", "--device", "tpu"], ["unknown device 'tpu'", "cpu"]),
    (["tune", "softmax", "--grid", "1"], ["--grid describes a kernel of a file", "FILE.py:KERNEL"]),
    (["tune", ADD], ["needs a shape", "--shape"]),
    (["tune", ADD, "--shape", "M=4,N=4"], ["shape of 'x_ptr'", "--tensor x_ptr=M,N"]),
    (["tune", ADD, "--shape", "n=4", "--tensor", "q=n"], ["no argument 'q'", "x_ptr"]),
    (["tune", ADD, "--shape", "n=4", "--tensor", "x_ptr=n:sink"], ["'sink'", "inout"]),
    (["tune", ADD, "--shape", "n=4", "--grid", "cdiv(n, "], ["cdiv(n, "]),
    (["tune", ADD, "--shape", "n=4", "--grid", "open(n)"], ["open"]),
    (["tune", ADD, "--shape", "n=4", "--search", "BLOCK_SIZE"], ["is not NAME=VALUE"]),
    (["tune", ADD, "--shape", "n=4", "--search", "BLOCK_SIZE=1..4"], ["'1..4' is no number", "BLOCK_SIZE=1,2,4"]),
    (["tune", ADD, "--shape", "n=4", "--tensor", "x_ptr=n", "--tensor", "x_ptr=n"], ["'x_ptr' twice", "once"]),
    (
        ["tune", ADD, "--shape", "n=4,k=2", "--grid", "cdiv(n, BLOCK_SIZE)", "--scalar", "n_elements=n"]
        + ["--tensor", "x_ptr=n", "--tensor", "y_ptr=n", "--tensor", "output_ptr=n"],
        ["nothing of add_kernel depends on the size 'k'", "leave it out: n"],
    ),
    (["compile", "a" * 300], ["aaaa", "File name too long"]),
    (["cache", "show", "a" * 300], ["File name too long"]),
    (["cache", "export", "{bundle}", "-o", ""], ["cannot write ."]),
    (["cache", "export", "{bundle}", "-o", "/"], ["cannot write /"]),
    (["workers", "drain", "\udcff", "--server", "http://127.0.0.1:9"], ["the argument '\\udcff' is not UTF-8 text"]),
    (["cache", "show", "missing.bundle"], ["cannot read the bundle missing.bundle", "FOLDER/records.bundle of"]),
    (["cache", "lookup", "k", "--shape", "n=1", "--dtype", "f17", "--bundle", "{bundle}"], ["dtype f17", "use "]),
    (["cache", "export", "{examples}/matmul.py"], ["matmul.py, line 1", "not a deuteron bundle"]),
    (
        ["cache", "lookup", "k", "--shape", "n=1", "--bundle", "{bundle}"],
        ["no kernel 'k'", "vector"],
    ),
    (
        [
            "cache",
            "lookup",
            "vector_add_kernel",
            "--shape",
            "n=7",
            "--strict",
            "--bundle",
            "{bundle}",
        ],
        ["no configuration for n=7", "without strict"],
    ),
    (["jobs", "--server", "http://127.0.0.1:9"], ["127.0.0.1:9 does not answer", "deuteron serve"]),
    (["watch", "x", "--server", "http://127.0.0.1:9"], ["does not answer", "--server"]),
    (["submit", "softmax", "--server", "http://127.0.0.1:9"], ["does not answer"]),
    (["cache", "pull", "--server", "http://127.0.0.1:9"], ["does not answer"]),
    (["serve", "--port", "99999"], ["--port"]),
    (["serve", "--scheduler", "nowhere"], ["DEUTERON_SCHEDULER: 'nowhere'", "tcp://"]),
    (["serve", "--host", "0.0.0.0"], ["no administrator's token", "deuteron token create"]),
    (
        ["serve", "--database", "mysql://x/y"],
        ["DEUTERON_DATABASE_URL: 'mysql://x/y'", "postgresql"],
    ),
    (["worker", "tcp://127.0.0.1:9", "--device", "cuda:5"], ["'cuda:5' is not present", "cpu"]),
    (["token", "create", "x", "--expires", "soon"], ["--expires 'soon'", "90d"]),
    (["token", "create", "x", "--scope", "root"], ["root", "admin"]),
    (["token", "revoke", "none"], ["no token none", "`deuteron token list`"]),
    (["token", "create", ""], ["the token has no name", "create ci"]),
    (["token", "create", "  "], ["the token has no name"]),
    (["cache", "export", "{bundle}", "--triton", "3.6.0"], ["--triton has no meaning with --format json", "sglang"]),
    (["cache", "export", "{bundle}", "--format", "csv", "--blocks", "X"], ["--blocks has no meaning", "helion"]),
    (["db", "upgrade", "9999"], ["'9999' is no revision", "0001", "deuteron db current"]),
    (["db", "upgrade", ""], ["'' is no revision", "base, head or one of 0001"]),
    (["db", "upgrade", "head+1"], ["'head+1' is no revision"]),
    (["db", "downgrade", "@"], ["'@' is no revision"]),
    (["db", "downgrade", "000", "--yes"], ["'000' is any of ", "0001"]),
    (["db", "current", "--url", "oracle://x"], ["DEUTERON_DATABASE_URL: 'oracle://x'"]),
    (["bench", "nope"], ["no benchmark 'nope'"]),
]


@pytest.mark.parametrize(("arguments", "expected"), COMMAND_LINES, ids=lambda v: " ".join(v)[:60] if v else "")
def test_message_names_place_and_remedy(run, examples: Path, bundle: Path, arguments: list[str], expected: list[str]):
    ran = run(*(a.format(examples=examples, bundle=bundle) for a in arguments))
    assert ran.code == 2, ran
    assert ran.out == ""
    # Messages in boxes are wrapped.
    text = " ".join(ran.err.replace("│", " ").split())
    for part in expected:
        assert part in text
    assert "Traceback" not in ran.err
    assert "site-packages" not in ran.err


KERNELS = {
    "unknown name": ("    tl.store(x_ptr, undefined_name)\n", ["undefined_name", "kernels.py:6"]),
    "unsupported syntax": ("    with x_ptr:\n        pass\n", ["kernels.py:6", "with"]),
    "wrong shapes": (
        "    a = tl.arange(0, 16) + tl.arange(0, 32)\n    tl.store(x_ptr, a)\n",
        ["kernels.py:6", "16", "32"],
    ),
    "not a power of two": ("    tl.store(x_ptr + tl.arange(0, 100), 1.0)\n", ["kernels.py:6"]),
    "python function": ("    print(open('x'))\n", ["kernels.py:6", "open"]),
}


@pytest.mark.parametrize("case", KERNELS)
def test_mistakes_in_a_kernel_show_the_line(run, kernel_file, case: str):
    body, expected = KERNELS[case]
    path = kernel_file(f"@triton.jit\ndef k(x_ptr):\n{body}")
    ran = run("compile", f"{path}:k", "-q", "--emit", "tile")
    assert (ran.code, ran.out) == (2, "")
    for part in expected:
        assert part in ran.err
    lines = ran.err.splitlines()
    caret = next(i for i, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret - 1].strip() == body.splitlines()[0].strip()
    assert "Traceback" not in ran.err


def test_too_much_shared_memory_says_how_much_there_is(run, examples: Path):
    ran = run(
        *("compile", MATMUL.format(examples=examples), *GPU, "--dtype", "f32"),
        *("--constexpr", "BLOCK_SIZE_M=256,BLOCK_SIZE_N=256,BLOCK_SIZE_K=256"),
    )
    assert ran.code == 2
    assert "shared memory" in ran.err
    assert str(227 * 1024) in ran.err


def test_text_that_is_not_python(run, tmp_path: Path):
    path = tmp_path / "broken.py"
    path.write_text("def k(:\n")
    for arguments in (["compile", f"{path}:k"], ["compile", path]):
        ran = run(*arguments)
        assert ran.code == 2
        assert "broken.py:1" in ran.err
        assert "Traceback" not in ran.err


SPACES = {
    "empty": ({"parameters": []}, "parameters"),
    "contradictory": (
        {
            "parameters": [{"name": "BLOCK_SIZE", "choices": [64, 128]}],
            "constraints": ["BLOCK_SIZE > 64", "BLOCK_SIZE < 128"],
        },
        "BLOCK_SIZE > 64",
    ),
}


@pytest.mark.parametrize("case", SPACES)
def test_spaces_without_a_configuration(run, tmp_path: Path, case: str):
    import json

    from deuteron.tuner import builtin_workload

    space, expected = SPACES[case]
    document = builtin_workload("vector_add").to_json()
    document["spaces"] = {"cpu": space}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(document))
    ran = run("tune", path, "--shape", "n=4096", "--out", tmp_path / "out")
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "x"}', '{"builtin": "nope"}', "\x00"])
def test_workload_files_that_are_none(run, tmp_path: Path, text: str):
    path = tmp_path / "w.json"
    path.write_text(text)
    ran = run("tune", path)
    assert ran.code == 2
    assert "w.json" in ran.err or "unknown workload" in ran.err
    assert "Traceback" not in ran.err


def test_a_damaged_bundle_is_named_with_its_line(run, bundle: Path, tmp_path: Path):
    content = bundle.read_bytes()
    truncated, corrupt, extra = (tmp_path / n for n in ("truncated", "corrupt", "extra"))
    truncated.write_bytes(content[:-20])
    corrupt.write_bytes(content.replace(b'"checked":true', b'"checked":trve'))
    extra.write_bytes(content + b"{}\n")
    for path, expected in (
        (truncated, "truncated"),
        (corrupt, "sha256"),
        (extra, "does not belong to it"),
    ):
        ran = run("cache", "show", path)
        assert ran.code == 2
        assert expected in ran.err
        assert str(path) in ran.err
        assert "fetch or export it again" in ran.err


def test_a_journal_that_is_a_pipe_is_not_waited_for(run, tmp_path: Path):
    os.mkfifo(tmp_path / "journal.jsonl")
    ran = run("tune", "vector_add", "--shape", "n=64", "--out", tmp_path)
    assert ran.code == 2 and "journal.jsonl: it is a pipe" in ran.err


def test_a_journal_of_another_job_is_not_touched(run, tmp_path: Path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "journal.jsonl").write_text('{"journal": 1, "job": "other"}\n')
    ran = run("tune", "vector_add", "--shape", "n=4096", "--out", folder)
    assert ran.code == 2
    assert "belongs to another job (kernel and its options" in ran.err
    assert (folder / "journal.jsonl").read_text() == '{"journal": 1, "job": "other"}\n'


ROWS = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def double(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * N + columns
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=columns < N), mask=columns < N)
"""


def test_a_default_that_covers_only_the_small_shape_is_no_reference(run, tmp_path: Path):
    (tmp_path / "rows.py").write_text(ROWS)
    command = ["tune", f"{tmp_path}/rows.py:double", "--shape", "M=8,N=300", "--grid", "M"]
    command += ["--tensor", "x_ptr=M,N", "--tensor", "out_ptr=M,N", "--search", "BLOCK=256,512"]
    ran = run(*command, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "leaves 352 of 2400 elements of the output 'out_ptr' unwritten" in ran.err
    assert "larger block" in ran.err.replace("\n", " ")


def test_a_worker_without_its_scheduler(run):
    import dask
    import distributed  # noqa: F401 its defaults join the configuration when it is imported, and would leave with the change

    with dask.config.set({"distributed.comm.timeouts.connect": "300ms"}):
        ran = run("worker", "tcp://127.0.0.1:1", "--device", "cpu")
    assert ran.code == 2
    assert "error: the scheduler tcp://127.0.0.1:1 does not answer" in ran.err
    assert "`dask scheduler`" in ran.err


@pytest.mark.parametrize(
    ("text", "code", "remedy"),
    [
        ("database or disk is full", sqlite3.SQLITE_FULL, "make room on its disk"),
        ("database is locked", sqlite3.SQLITE_BUSY, "another process is writing to it: try again once that is done"),
        ("database is locked", sqlite3.SQLITE_BUSY_SNAPSHOT, "another process is writing to it"),
    ],
)
def test_a_database_that_takes_nothing_says_what_helps(
    run, monkeypatch: pytest.MonkeyPatch, text: str, code: int, remedy: str
):
    """It asked whether the database answers, or, of a file that another process writes, for SQLite's."""
    assert run("db", "upgrade").code == 0

    def refused(*_: object) -> None:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise OperationalError(None, None, error) from error

    monkeypatch.setattr("deuteron.migrations.upgrade", refused)
    ran = run("db", "upgrade")
    assert ran.code == 2
    assert f"{text}\nhint: {remedy}" in ran.err


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.EMFILE, "ulimit -n"), (errno.ENFILE, "fs.file-max"), (errno.ENOMEM, "more memory")],
)
def test_what_the_system_has_no_more_of(run, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str):
    """Of a file that could not be opened, whoever needed it, the hint was to make its folder."""

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code), "some.py")

    monkeypatch.setattr("deuteron.migrations.upgrade", refused)
    ran = run("db", "upgrade")
    assert ran.code == 2 and ran.err.startswith(f"error: {os.strerror(code)}\nhint: ") and remedy in ran.err


def test_a_search_that_may_open_few_files(tmp_path: Path):
    """It ended in a traceback."""
    tune = [sys.executable, "-P", "-m", "deuteron", "tune", "vector_add", "--shape", "n=64", "--device", "cpu"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", *tune, "--trials", "2", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "error: Too many open files\nhint: let this shell open more: ulimit -n 1024\n" in done.stderr


def test_a_database_that_cannot_be_made(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_DATABASE_URL", f"sqlite:///{tmp_path}")
    for command in (["token", "create", "ci"], ["serve", "--port", "0"]):
        ran = run(*command)
        assert ran.code == 2
        assert f"{tmp_path}: unable to open database file" in ran.err
        assert "hint: name a file that is SQLite's" in ran.err


def test_a_home_that_cannot_be_made(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_HOME", "/proc/x")
    for command in (["token", "create", "ci"], ["db", "upgrade"]):
        ran = run(*command)
        assert ran.code == 2
        assert "cannot write /proc/x" in ran.err and "DEUTERON_HOME" in ran.err


def test_a_folder_of_the_service_that_cannot_be_made_is_named(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not the database, which is beside it."""
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path))
    for name, command in (("bundles", ["serve", "--port", "0"]), ("workers", ["worker", "tcp://127.0.0.1:1"])):
        (tmp_path / name).touch()
        ran = run(*command)
        assert ran.code == 2 and f"{tmp_path / name}: File exists" in ran.err


def test_the_folder_of_a_bundle_is_told_from_it(run, bundle: Path):
    ran = run("cache", "show", bundle.parent)
    assert ran.code == 2 and f"hint: {bundle.parent / 'records.bundle'}" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "{file}"],
        ["replay", SPACE, "--warm-from", "{file}"],
        ["cover", "k", "--from", "{file}"],
        ["learn", "softmax", "--from", "{file}"],
        ["tune", "softmax", "--from", "{file}"],
        ["tune", "{file}"],
        ["tune", ADD, "--workload", "{file}"],
        ["cache", "show", "{file}"],
        ["cache", "lookup", "k", "--shape", "M=1", "--bundle", "{file}"],
        ["cache", "export", "{file}"],
    ],
)
def test_what_may_never_end_is_not_read(run, examples: Path, tmp_path: Path, command: list[str]):
    """A pipe that nobody writes to, whatever its name says it is, and a device."""
    folder = tmp_path / "out"
    folder.mkdir()
    pipes = [tmp_path / "pipe.json", tmp_path / "pipe.bundle", folder / "journal.jsonl"]
    if "--from" in command and command[0] == "tune":
        pipes.append(tmp_path / "softmax_kernel.autotune.json")
    for pipe in pipes:
        os.mkfifo(pipe)
    for path, what in (*((pipe, "is a pipe") for pipe in pipes), ("/dev/zero", "is a device")):
        ran = run(*(part.format(file=path, examples=examples) for part in command))
        assert ran.code == 2, path
        assert what in ran.err or f"there is no workload '{path}'" in ran.err


@pytest.mark.parametrize("content", [b"def k(:\n", b"\xff\xfe\x00", b"x = '\x00'"])
def test_a_kernel_s_file_that_is_no_python(run, tmp_path: Path, content: bytes):
    (tmp_path / "k.py").write_bytes(content)
    for command in ("space", "compile", "explain"):
        ran = run(command, f"{tmp_path}/k.py:k")
        assert ran.code == 2 and "k.py" in ran.err, command


@pytest.mark.parametrize("command", ["compile", "sanitize"])
def test_pipes_are_no_files(run, tmp_path: Path, command: str):
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path / "pipe.py", "/dev/null"):
        ran = run(command, path)
        assert ran.code == 2 and f"{path} is a pipe or a device, and no file" in ran.err


@pytest.mark.parametrize("coding", [b"# coding: klingon\n", b"# \xff\n", b"\n\n\n# \xff\n"])
def test_text_that_cannot_be_decoded(run, tmp_path: Path, coding: bytes):
    (tmp_path / "k.py").write_bytes(coding)
    ran = run("compile", f"{tmp_path}/k.py:k")
    assert ran.code == 2 and f"cannot read {tmp_path}/k.py: " in ran.err
