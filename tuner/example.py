"""A workload read off a call that the caller already has: shapes, dtypes, scalars and the grid of one launch.

>>> import numpy as np
>>> import deuteron as triton
>>> x = np.zeros((64, 300), np.float32)
>>> y = np.empty_like(x)
>>> workload = triton.Workload(                                             # doctest: +SKIP
...     kernel, y, x, 300, BLOCK=512, grid=(64,), dims={"M": 64, "N": 300}, search={"BLOCK": [512, 1024]}
... )
>>> workload.job(shapes=[{"M": 4096, "N": 300}], trials=20)                 # doctest: +SKIP
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from deuteron.compiler import KernelSource
from deuteron.compiler.errors import CompilationError, LaunchError
from deuteron.compiler.options import SCHEDULE_OPTIONS
from deuteron.compiler.printable import shown
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype, item_bytes
from deuteron.compiler.runtime.launch.runner import check_kernel
from deuteron.compiler.source.usage import usage_of
from deuteron.compiler.whole_file import write_whole

from .codec import JsonObject, Scalar, plain
from .errors import WorkloadError
from .job import JobSpec
from .local import LocalResult, tune_locally
from .space import Parameter, Space
from .strategies import DEFAULT_STRATEGY
from .workloads.expressed import express, express_constexpr, express_grid
from .workloads.legal import refuse_variadic
from .workloads.references import INTERPRETER
from .workloads.spec import KernelText, Tensor, WorkloadSpec

if TYPE_CHECKING:
    from deuteron.compiler import JITFunction
    from deuteron.compiler.source.usage import Usage

Grid: TypeAlias = "Callable[[dict[str, Scalar]], Sequence[int]] | Sequence[int | str]"

_PROBES = 12
_SEARCH, _DIMS = 'search={"BLOCK": [64, 128]}', 'dims={"N": 1024}, whole numbers'
_IMPORTS = "import triton\nimport triton.language as tl\n\n"


class Workload:
    """A kernel with everything that a search needs, from the arguments of one launch.

    ``arguments`` and ``named`` are what the kernel is called with: arrays (NumPy, torch, anything with ``shape`` and
    ``dtype``; only those two are read), numbers, constexprs. ``grid`` is that of the launch: a tuple, a function of the
    configuration, or expressions as text. ``search`` has the choices of constexprs and schedule options
    (``num_warps``); what the call gives one of them is the default that others have to beat.

    ``dims`` names the sizes that vary from launch to launch, with their values in the example; left out, they are the
    kernel's integer arguments but for strides. Sizes, strides and integer arguments that equal a dim, a product of dims
    or a simple part of one follow it; others stay the numbers they are: look at :attr:`spec`, or give an example in
    which all dims differ.

    Raises:
        WorkloadError: an argument is missing or cannot be described, or a number could be two different dims.
    """

    def __init__(
        self,
        kernel: JITFunction,
        *arguments: object,
        grid: Grid,
        search: Mapping[str, Sequence[Scalar]],
        dims: Mapping[str, int] | None = None,
        constraints: Sequence[str] = (),
        flops: str = "0",
        reference: str = INTERPRETER,
        **named: object,
    ) -> None:
        source = _source_of(kernel)
        constraints = _texts("constraints", constraints)
        _expect(isinstance(search, Mapping) and all(isinstance(n, str) for n in search), "search", search, _SEARCH)
        _expect(dims is None or isinstance(dims, Mapping), "dims", dims, _DIMS)
        _expect(isinstance(flops, str), "flops", flops, '"2 * M * N * K"')
        refuse_variadic(source)
        known = {argument.name for argument in source.arguments if argument.constexpr} | set(SCHEDULE_OPTIONS)
        call = {n: plain(value) if n in known else value for n, value in _bind(source, arguments, named).items()}
        named_dims = _dims_of(source, call) if dims is None else {name: plain(size) for name, size in dims.items()}
        whole = all(isinstance(size, int) for size in named_dims.values())
        _expect(whole, "dims", dims, _DIMS)
        reader = _Call(source, usage_of(source), call, cast("dict[str, int]", named_dims), search)
        space = reader.space(constraints)
        default: dict[str, Scalar] = {
            name: value for name in search if isinstance(value := call.get(name), int | float | str)
        }
        #: The dims of the example: a shape of the workload.
        self.shape = reader.dims
        #: The whole description, as JSON and the command line have it.
        self.spec = WorkloadSpec(
            name=source.name,
            kernel=_text_of(source),
            dims=tuple(reader.dims),
            tensors=reader.tensors(),
            scalars=reader.scalars(),
            constexprs=reader.constexprs(),
            grid=reader.grid(grid),
            spaces={"any": space},
            # Choices that the call does not give are the first ones; constraints are known only with a shape.
            defaults={"any": {**{p.name: p.default for p in space.parameters}, **default}} if default else {},
            flops=flops,
            bytes=reader.traffic(),
            reference=reference,
            dtypes=(reader.dtype,),
            shapes=(reader.dims,),
        )

    def to_json(self) -> JsonObject:
        """What a job has as its ``workload``."""
        return self.spec.to_json()

    def save(self, path: str | Path) -> None:
        """Write it as a file for ``deuteron tune FILE.json`` and ``deuteron submit FILE.json``."""
        write_whole(path, json.dumps(self.to_json(), indent=2) + "\n")

    def job(
        self,
        *,
        shapes: Sequence[Mapping[str, int]] = (),
        device: str = "cpu",
        trials: int | None = 100,
        seconds: float | None = None,
        strategy: str = DEFAULT_STRATEGY,
        seed: int = 0,
    ) -> JobSpec:
        """A job for :meth:`tune` or for a service's client; the example's shape if ``shapes`` is left out. Raises
        SchemaError, JobError and WorkloadError, as a service would refuse it."""
        # By way of JSON, whose reader looks at the type of each field and names the one that is wrong.
        return JobSpec.from_json(
            {
                "workload": self.to_json(),
                "shapes": _shapes(shapes) or [dict(shape) for shape in self.spec.shapes],
                "dtypes": list(self.spec.dtypes),
                "device": device,
                "budget": {"trials": plain(trials), "seconds": plain(seconds)},
                "strategy": strategy,
                "seed": plain(seed),
            }
        )

    def tune(
        self,
        *,
        shapes: Sequence[Mapping[str, int]] = (),
        device: str = "cpu",
        trials: int | None = 100,
        seconds: float | None = None,
        folder: str | Path | None = None,
    ) -> LocalResult:
        """Search on this machine; the result's bundle is what ``deuteron.tuned`` takes as its cache."""
        job = self.job(shapes=shapes, device=device, trials=trials, seconds=seconds)
        return tune_locally(job, emit=lambda _event: None, folder=Path(folder) if folder is not None else None)


