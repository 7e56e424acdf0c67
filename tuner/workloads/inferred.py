"""A workload from a kernel's text: what a caller does not say is inferred from how the kernel uses its parameters.

A pointer that is only stored to is an output; a scalar with the name of a dim is that dim; block sizes are searched
over powers of two. The result is an ordinary :class:`~.spec.WorkloadSpec`, checked against the interpreter, and can be
written as JSON and edited where the inference is too simple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.compiler.options import SCHEDULE_OPTIONS
from deuteron.compiler.runtime.arrays.dtypes import item_bytes
from deuteron.compiler.source.assume import constexpr_for, is_block, literal_configs, type_for
from deuteron.compiler.source.usage import usage_of

from ..codec import Scalar
from ..errors import ExpressionError, WorkloadError
from ..expression import Expression
from ..space import Parameter, Space
from .grid import suggested_grid
from .legal import refuse_variadic
from .spec import DEVICE_FACTS, PROBLEM_FACTS, KernelText, Tensor, WorkloadSpec
from .spec import DTYPES as ELEMENT_DTYPES

if TYPE_CHECKING:
    from deuteron.compiler.source.arguments import Argument
    from deuteron.compiler.source.kernel import KernelSource
    from deuteron.compiler.source.usage import Usage

ROLE_SUFFIXES = ("input", "output", "inout")
DTYPES = ("f32", "f16", "bf16", "f64")
#: Names that mean something else in expressions than an argument of the kernel.
_FACTS = (*PROBLEM_FACTS, *DEVICE_FACTS)

#: Choices of a block size: alone in its kernel, beside others, and as the depth of a dot.
_LONE_BLOCK = tuple(2**i for i in range(7, 14))
_BLOCKS = (16, 32, 64, 128)
_DEPTHS = (16, 32, 64)
_WARPS = (1, 2, 4, 8)
#: Slots of the rings that feed a product; more than fit are the same code as what fits.
_STAGES = (2, 3, 4, 5)

#: Values of scalars whose name says what they are.
_USUAL = {
    "eps": "1e-5",
    "epsilon": "1e-5",
    "p": "0.5",
    "seed": "1234",
    "alpha": "1.0",
    "beta": "1.0",
}


def infer_workload(
    source: KernelSource,
    *,
    dims: Sequence[str],
    tensors: Mapping[str, tuple[str, ...]] | None = None,
    scalars: Mapping[str, str] | None = None,
    grid: Sequence[str] | None = None,
    choices: Mapping[str, Sequence[object]] | None = None,
    constexprs: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
) -> WorkloadSpec:
    """The workload of ``source`` over ``dims``.

    ``tensors``: shapes of pointer arguments as expressions over the dims; the last part may end in ``:input``,
    ``:output`` or ``:inout``, and in the dtype of a tensor that does not have the job's, such as ``:f32``.
    ``scalars``, ``constexprs``: expressions. ``choices``: what a parameter of the space may be.
    ``constraints``: expressions that configurations have to make true.
    All expressions but ``constexprs`` may name these, which then stand there by their own expressions.

    Raises:
        WorkloadError: something can neither be found in the kernel nor was given; the hint shows the option to give.
    """
    fixed = dict(constexprs or {})
    known = {name: text for name, text in fixed.items() if name not in {*dims, *(choices or ()), *_FACTS}}
    given = _Given(
        {name: tuple(_spelled_out(text, known) for text in shape) for name, shape in (tensors or {}).items()},
        {name: _spelled_out(text, known) for name, text in (scalars or {}).items()},
        dict(choices or {}),
        fixed,
        tuple(_spelled_out(text, known) for text in constraints),
    )
    refuse_variadic(source)
    reader = _Inference(source, usage_of(source), tuple(dims), given)
    reader.check_names()
    described = reader.tensors()
    parameters = reader.parameters()
    spec = WorkloadSpec(
        name=source.name,
        kernel=KernelText(source.name, "\n".join(source.lines) + "\n", source.filename),
        dims=tuple(dims),
        dtypes=DTYPES,
        tensors=described,
        scalars=reader.scalars(),
        constexprs=reader.constexprs(),
        grid=tuple(_spelled_out(text, known) for text in grid) if grid else reader.grid(parameters),
        bytes=_traffic(described),
        spaces=reader.spaces(parameters),
    )
    _check_dims_are_used(spec)
    return spec


def _spelled_out(text: str, known: Mapping[str, str]) -> str:
    """An expression, of a shape with what stands behind it, without the names that are ``known``; text that is none
    stays as it is, for the check of the workload to say where."""
    expression, *marks = text.split(":")
    try:
        parsed = Expression.parse(expression)
    except ExpressionError:
        return text
    return ":".join([parsed.replacing(known).text, *marks]) if parsed.names & {*known} else text


def _check_dims_are_used(spec: WorkloadSpec) -> None:
    """Raise WorkloadError for a dim that nothing depends on: no launch could say how large it is."""
    sizes = [text for tensor in spec.tensors for text in tensor.shape]
    fixed = [value for value in spec.constexprs.values() if isinstance(value, str)]
    texts = [*sizes, *fixed, *spec.scalars.values(), *spec.grid]
    used = {name for text in texts for name in Expression.parse(text).names}
    for dim in spec.dims:
        if dim not in used:
            named = ", ".join(name for name in spec.dims if name in used)
            raise WorkloadError(
                f"nothing of {spec.name} depends on the size {dim!r} of the shape",
                hint=f"leave it out: {named}" if named else "--tensor NAME=SIZE says what does",
            )


@dataclass(frozen=True)
class _Given:
    tensors: dict[str, tuple[str, ...]]
    scalars: dict[str, str]
    choices: dict[str, Sequence[object]]
    constexprs: dict[str, str]
    constraints: tuple[str, ...]


@dataclass(frozen=True)
class _Inference:
    source: KernelSource
    usage: Usage
    dims: tuple[str, ...]
    given: _Given

    def check_names(self) -> None:
        """Raise WorkloadError for an option that names no argument of the kernel."""
        names = [a.name for a in self.source.arguments]
        options: dict[str, tuple[Mapping[str, object], list[str]]] = {
            "--tensor": (self.given.tensors, names),
            "--scalar": (self.given.scalars, names),
            "--constexpr": (self.given.constexprs, names),
            "--search": (self.given.choices, [*names, *SCHEDULE_OPTIONS]),
        }
        for option, (values, known) in options.items():
            for name in values:
                if name not in known:
                    raise WorkloadError(
                        f"{option} {name}: {self.source.name} has no argument {name!r}",
                        hint=f"it has {', '.join(names)}",
                    )

    def tensors(self) -> tuple[Tensor, ...]:
        found = tuple(
            self._tensor(argument.name)
            for argument in self.source.arguments
            if not argument.constexpr and self._is_pointer(argument)
        )
        if not any(tensor.role != "input" for tensor in found):
            raise WorkloadError(
                f"{self.source.name} stores through none of its arguments, so there is nothing to check",
                hint="--tensor NAME=SHAPE:output names the result",
            )
        return found

    def scalars(self) -> dict[str, str]:
        return {
            argument.name: self._scalar(argument)
            for argument in self.source.arguments
            if not argument.constexpr and not self._is_pointer(argument)
        }

    def constexprs(self) -> dict[str, Scalar]:
        """Those fixed by the shape or by the kernel's use of them; the space has the rest."""
        found: dict[str, Scalar] = dict(self.given.constexprs)
        for argument in self.source.arguments:
            name = argument.name
            if (
                not argument.constexpr
                or name in found
                or name in self.given.choices
                or self._is_block(argument)
                or argument.has_default
            ):
                continue
            value = constexpr_for(argument, self.source, self.usage)
            if not isinstance(value, int | float | str | bool):
                raise WorkloadError(
                    f"what the constexpr {name!r} of {self.source.name} is cannot be told",
                    hint=f"--constexpr {name}=VALUE",
                )
            # Text in a workload's constexprs is an expression; a text value is written with quotes inside it.
            found[name] = repr(value) if isinstance(value, str) else value
        return found

    def parameters(self) -> list[Parameter]:
        """The constexprs and schedule options to search, those of the command line as they were given."""
        found = {name: Parameter(name, self._scalars(name)) for name in self.given.choices}
        for argument in self.source.arguments:
            name = argument.name
            if argument.constexpr and name not in found and self._is_block(argument):
                sizes = self._sizes(argument)
                found[name] = Parameter(name, sizes, default=sizes[len(sizes) // 2])
        return list(found.values())

    def spaces(self, parameters: list[Parameter]) -> dict[str, Space]:
        """Without options of the command line, those of a GPU's schedule that every kernel, or every product, has."""
        named = {parameter.name for parameter in parameters}
        constraints = self.given.constraints
        if "num_warps" in named:
            return {"any": Space(tuple(parameters), constraints)}
        options = [Parameter("num_warps", _WARPS, default=4)]
        if self.usage.has_dot and "num_stages" not in named:
            options.append(Parameter("num_stages", _STAGES, default=3))
        added = {option.name for option in options}
        everywhere = tuple(text for text in constraints if not Expression.parse(text).names & added)
        cpu = {"cpu": Space(tuple(parameters), everywhere)} if parameters else {}
        return {**cpu, "cuda": Space((*parameters, *options), constraints)}

    def grid(self, parameters: list[Parameter]) -> tuple[str, ...]:
        blocks = [p.name for p in parameters if p.name not in SCHEDULE_OPTIONS]
        if len(self.dims) == 1 and len(blocks) == 1:
            return (f"cdiv({self.dims[0]}, {blocks[0]})",)
        programs = ";".join(suggested_grid(self.source, self.dims))
        raise WorkloadError(
            f"the grid of {self.source.name} cannot be told from its text",
            hint=f'--grid "{programs}", if that is how many programs each axis has; axes are separated by semicolons',
        )

    # ---- one argument -----------------------------------------------------------------------------------------

    def _is_pointer(self, argument: Argument) -> bool:
        return argument.name in self.given.tensors or type_for(argument, self.usage)[0] == "*"

    def _is_block(self, argument: Argument) -> bool:
        if argument.name in self.given.constexprs:
            return False
        return is_block(argument, self.usage)

    def _tensor(self, name: str) -> Tensor:
        shape, role, dtype = self.given.tensors.get(name, ()), "", ""
        if shape:
            last, *marks = shape[-1].split(":")
            shape = (*shape[:-1], last)
            role, dtype = self._marks(name, marks)
        elif len(self.dims) == 1:
            shape = self.dims
        else:
            raise WorkloadError(
                f"the shape of {name!r} cannot be told from the text of {self.source.name}",
                hint=f"--tensor {name}={','.join(self.dims[:2])}",
            )
        stored, loaded = name in self.usage.stored, name in self.usage.loaded
        inferred = ("inout" if loaded else "output") if stored else "input"
        indices = name in self.usage.integer_pointers
        return Tensor(
            name,
            shape,
            dtype=dtype or ("i32" if indices else "$dtype"),
            role=role or inferred,
            fill="zeros" if indices else "randint" if dtype[:1] in ("i", "u") else "normal",
        )

    def _marks(self, name: str, marks: Sequence[str]) -> tuple[str, str]:
        """The role and the dtype that stand behind a shape, each of which may be missing."""
        role = dtype = ""
        for mark in marks:
            if mark in ROLE_SUFFIXES and not role:
                role = mark
            elif mark in ELEMENT_DTYPES and not dtype:
                dtype = mark
            else:
                raise WorkloadError(
                    f"--tensor {name}: {mark!r} is neither a role nor a dtype, or a second one",
                    hint=f"at most one of {', '.join(ROLE_SUFFIXES)} and one of {', '.join(ELEMENT_DTYPES)}",
                )
        return role, dtype

    def _scalar(self, argument: Argument) -> str:
        name = argument.name
        if name in self.given.scalars:
            return self.given.scalars[name]
        if name in self.dims:
            return name
        if name.lower() in _USUAL:
            return _USUAL[name.lower()]
        if len(self.dims) == 1 and name in self.usage.integers and "stride" not in name:
            return self.dims[0]
        raise WorkloadError(
            f"the value of the argument {name!r} cannot be told from the text of {self.source.name}",
            hint=f"--scalar {name}={self.dims[-1]}",
        )

    def _scalars(self, name: str) -> tuple[Scalar, ...]:
        values = self.given.choices[name]
        for value in values:
            if not isinstance(value, int | float | str | bool):
                raise WorkloadError(f"--search {name}: {value!r} is not a number or text")
        return tuple(value for value in values if isinstance(value, int | float | str | bool))

    def _sizes(self, argument: Argument) -> tuple[int, ...]:
        spelled_out = sorted(
            {value for config in literal_configs(self.source) if isinstance(value := config.get(argument.name), int)}
        )
        if spelled_out:
            return tuple(spelled_out)
        blocks = sum(a.constexpr and self._is_block(a) for a in self.source.arguments)
        if self.usage.has_dot:
            axis = argument.name.upper().removesuffix("BLOCK").strip("_")  # BLOCK_K, BK and K_BLOCK, but not BLOCK
            return _DEPTHS if axis.endswith("K") else _BLOCKS
        return _LONE_BLOCK if blocks == 1 else _BLOCKS


def _traffic(tensors: Sequence[Tensor]) -> str:
    """Bytes that one launch must move: every tensor once, one that is read and written twice."""
    terms = []
    for tensor in tensors:
        elements = " * ".join(f"({text})" for text in tensor.shape)
        width = "element_bytes" if tensor.dtype == "$dtype" else item_bytes(tensor.dtype)
        terms.append(f"{2 if tensor.role == 'inout' else 1} * {elements} * {width}")
    return " + ".join(terms)
