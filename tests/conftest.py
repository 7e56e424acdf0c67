"""GPU tests: skipped without a GPU, an error with --require-gpu; PyTorch for those that work together with it."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from deuteron.tuner.records import Predictor

#: Test files that need more than the base installation. A GPU machine may have no more; CI and `make test` install all.
NEEDS = {
    "fastapi": ["server", "tuner/test_stored_files.py"],
    "filecheck": ["compiler/test_tile_files.py"],
}
collect_ignore = [file for package, files in NEEDS.items() if find_spec(package) is None for file in files]

# Tests and the processes they start keep their caches and databases away from the user's.
_home = tempfile.TemporaryDirectory(prefix="deuteron-tests-")
os.environ["DEUTERON_HOME"] = _home.name

# A shell starts background jobs with interrupts ignored, and their children inherit that: those of tests do not.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", max_examples=60, derandomize=True, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=5000, deadline=None)
# For benchmarks/mutants.py: that a test fails is enough, its smallest example is not wanted.
settings.register_profile("mutants", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("DEUTERON_TEST_PROFILE", "ci"))


def pytest_collection_finish() -> None:
    """So many tests are a heap that every full collection would walk again: an eighth of the processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


#: Grids and scratch memory beyond which programs run one after the other over the same poison.
MOST_POISONED, LARGEST_POISONED = 64, 1 << 20


@pytest.fixture(scope="session", autouse=True)
def poisoned_scratch() -> Iterator[None]:
    """Each program on the CPU finds its scratch memory full of NaN: what the program before it left there, often the
    very values that it forgot to compute, would make it right by chance."""
    from deuteron.compiler.targets.cpu import launch, pool

    launched = launch.LoadedKernel._launch

    def poisoning(self: launch.LoadedKernel, *what: Any) -> pool.GridLaunch:
        made = launched(self, *what)
        if self.scratch_bytes:
            made.entry = poisoned(made.entry, self.scratch_bytes)
        return made

    def poisoned(entry: Any, size: int) -> Any:
        def each(arguments: int, first: int, last: int, sizes: int, scratch: int, status: int) -> None:
            many = last - first > MOST_POISONED or size > LARGEST_POISONED
            for begin in [first] if many else range(first, last):
                ctypes.memset(scratch, 0xFF, size)
                entry(arguments, begin, last if many else begin + 1, sizes, scratch, status)
                if ctypes.c_int64.from_address(status).value:
                    return

        return pool.ENTRY(each)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch.LoadedKernel, "_launch", poisoning)
        yield


@pytest.fixture(scope="session", autouse=True)
def same_environment() -> Iterator[None]:
    """Templates of worker processes live on from test to test, although pytest writes the name of each into the
    environment: a start takes most of a second."""
    from deuteron.compiler import knobs

    inherited = knobs.inherited_environment

    def without_test() -> dict[str, str]:
        return {name: value for name, value in inherited().items() if name != "PYTEST_CURRENT_TEST"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knobs, "inherited_environment", without_test)
        yield


@cache
def missing_gpu() -> str | None:
    """Why GPU tests cannot run; None if they can."""
    from deuteron.compiler.errors import DeuteronError
    from deuteron.compiler.runtime.devices import get_device

    try:
        get_device("cuda:0")
    except DeuteronError as error:
        return error.message
    return None