class _Call:
    """One launch: its arguments by name, and what they say in terms of the dims."""

    def __init__(
        self,
        source: KernelSource,
        usage: Usage,
        call: Mapping[str, object],
        dims: dict[str, int],
        search: Mapping[str, Sequence[Scalar]],
    ) -> None:
        self.source = source
        self.usage = usage
        self.call = call
        self.dims = dims
        self.search = {name: self._choices(name, choices) for name, choices in search.items()}
        self.arrays = {name: value for name, value in call.items() if _is_array(value)}
        if not dims:
            raise WorkloadError(f"{source.name} has no integer argument that could be a dim", hint='dims={"N": 1024}')
        self.dtype = self._dtype()

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self._tensor(name, value) for name, value in self.arrays.items())

    def scalars(self) -> dict[str, str]:
        return {
            argument.name: self._scalar(argument.name)
            for argument in self.source.arguments
            if not argument.constexpr and argument.name not in self.arrays
        }

    def constexprs(self) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {}
        for argument in self.source.arguments:
            name = argument.name
            if not argument.constexpr or name in self.search or name not in self.call:
                continue
            value = self.call[name]
            if not isinstance(value, int | float | str):
                raise WorkloadError(f"the constexpr {name!r} is {value!r}; a workload has numbers and text")
            found[name] = express_constexpr(value, self.dims)
        return found

    def space(self, constraints: Sequence[str]) -> Space:
        known = [*(a.name for a in self.source.arguments if a.constexpr), *SCHEDULE_OPTIONS]
        for name in self.search:
            if name not in known:
                raise WorkloadError(
                    f"search: {self.source.name} has no constexpr {name!r}", hint=f"it has {', '.join(known)}"
                )
        return Space(tuple(Parameter(name, choices) for name, choices in self.search.items()), tuple(constraints))

    def grid(self, grid: Grid) -> tuple[str, ...]:
        if callable(grid):
            return express_grid(grid, self.dims, self._probes())
        listed = isinstance(grid, Iterable) and not isinstance(grid, str)
        _expect(
            listed, "grid", grid, "a tuple of sizes or expressions, or a function of the configuration that gives one"
        )
        return tuple(
            axis if isinstance(axis, str) else express(axis, self.dims, f"axis {number} of the grid")
            for number, axis in enumerate(grid)
        )

    def traffic(self) -> str:
        """Every tensor once, one that is read and written twice."""
        terms = []
        for tensor in self.tensors():
            width = "element_bytes" if tensor.dtype == "$dtype" else str(item_bytes(tensor.dtype))
            elements = " * ".join(f"({text})" for text in tensor.shape)
            terms.append(f"{2 if tensor.role == 'inout' else 1} * {elements} * {width}")
        return " + ".join(terms)

    @staticmethod
    def _choices(name: str, choices: object) -> tuple[Scalar, ...]:
        if isinstance(choices, str) or not isinstance(choices, Iterable):
            raise WorkloadError(f"search: {choices!r} is no list of choices of {name!r}", hint=f"{name}=[64, 128]")
        return Parameter(name, tuple(choices)).choices

    def _probes(self) -> list[dict[str, Scalar]]:
        """Some configurations as a launch's grid sees them: with the constexprs that the call fixes."""
        fixed = {
            argument.name: value
            for argument in self.source.arguments
            if argument.constexpr and isinstance(value := self.call.get(argument.name), int | float | str)
        }
        points = itertools.islice(itertools.product(*self.search.values()), _PROBES)
        return [{**fixed, **dict(zip(self.search, point, strict=True))} for point in points]

    def _dtype(self) -> str:
        """The dtype of the first floating-point output, else of the first floating-point array: what ``$dtype`` is."""
        stored = sorted(self.arrays, key=lambda name: name not in self.usage.stored)
        dtypes = [_dtype_of(self.arrays[name], name) for name in stored]
        floating = [dtype for dtype in dtypes if dtype[0] in "fb"]
        if not dtypes:
            raise WorkloadError(f"{self.source.name} is called with no array")
        return (floating or dtypes)[0]

    def _tensor(self, name: str, value: object) -> Tensor:
        dtype = _dtype_of(value, name)
        sizes = [int(size) for size in value.shape]  # type: ignore[attr-defined]
        shape = tuple(express(size, self.dims, f"axis {axis} of {name}") for axis, size in enumerate(sizes))
        stored, loaded = name in self.usage.stored, name in self.usage.loaded
        role = ("inout" if loaded else "output") if stored else "input"
        integers = dtype[0] in "iu"
        fill = "zeros" if name in self.usage.integer_pointers else "randint" if integers else "normal"
        return Tensor(name, shape or ("1",), dtype="$dtype" if dtype == self.dtype else dtype, role=role, fill=fill)

    def _scalar(self, name: str) -> str:
        value = self.call[name]
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, int):
            return express(value, self.dims, f"the argument {name}")
        if isinstance(value, float):
            return repr(value)
        raise WorkloadError(
            f"the argument {name!r} of {self.source.name} is {value!r}: no array and no number",
            hint="a workload describes arrays, numbers and constexprs",
        )


