"""A pytest plugin that runs a library's tests with deuteron under Triton's name and arrays of PyTorch on the CPU.

library_suite.py starts it. The journal is that of suite_plugin.py.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import simulated_launches
from names import put_in_place
from suite_plugin import Journal, Suite

from deuteron.compat import inductor
from deuteron.compat.after_import import after_import
from deuteron.compat.alias import install_for_all
from deuteron.compat.triton import Autotuner
from deuteron.compiler.runtime.launch.hooks import add_launch_hook


def pytest_addoption(parser: pytest.Parser) -> None:
    """What library_suite.py says of a run."""
    group = parser.getgroup("library")
    group.addoption("--suite-tests", type=Path, help="folder that cases are named from")
    group.addoption("--suite-journal", type=Path, help="file that a line is added to for every event")
    group.addoption("--suite-sample", type=int, default=0, help="cases of a test function; 0: all")
    group.addoption("--suite-smallest", action="store_true", help="take the smallest cases, not random ones")
    group.addoption("--suite-seed", type=int, default=0)
    group.addoption("--suite-cuda-on-cpu", action="store_true", help="arrays of device cuda are made on the CPU")
    group.addoption("--suite-first-config", action="store_true", help="autotuned kernels have one configuration")
    group.addoption("--suite-random-config", action="store_true", help="the same, chosen by the seed")
    group.addoption("--suite-inductor", action="store_true", help="torch.compile writes Triton kernels for the CPU")
    group.addoption("--suite-on-gpu", action="store_true", help="libraries see the GPU as it is")
    group.addoption("--suite-record", type=Path, help="folder that launches are written to")
    group.addoption("--suite-helpers-from", type=Path, help="a checkout of Triton, for the helpers of its tests")
    group.addoption("--suite-limit", type=float, default=60.0, help="seconds for a case")
    simulated_launches.add_options(group, "--suite-")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the alias in place before any test, or a conftest, is imported."""
    options = early_config.known_args_namespace
    if options.suite_helpers_from:
        put_in_place(options.suite_helpers_from)
    install_for_all()
    if not options.suite_on_gpu:
        after_import("fla.utils._device", fla_on_hopper if options.suite_simulate else fla_on_cpu)
        after_import("flag_gems.runtime.backend.device", flag_gems_on_cpu)
    if options.suite_inductor:
        inductor.install()
        sys.modules["torch._inductor.config"].cpu_backend = "triton"  # type: ignore[attr-defined]
    if options.suite_first_config:
        Autotuner.prune = lambda self, args, kwargs: self.configs[:1]  # type: ignore[method-assign]
    if options.suite_random_config:
        chance = random.Random(options.suite_seed)
        Autotuner.prune = lambda self, args, kwargs: [chance.choice(self.configs)]  # type: ignore[method-assign]
    if options.suite_cuda_on_cpu:
        import cuda_on_cpu  # PyTorch, which takes a second, before every test

        cuda_on_cpu.autocast_on_cpu()
        cuda_on_cpu.CudaOnCpu().__enter__()
        if options.suite_simulate:
            cuda_on_cpu.told_of_an_h100()


def pytest_configure(config: pytest.Config) -> None:
    """Begin the journal."""
    journal = Journal(config.getoption("--suite-journal"))
    journal.write(event="begin", stand_ins=[])
    config.pluginmanager.register(LibrarySuite(config, journal), "suite")
    simulated_launches.begin(config, config.getoption("--suite-journal"))
    if folder := config.getoption("--suite-record"):
        from recorded_launches import RecordedLaunches  # PyTorch, which the library imports in any case

        add_launch_hook(RecordedLaunches(folder))


def fla_on_cpu(module: Any) -> None:
    """flash-linear-attention asks Triton for the device, and takes cuda where the answer is cpu; some of its functions
    assert that their arrays are on a GPU."""
    torch = sys.modules["torch"]
    torch.Tensor.is_cuda = property(lambda array: True)  # type: ignore[attr-defined]
    module.device, module.device_torch_lib = "cpu", torch.cpu
    module.autocast_custom_fwd = partial(torch.amp.custom_fwd, device_type="cpu")
    module.autocast_custom_bwd = partial(torch.amp.custom_bwd, device_type="cpu")


def fla_on_hopper(module: Any) -> None:
    """The same, and it takes the branches that it has for NVIDIA's GPUs."""
    fla_on_cpu(module)
    for name in ("IS_NVIDIA", "IS_NVIDIA_HOPPER", "IS_TF32_SUPPORTED", "IS_TMA_SUPPORTED"):
        for spelling in (name, name.lower()):
            if hasattr(module, spelling):
                setattr(module, spelling, True)
    module.check_shared_mem = lambda *args, **options: True


def flag_gems_on_cpu(module: Any) -> None:
    """FlagGems registers its operators for the device that it finds; here they are called for arrays on the CPU."""
    begin = module.DeviceDetector.__init__

    def on_cpu(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.dispatch_key = "CPU"

    module.DeviceDetector.__init__ = on_cpu


class LibrarySuite(Suite):
    """Chooses the cases of a file, by size if asked."""

    def __init__(self, config: pytest.Config, journal: Journal) -> None:
        self.journal, self.tests = journal, config.getoption("--suite-tests")
        self.sample: int = config.getoption("--suite-sample")
        self.seed: int = config.getoption("--suite-seed")
        self.limit: float = config.getoption("--suite-limit")
        self.smallest: bool = config.getoption("--suite-smallest")
        self.left_out = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sample by function, and pass over what an earlier process decided."""
        decided, by_function = self.journal.decided(), defaultdict(list)
        for item in items:
            by_function[self.function(item)].append(item)
        chosen: set[str] = set()
        for function, cases in by_function.items():
            self.journal.write(event="collected", function=function, cases=len(cases), left_out=None)
            count = min(self.sample or len(cases), len(cases))
            if self.smallest:
                picks = sorted(cases, key=size)[:count]
            else:
                picks = random.Random(f"{self.seed} {function}").sample(cases, count)
            chosen.update(item.nodeid for item in picks)
        items[:] = [item for item in items if item.nodeid in chosen and self.case(item) not in decided]


def size(item: pytest.Item) -> float:
    """The product of the whole numbers among a case's parameters, those in lists and shapes included."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    text = " ".join(str(value) for value in parameters.values() if not isinstance(value, bool | float))
    return math.prod(max(1, int(number)) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", text))