@pytest.fixture
def live_service() -> Iterator[Callable[..., str]]:
    """``live_service(home, **settings)``: the address of a service that listens, in this process, without workers."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(home: Path, listen_on: int = 0, **fields: Any) -> str:
            import threading
            from dataclasses import replace

            import uvicorn

            from deuteron import migrations
            from deuteron.server import Settings, create_app
            from deuteron.server.listen import bind

            home.mkdir(parents=True, exist_ok=True)
            settings = Settings(home=home, port=listen_on, scheduler="none", **fields)
            migrations.upgrade(settings.database_url)
            listener = bind(settings)
            settings = replace(settings, port=listener.getsockname()[1])
            server = uvicorn.Server(
                uvicorn.Config(create_app(settings), log_level="error", timeout_graceful_shutdown=1)
            )
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join(20)

            # The socket listens already: who connects before the application runs waits.
            stack.callback(stop)
            return settings.base_url

        yield start


class LastLaunch:
    """A launch hook that keeps what the last launch recorded: None if it was not asked to."""

    def enter(self, event: Any) -> None:
        pass

    def exit(self, event: Any) -> None:
        self.records = event.records


@pytest.fixture
def listener() -> Iterator[LastLaunch]:
    """Hears of launches; what kernels record is not asked for any more when the test has ended."""
    from deuteron.compiler.runtime.launch.hooks import add_launch_hook, remove_launch_hook
    from deuteron.compiler.runtime.launch.recording import recording

    made = LastLaunch()
    add_launch_hook(made)
    yield made
    remove_launch_hook(made)
    recording.set(None)


@pytest.fixture
def torch() -> Any:
    """PyTorch for CUDA: what works together with it is tested on its tensors, streams and graphs."""
    module = pytest.importorskip("torch", reason="needs PyTorch for CUDA: pip install torch")
    if not module.cuda.is_available():
        pytest.skip("needs PyTorch for CUDA; the one installed is for the CPU, or finds no GPU that it supports")
    return module


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-gpu",
        action="store_true",
        help="a GPU test that cannot run is an error, not a skip",
    )
    parser.addoption(
        "--screenshots",
        type=Path,
        metavar="FOLDER",
        help="tests of pages write the pictures of the documentation there (docs/images)",
    )
    parser.addoption(
        "--full-matrix",
        action="store_true",
        help="arithmetic is tested on every pair of element types, not on a sample",
    )
    parser.addoption(
        "--axe",
        type=Path,
        metavar="AXE.MIN.JS",
        help="the script of npm's axe-core: tests/server/test_every_page.py has it look for what is not accessible",
    )


#: Of a picture in the documentation.
MOST_PICTURE_BYTES = 150_000
#: Folders with files that take long. They come first: a worker that began such a file at the end would let others wait.
LONG = ("server", "cli", "examples", "fuzz", "tuner")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONG)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    reason = missing_gpu()
    if reason is None:
        return
    if item.config.getoption("--require-gpu"):
        pytest.fail(f"--require-gpu: {reason}", pytrace=False)
    pytest.skip(f"needs an NVIDIA GPU (there: make gpu, or pytest -m gpu --require-gpu); here, {reason}")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless browser that keeps its console's messages."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="needs selenium, which the extra dev brings: pip install selenium"
    )
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--window-size=1280,1200", f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def open_file(chromium: Any) -> Iterator[Callable[[Path], Any]]:
    """Opens a page that needs nothing else; at the end nothing was thrown, blocked or loaded."""

    def show(path: Path) -> Any:
        chromium.get(path.as_uri())
        return chromium

    yield show
    loaded = chromium.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded == []
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    chromium.get("about:blank")


@pytest.fixture
def screenshot(chromium: Any, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a picture of what the browser shows, if pictures were asked for."""
    given = request.config.getoption("--screenshots")

    def take(name: str) -> None:
        if given is None:
            return
        folder = request.config.invocation_params.dir / given  # tests change the directory
        folder.mkdir(parents=True, exist_ok=True)
        picture = chromium.get_screenshot_as_png()
        assert len(picture) < MOST_PICTURE_BYTES
        (folder / f"{name}.png").write_bytes(picture)

    return take


@pytest.fixture
def predictor() -> Callable[..., Predictor]:
    """A predictor made by hand, with any field changed: of "abab..." over M and N it says BLOCK=64 where M is above 32,
    else 16, and M has to be at least BLOCK."""
    from msgspec.structs import replace

    from deuteron.tuner.prediction import Accuracy, CrossValidation, Feature, Forest, Ranking
    from deuteron.tuner.records import DeviceFingerprint, Predictor
    from deuteron.tuner.space import Parameter, Space

    def make(**changes: object) -> Predictor:
        space = Space((Parameter("BLOCK", (16, 64)), Parameter("w", (4,))), ("BLOCK <= M",))
        left, right, leaves = (1, 1, 3, 3, 4), (2, 1, 4, 3, 4), (0.0, 0.5, 0.0, 1.0, -1.0)
        made = Predictor(
            kernel_name="kernel",
            kernel_hash="ab" * 32,
            device=DeviceFingerprint(
                "cuda", "NVIDIA H200", sm_count=132, memory_bytes=144 << 30, compute_capability=(9, 0)
            ),
            dtype="f32",
            toolchain={"deuteron": "0.1.0"},
            shapes=({"M": 64, "N": 64}, {"M": 1024, "N": 64}),
            trials=40,
            ranking=Ranking(
                ("M", "N"),
                space,
                (),
                (Feature("size", ("M",)), Feature("value", (), ("BLOCK",))),
                ({"BLOCK": 16, "w": 4}, {"BLOCK": 64, "w": 4}),
                Forest((0,), (0, 0, 1, 0, 0), (5.0, 0.0, 5.0, 0.0, 0.0), left, right, leaves),
                (((1 << 39, 1 << 39),),) * 2,
            ),
            accuracy=CrossValidation(12, Accuracy(0.97, 0.93, 0.8), Accuracy(0.90, 0.7, 0.5)),
            dims_from_arguments={"M": "m", "N": "x.shape[0]"},
            created_at="2026-01-01T00:00:00+00:00",
            id="p",
        )
        return replace(made, **changes)

    return make