def _source_of(kernel: object) -> KernelSource:
    """The text of a kernel. Raises WorkloadError for what is none, such as a decorator around one."""
    check_kernel(kernel)
    source = getattr(kernel, "source", None)
    _expect(
        isinstance(source, KernelSource), "kernel", kernel, "a function under @jit; of one under @autotune its base_fn"
    )
    return cast(KernelSource, source)


def _expect(holds: bool, name: str, value: object, hint: str) -> None:
    """Raises WorkloadError for an argument that is not of the form that it has to have."""
    if not holds:
        raise WorkloadError(f"{name} = {shown(value)}", hint=hint)


def _texts(name: str, values: object) -> tuple[str, ...]:
    """Expressions, as a tuple. Raises WorkloadError for others, also for a single text, which is a list of letters."""
    listed = isinstance(values, Iterable) and not isinstance(values, str)
    found: tuple[object, ...] = tuple(values) if listed else ()  # type: ignore[arg-type]
    _expect(listed and all(isinstance(text, str) for text in found), name, values, f'{name}=["BLOCK >= N"]')
    return cast("tuple[str, ...]", found)


def _shapes(shapes: object) -> list[JsonObject]:
    """Shapes as JSON has them. Raises WorkloadError for what are none, also for a single one."""
    listed = isinstance(shapes, Iterable) and not isinstance(shapes, str | Mapping)
    found = list(shapes) if listed else []  # type: ignore[call-overload]
    _expect(listed and all(isinstance(shape, Mapping) for shape in found), "shapes", shapes, 'shapes=[{"N": 4096}]')
    return [{name: plain(size) for name, size in shape.items()} for shape in found]


