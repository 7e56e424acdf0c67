"""One public operator under one compiler, in a process of its own that answers requests over a pipe.

The process imports ``triton`` as itself or as deuteron's alias of it, imports the operator's file and evaluates the
expression that the file assigns to ``result_gold`` as often as it is asked.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from tritonbench_compare import differences, on_host, tensors_in

RESULT = "result_gold"
#: What uninitialised memory holds while results are compared: zero, and a number that is neither small nor round.
FILLS = (0, 77)


@dataclass
class Outcome:
    """What running an operator came to. ``unsteady`` says why the results of this compiler depend on more than the
    inputs: two evaluations differ, or two with other contents of uninitialised memory."""

    error: str = ""
    message: str = ""
    unsteady: str = ""
    seconds: float = 0.0


@dataclass
class Window:
    """A few evaluations in a row: GPU microseconds of the operator's own kernels in one evaluation, and its launches by
    kernel name."""

    gpu: float
    launches: dict[str, float] = field(default_factory=dict)


def serve(pipe: Connection, compiler: str, path: Path, scratch: Path) -> None:
    """Answer requests (method name and arguments) about one operator until None comes.

    ``compiler`` is ``triton`` or ``deuteron``. What the file prints goes to a file in ``scratch``.
    """
    with (scratch / f"{path.stem}.{compiler}.log").open("w") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    if compiler == "deuteron":
        from deuteron.compat.triton import install

        install()
    import triton

    assert triton.__name__.startswith("deuteron") == (compiler == "deuteron"), "the alias is not what was asked for"
    torch.zeros(1, device="cuda")
    side = Side(path)
    while (request := pipe.recv()) is not None:
        method, *arguments = request
        pipe.send(getattr(side, method)(*arguments))


class Side:
    """The operator's file as a module, and the expression whose value is its result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tree = ast.parse(path.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        #: Kernels are told from torch's by their names, which both compilers keep.
        self.own_kernels = {f.name for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)}
        self.expression = _result_expression(tree, path)
        self.module: ModuleType | None = None
        #: Seconds of the last evaluation, its copies to the host included; 0 where another would take longer.
        self._lasted = 0.0

    def run(self, keep: Path) -> Outcome:
        """Run the file, keep its results, and see whether they are steady."""
        begin = time.perf_counter()
        outcome = Outcome()
        try:
            first = self._evaluate(FILLS[0])
            if not tensors_in(first):
                outcome.error, outcome.message = "no result", "the file's tests return no data"
            else:
                torch.save(first, keep)
                outcome.unsteady = self._unsteady(first)
        except Exception as error:
            outcome.error, outcome.message = type(error).__name__, _one_line(error)
            traceback.print_exc()
        outcome.seconds = time.perf_counter() - begin
        return outcome

    def _unsteady(self, first: object) -> str:
        if any(differences(self._evaluate(FILLS[0]), first)):
            return "differs from run to run"
        if any(differences(self._evaluate(FILLS[1]), first)):
            return "depends on uninitialised memory"
        return ""

    def depends_on_choice(self) -> bool:
        """Whether results change with the configuration that autotuning happens to choose: with all kernels in the
        first of theirs they are not those with all in the last. A configuration that fails may take the process along.
        """
        tuned = self._tuners()
        chosen = []
        for place in (0, -1):
            kept = [tuner.configs for tuner in tuned]
            for tuner in tuned:
                tuner.configs = [tuner.configs[place]]
            try:
                chosen.append(self._evaluate(FILLS[0]))
            except Exception:
                traceback.print_exc()
                return False
            finally:
                for tuner, configs in zip(tuned, kept, strict=True):
                    tuner.configs = configs
        return any(differences(*chosen))

    def forget_choices(self) -> None:
        """Let every autotuner choose again at its next launch."""
        for tuner in self._tuners():
            tuner.cache.clear()
        self._lasted = 0.0

    def _tuners(self) -> list[Any]:
        assert self.module is not None, "the file has run"
        return [tuner for value in vars(self.module).values() if (tuner := _tuner_in(value))]

    def _evaluate(self, fill: int) -> object:
        """The result for fixed random seeds, on the host. The first call runs the file, which may draw numbers first:
        its own evaluation is not the one that counts."""
        begin = time.perf_counter()
        with filled_memory(fill):
            if self.module is None:
                _seed()
                self.module = _load(self.path)
            result = self._call()
            torch.cuda.synchronize()
        found = on_host(result)
        self._lasted = time.perf_counter() - begin
        return found

    def _call(self) -> object:
        _seed()
        return eval(self.expression, vars(self.module))

    def warm(self, seconds: float) -> int:
        """Evaluate twice, and say how many evaluations take about ``seconds`` (at least 1, at most 50). What took 40
        times as long before is one without another look: some files spend seconds on the host."""
        if self._lasted > 40 * seconds:
            return 1
        for _ in range(2):
            begin = time.perf_counter()
            self._call()
            torch.cuda.synchronize()
        return max(1, min(50, int(seconds / (time.perf_counter() - begin))))

    def watch(self) -> None:
        """Begin to record kernels: CUPTI through torch.profiler, whose start and stop take a second together."""
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(activities=[ProfilerActivity.CUDA])
        self._profiler.start()

    def window(self, times: int) -> float:
        """Evaluate ``times`` times; wall microseconds of one evaluation."""
        begin = time.perf_counter()
        for _ in range(times):
            self._call()
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / times * 1e6

    def kernels(self, windows: int, times: int) -> list[Window]:
        """What ran since :meth:`watch`, in as many windows of ``times`` evaluations; none if they did not all run the
        same kernels, as then it is not known which belong to which."""
        from torch.autograd import DeviceType

        self._profiler.stop()
        found = [e for e in self._profiler.events() if e.device_type == DeviceType.CUDA and e.name in self.own_kernels]
        found.sort(key=lambda event: event.time_range.start)
        each = len(found) // windows
        parts = [found[i * each : (i + 1) * each] for i in range(windows)]
        if not each or len(found) % windows or len({tuple(e.name for e in part) for part in parts}) > 1:
            return []
        return [
            Window(
                sum(e.time_range.elapsed_us() for e in part) / times,
                {name: count / times for name, count in Counter(e.name for e in part).items()},
            )
            for part in parts
        ]


