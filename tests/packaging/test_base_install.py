"""``pip install deuteron`` without extras: everything but service and viewer works, and those say what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import AnsweringServer, send

from deuteron.compiler.extras import EXTRAS
from deuteron.profiler import Profile

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

SEARCH = "deuteron tune softmax --shape M=64,N=64 --out not-made --strategy"

LAUNCH = """
import numpy as np
import deuteron as triton
import deuteron.language as tl
import deuteron.profiler as proton


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


x = np.arange(1000, dtype=np.float32)
out = np.empty_like(x)
with proton.scope("work"):
    double[(triton.cdiv(1000, 256),)](x, out, 1000, BLOCK=256)
assert (out == 2 * x).all()
"""


@pytest.fixture(scope="module")
def tuned(base) -> Path:
    """The folder of a search of two configurations."""
    options = "--shape M=64,N=256 --dtype f32 --device cpu --trials 2 --out tuned"
    ran = base.run("deuteron", "tune", "softmax", *options.split())
    assert ran.code == 0, ran.err
    return base.folder / "tuned"


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a service that has no jobs."""

    with AnsweringServer(lambda handler: send(handler, 200, b'{"jobs": []}')) as server:
        yield server.url


def test_the_requirements_are_met_and_nothing_optional_is_there(base):
    command = [sys.executable, "-m", "pip", "--python", base.python, "check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
    optional = sorted(package for packages in EXTRAS.values() for package in packages)
    found = base.run("python", "-c", f"import importlib.util as u; print([p for p in {optional} if u.find_spec(p)])")
    assert found.out == "[]\n", found.err


def test_a_kernel_compiles_to_ptx(base):
    shutil.copy(EXAMPLES / "matmul.py", base.folder)
    ran = base.run("deuteron", "compile", "matmul.py:matmul_kernel", "--target", "cuda:90a", "--emit", "ptx", "-q")
    assert ran.code == 0, ran.err
    assert ".target sm_90a" in ran.out and "wgmma.mma_async" in ran.out


def test_a_launch_on_the_cpu_is_profiled(base):
    (base.folder / "launch.py").write_text(LAUNCH)
    ran = base.run("proton", "-n", "launch", "launch.py")
    assert ran.code == 0, ran.err
    (launched,) = [n for path, n in Profile.read(base.folder / "launch.hatchet").walk() if path == ("work", "double")]
    assert launched.metrics["count"] == 1 and launched.metrics["time (ns)"] > 0


def test_a_search_leaves_journal_bundle_and_profile(tuned: Path):
    assert (tuned / "journal.jsonl").stat().st_size > 0
    assert Profile.read(tuned / "search.hatchet").root.children
    assert (tuned / "records.bundle").is_file()


def test_a_profile_is_shown(base, tuned: Path):
    shown = base.run("proton-viewer", "-m", "time/us,count", tuned / "search.hatchet")
    assert shown.code == 0 and shown.out.splitlines()[0].endswith(" ROOT"), shown.err
    assert "- time\n" in base.run("proton-viewer", "-l", tuned / "search.hatchet").out
    page = base.run("proton-viewer", "-f", "html", tuned / "search.hatchet")
    assert page.code == 0 and page.out.startswith("<!doctype html>") and "class Picture" in page.out, page.err


def test_a_bundle_answers_offline(base, tuned: Path):
    bundle = tuned / "records.bundle"
    shown = base.run("deuteron", "cache", "show", bundle)
    assert shown.code == 0 and "softmax_kernel" in shown.out, shown.err
    ran = base.run("deuteron", "cache", "lookup", "softmax_kernel", "--shape", "M=64,N=256", "--bundle", bundle)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split() == ["match", "exact"]
    exported = base.run("deuteron", "cache", "export", bundle, "--format", "python")
    assert exported.code == 0 and "triton.Config(" in exported.out, exported.err


def test_the_client_reaches_a_service(base, service: str):
    ran = base.run("deuteron", "jobs", "--server", service)
    assert (ran.code, ran.out) == (0, "no jobs\n"), ran.err


@pytest.mark.parametrize(
    "arguments",
    [["submit", "softmax", "--shape", "M=64,N=64"], ["watch", "1"], ["cancel", "1"], ["cache", "pull"]],
    ids=lambda arguments: arguments[0],
)
def test_client_commands_fail_for_want_of_a_service_only(base, arguments: list[str]):
    ran = base.run("deuteron", *arguments, "--server", "http://127.0.0.1:9")
    assert ran.code == 2 and "http://127.0.0.1:9 does not answer" in ran.err


def test_profiling_pytest_takes_a_pytest(base):
    ran = base.run("proton", "pytest")
    assert ran.code == 2 and ran.err.endswith("hint: pip install pytest\n")


def test_every_help_text_is_there(base):
    for command in ([], ["serve"], ["worker"], ["db"], ["db", "upgrade"], ["token"], ["token", "create"], ["demo"]):
        ran = base.run("deuteron", *command, "--help")
        assert ran.code == 0 and "Usage" in ran.out, ran.err
    assert base.run("proton-viewer", "--help").code == 0
    assert base.run("deuteron", "devices").code == 0


@pytest.mark.parametrize(
    ("command", "what", "extra"),
    [
        ("deuteron serve", "deuteron serve", "server"),
        ("deuteron worker tcp://127.0.0.1:9", "deuteron worker", "server"),
        ("deuteron db upgrade", "deuteron db", "server"),
        ("deuteron db current", "deuteron db", "server"),
        ("deuteron token list", "deuteron token", "server"),
        ("deuteron demo", "deuteron demo", "server"),
        ("deuteron keys create", "a key for signatures", "keys"),
        ("proton -m periodic_flushing:format=hatchet_msgpack launch.py", "the format hatchet_msgpack", "viewer"),
        (f"{SEARCH} optuna", "the strategy optuna", "optuna"),
        (f"{SEARCH} optuna:nsgaii", "the strategy optuna:nsgaii", "optuna"),
    ],
)
def test_a_command_says_which_extra_it_lacks(base, tuned: Path, command: str, what: str, extra: str):
    (base.folder / "launch.py").write_text(LAUNCH)
    before = set(base.folder.rglob("*"))
    ran = base.run(*command.split())
    assert ran.code == 2
    assert f"error: {what} needs " in ran.err
    assert ran.err.endswith(f"hint: pip install 'deuteron[{extra}]'\n")
    assert "Traceback" not in ran.err
    made = {path for path in set(base.folder.rglob("*")) - before if "__pycache__" not in path.parts}
    assert made == set(), "a command that cannot run leaves nothing behind"


@pytest.mark.parametrize(
    "statement",
    [
        "from deuteron.server import create_app",
        "from deuteron.server import ServiceStore",
        "import deuteron.migrations as m; m.head()",
        "import deuteron.migrations as m; m.current('sqlite://')",
        "import deuteron.profiler.viewer as v; v.read('tuned/search.hatchet')",
    ],
)
def test_a_library_call_says_which_extra_it_lacks(base, tuned: Path, statement: str):
    ran = base.run("python", "-c", statement)
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith("hint: pip install 'deuteron[")
    assert "deuteron.compiler.errors.MissingExtra: " in ran.err