def _text_of(source: KernelSource) -> KernelText:
    """The kernel's file, with the imports and functions that it uses; where there is none (a notebook, a function
    inside another), its own text with the usual imports."""
    path = Path(source.filename)
    with suppress(CompilationError, OSError, UnicodeDecodeError):
        whole = type(source).from_file(path, source.name)
        if whole.hash == source.hash:
            return KernelText(source.name, path.read_text(encoding="utf-8"), source.filename)
    return KernelText(source.name, _IMPORTS + textwrap.dedent(source.text) + "\n", source.filename)


def _bind(source: KernelSource, arguments: Sequence[object], named: Mapping[str, object]) -> dict[str, object]:
    """The arguments by name."""
    names = [argument.name for argument in source.arguments]
    if len(arguments) > len(names):
        raise WorkloadError(f"{source.name} takes {len(names)} arguments, not {len(arguments)}", hint=", ".join(names))
    call = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name not in names or name in call:
            wrong = "is given twice" if name in call else f"is no argument of {source.name}"
            raise WorkloadError(f"{name!r} {wrong}", hint=f"it takes {', '.join(names)}")
        call[name] = value
    missing = [a.name for a in source.arguments if not a.constexpr and a.name not in call]
    if missing:
        raise WorkloadError(
            f"the example gives {missing[0]!r} of {source.name} no value", hint=f"it takes {', '.join(names)}"
        )
    return call


def _dims_of(source: KernelSource, call: Mapping[str, object]) -> dict[str, int]:
    """Integer arguments that are sizes by their name: all but strides."""
    run_time = [argument.name for argument in source.arguments if not argument.constexpr]
    return {
        name: value
        for name in run_time
        if isinstance(value := call[name], int) and not isinstance(value, bool) and value > 1 and "stride" not in name
    }


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, int | float)


def _dtype_of(value: object, name: str) -> str:
    try:
        return canonical_dtype(value.dtype)  # type: ignore[attr-defined]
    except LaunchError as error:
        raise WorkloadError(f"the array {name!r}: {error.message}", hint=error.hint) from None