def _result_expression(tree: ast.Module, path: Path) -> CodeType:
    """The last value that the file assigns to the result's name (or to one that begins with it) outside functions;
    where it assigns none, a call of its last test function."""
    value: ast.expr = ast.Constant(None)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test") and not function.args.args:
            value = ast.Call(ast.Name(function.name, ast.Load()), [], [])
    for node in _statements(tree.body):
        if isinstance(node, ast.Assign) and any(ast.unparse(t).startswith(RESULT) for t in node.targets):
            value = node.value
    return compile(ast.fix_missing_locations(ast.Expression(value)), str(path), "eval")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the file runs as a program: those of ``if __name__ == "__main__"`` too."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _tuner_in(value: Any) -> Any:
    """The autotuner among the wrappers around a kernel, of either compiler; None where there is none."""
    while value is not None and not isinstance(getattr(value, "configs", None), list):
        value = getattr(value, "fn", None)
    return value


def _seed() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def fill_cache(value: int) -> None:
    """Leave ``value`` (f32) in 68 MB that torch's allocator keeps for later, in its smallest blocks and in large ones:
    what lies beside a tensor is then known as well."""
    kept = [torch.full((128,), float(value), device="cuda") for _ in range(8192)]
    kept += [torch.full((1 << 22,), float(value), device="cuda") for _ in range(4)]
    del kept


@contextmanager
def filled_memory(value: int) -> Iterator[None]:
    """Inside, memory that torch gives out uninitialised holds ``value`` in every element."""
    fill_cache(value)

    def filling(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @wraps(make)
        def made(*args: object, **kwargs: object) -> torch.Tensor:
            return make(*args, **kwargs).detach().fill_(value).requires_grad_(bool(kwargs.get("requires_grad")))

        return made

    places = [(torch, n) for n in ("empty", "empty_like", "empty_strided")]
    places += [(torch.Tensor, n) for n in ("new_empty", "new_empty_strided")]
    kept = [getattr(place, name) for place, name in places]
    for place, name in places:
        setattr(place, name, filling(getattr(place, name)))
    try:
        yield
    finally:
        for (place, name), original in zip(places, kept, strict=True):
            setattr(place, name, original)
