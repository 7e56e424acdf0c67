"""Standard streams that are closed, full, or a terminal without UTF-8: a message at most, and never a traceback."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

DEUTERON = [sys.executable, "-P", "-m", "deuteron"]
VIEWER = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from deuteron.profiler.viewer.arguments import main; sys.exit(main())",
]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "a.hatchet"
    frame = {"name": "ROOT", "type": "function"}
    path.write_text(f'[{{"frame": {str(frame).replace(chr(39), chr(34))}, "metrics": {{"count": 1}}, "children": []}}]')
    return path


def commands(profile: Path) -> list[list[str]]:
    return [
        [*DEUTERON, "devices"],
        [*DEUTERON, "--help"],
        [*DEUTERON, "db", "upgrade"],
        [*VIEWER, "-l", str(profile)],
        [*VIEWER, "-m", "count", str(profile)],
    ]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_a_message(profile: Path, unbuffered: str):
    for command in commands(profile):
        with Path("/dev/full").open("w") as full:
            environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment, timeout=60
            )
        assert done.returncode == 2, command
        assert done.stderr.endswith("error: cannot write the output: No space left on device\n"), done.stderr
        assert "Traceback" not in done.stderr and "ignored" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_secret_that_cannot_be_printed_is_of_no_token(unbuffered: str):
    """It is shown once: the token stayed, and nobody had its secret."""
    create, environment = [*DEUTERON, "token", "create", "ci"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    read, gone = os.pipe()
    os.close(read)
    with Path("/dev/full").open("w") as full, os.fdopen(gone, "w") as pipe:
        for output, why in ((full, "No space left on device"), (pipe, "Broken pipe")):
            done = subprocess.run(
                create, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment, timeout=60
            )
            assert done.returncode == 2
            assert done.stderr == f"error: cannot write the secret: {why}\nhint: the token was not created: try again\n"
    listed = subprocess.run([*DEUTERON, "token", "list"], capture_output=True, text=True, check=True, timeout=60)
    assert "name" in listed.stdout and "ci" not in listed.stdout.split()


def test_a_full_disk_behind_the_messages_keeps_the_code():
    with Path("/dev/full").open("w") as full:
        for arguments in (["compile", "missing.py"], ["--nonsense"]):
            assert subprocess.run([*DEUTERON, *arguments], stderr=full, check=False, timeout=60).returncode == 2


def test_a_reader_that_has_gone_has_a_code_of_its_own():
    read, write = os.pipe()
    os.close(read)
    for arguments in (["--help"], ["devices"]):
        command = [*DEUTERON, *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(write)


def test_a_closed_output_is_written_nowhere(profile: Path):
    for command in commands(profile):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), command


def test_a_terminal_without_utf8_shows_what_it_can(tmp_path: Path):
    name = "kernel\u0394"
    (tmp_path / "k.py").write_text(
        f"import deuteron as triton\n\n\n@triton.jit\ndef {name}(x_ptr, n):\n    pass\n", encoding="utf-8"
    )
    primary, secondary = pty.openpty()
    done = subprocess.Popen(
        [*DEUTERON, "compile", f"{tmp_path}/k.py:{name}", "--emit", "tile"],
        stdout=secondary,
        stderr=secondary,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    os.close(secondary)
    shown = b""
    try:
        while part := os.read(primary, 1 << 16):
            shown += part
    except OSError:  # the terminal is gone with its last program
        pass
    os.close(primary)
    assert done.wait(60) == 0 and b"kernel?" in shown
