"""What is tuned, as data: nothing in a workload is executable except its kernel, which only the compiler reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import field
from msgspec.structs import force_setattr

from ..codec import Document, Scalar, convert, expect_object, without_nulls
from ..errors import ExpressionError, Fault, WorkloadError
from ..expression import Expression
from ..space import Configuration, Space
from .tolerance import Tolerance

ROLES = ("input", "output", "inout")
FILLS = ("normal", "uniform", "zeros", "arange", "randint")
DEVICE_KINDS = ("cpu", "cuda", "any")
DTYPES = [
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8e4m3",
    "f8e5m2",
]

# Names that every expression of a workload may use besides its dims and parameters, and constraints besides those.
PROBLEM_FACTS = ("dtype", "element_bytes")
DEVICE_FACTS = ("sm_count", "shared_bytes")
MOST_DIM_LETTERS = 64

#: Most of what a workload may list, and most names, numbers and operators in all its expressions together: each is
#: evaluated at every shape.
MOST_DIMS = 64
MOST_ARGUMENTS = 256
MOST_AXES = 32
MOST_NODES = 10_000

_SOURCE = re.compile(r"(?P<argument>[A-Za-z_]\w*)(?:\.shape\[(?P<axis>\d+)\])?")


class KernelText(Document, frozen=True, forbid_unknown_fields=True):
    """A kernel: the jit function ``name`` in the text ``source``; ``filename`` is shown in error messages."""

    noun: ClassVar[str] = "kernel"

    name: str
    source: str
    filename: str = "<kernel>"

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """Without a file name, or with an empty one, errors speak of ``<kernel>``."""
        fields = without_nulls(value, where)
        return {**fields, "filename": fields.get("filename") or "<kernel>"}


class Tensor(Document, frozen=True, forbid_unknown_fields=True):
    """A pointer argument of the kernel.

    ``shape``: expressions over the dims. ``dtype``: a dtype name, or ``$dtype`` for the one that the job names.
    ``role``: what the kernel does with it; outputs are poisoned before each check. ``fill``: how inputs are made
    (JSON field ``init``), fresh from a seed for each check.
    """

    noun: ClassVar[str] = "tensor"

    name: str
    shape: tuple[str, ...]
    dtype: str = "$dtype"
    role: str = "input"
    fill: str = field(name="init", default="normal")

    def __post_init__(self) -> None:
        for value, allowed, what in (
            (self.role, ROLES, "role"),
            (self.fill, FILLS, "init"),
            (self.dtype, ("$dtype", *DTYPES), "dtype"),
        ):
            if value not in allowed:
                raise WorkloadError(
                    f"tensor {self.name!r}: {what} {value!r} is not possible",
                    hint=f"one of {', '.join(allowed)}",
                )

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """Sizes may be numbers."""
        fields = without_nulls(value, where)
        if "shape" in fields:
            _check_length(fields["shape"], MOST_AXES, f"{where}.shape", "axes")
            fields["shape"] = _expression_texts(fields["shape"], f"{where}.shape")
        return fields


class WorkloadSpec(Document, frozen=True, forbid_unknown_fields=True):
    """A kernel with everything needed to run, check and time it at any shape.

    - ``dims``: names of the sizes that make a shape, as identifiers are spelled. ``dtypes``: what ``$dtype`` may be.
    - ``tensors`` and ``scalars`` (name -> expression): the run-time arguments, in any order; ``constexprs`` (name ->
      expression, or a number; text is written with quotes inside the expression) those fixed by the shape. The
      remaining constexpr parameters of the kernel come from the configuration.
    - ``grid``: one to three expressions, which may use the configuration's parameters.
    - ``flops``, ``bytes``: expressions: operations and compulsory memory traffic of one launch.
    - ``spaces`` and ``defaults``: search space and default configuration by device kind: ``cpu``, ``cuda``, ``any``.
      Constraints may use dims, ``dtype``, ``element_bytes``, and of the device ``sm_count`` and ``shared_bytes``.
    - ``reference``: name of a registered NumPy reference, or ``interpreter`` (:mod:`~.references`).
    - ``tolerance``: None takes the table of :mod:`~.tolerance` by dtype.
    - ``dims_from_arguments``: how a launch reveals the shape: dim -> ``argument`` (a scalar with that value) or
      ``argument.shape[axis]``. What is left out is derived from scalars and tensor shapes that are a bare dim.
    - ``shapes``: the suite that is tuned when a job names none.
    """

    noun: ClassVar[str] = "workload"

    name: str
    kernel: KernelText
    dims: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    scalars: Mapping[str, str]
    constexprs: Mapping[str, Scalar]
    grid: tuple[str, ...]
    spaces: Mapping[str, Space]
    defaults: Mapping[str, Configuration] = field(default_factory=dict)
    flops: str = "0"
    bytes: str = "0"
    tolerance: Tolerance | None = None
    reference: str = "interpreter"
    dtypes: tuple[str, ...] = ("f32",)
    shapes: tuple[Mapping[str, int], ...] = ()
    dims_from_arguments: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        force_setattr(self, "dims_from_arguments", {**self._derived_dims(), **self.dims_from_arguments})
        faults = [*self._wrong_names(), *self._wrong_expressions()]
        if faults:
            raise WorkloadError(f"{self.name}: {faults[0].message}", hint=faults[0].hint, faults=faults)
        nodes = sum(Expression.parse(text).nodes for text in self._expressions)
        if nodes > MOST_NODES:
            message = f"{self.name}: its expressions have {nodes} names, numbers and operators together"
            raise WorkloadError(message, hint=f"at most {MOST_NODES}")
        for shape in self.shapes:
            self.check_shape(shape)

    @property
    def dtype_argument(self) -> str | None:
        """The argument whose dtype is the one that records are kept under; None where no tensor has ``$dtype``."""
        return next((tensor.name for tensor in self.tensors if tensor.dtype == "$dtype"), None)

    def space_for(self, kind: str) -> Space:
        """The space for a device kind, constants not bound; raises :class:`WorkloadError` when there is none."""
        space = self.spaces.get(kind) or self.spaces.get("any")
        if space is None:
            raise WorkloadError(
                f"the workload {self.name!r} has no space for {kind} devices",
                hint=f"it has spaces for {', '.join(self.spaces)}",
            )
        return space

    def default_for(self, kind: str) -> Configuration:
        """The default configuration for a device kind; parameters left out take the space's default."""
        return self.defaults.get(kind) or self.defaults.get("any") or {}

    def check_shape(self, shape: Mapping[str, int]) -> None:
        """Raise :class:`WorkloadError` unless ``shape`` gives every dim a positive size and nothing else."""
        missing = [dim for dim in self.dims if dim not in shape]
        extra = [dim for dim in shape if dim not in self.dims]
        if missing or extra:
            wrong = f"lacks {missing[0]!r}" if missing else f"has the unknown dim {extra[0]!r}"
            raise WorkloadError(f"a shape of {self.name!r} {wrong}", hint=f"dims: {', '.join(self.dims)}")
        for dim, size in shape.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 40:
                raise WorkloadError(f"{dim}={size!r} is not a size", hint="1 to 2^40")

    def _derived_dims(self) -> dict[str, str]:
        found: dict[str, str] = {}
        # The stride of a tensor equals a dim only while the tensor is contiguous.
        plain = {n: text for n, text in self.scalars.items() if "stride" not in n}
        for dim in self.dims:
            scalars = (name for name, text in plain.items() if text.strip() == dim)
            axes = (
                f"{tensor.name}.shape[{axis}]"
                for tensor in self.tensors
                for axis, text in enumerate(tensor.shape)
                if text.strip() == dim
            )
            source = next(scalars, None) or next(axes, None)
            if source is not None:
                found[dim] = source
        return found

    def _wrong_names(self) -> Iterator[Fault]:
        names = Counter([*(t.name for t in self.tensors), *self.scalars, *self.constexprs])
        repeated, times = names.most_common(1)[0] if names else ("", 0)
        if times > 1:
            yield Fault("workload.tensors", f"the argument {repeated!r} is described twice")
        reserved = ", ".join(PROBLEM_FACTS + DEVICE_FACTS)
        clash = set(self.dims) & {*PROBLEM_FACTS, *DEVICE_FACTS}
        if clash or len(set(self.dims)) != len(self.dims) or not self.dims:
            yield Fault("workload.dims", f"dims are distinct names other than {reserved}")
        # Shapes are written as M=512,N=512, in names of files, too.
        odd = next((dim for dim in self.dims if not dim.isidentifier() or len(dim) > MOST_DIM_LETTERS), None)
        if odd is not None:
            hint = f"letters, digits and _, {MOST_DIM_LETTERS} at most, no digit first"
            yield Fault("workload.dims", f"{odd[:40]!r} is not a name", hint)
        if not any(tensor.role != "input" for tensor in self.tensors):
            yield Fault(
                "workload.tensors",
                "no tensor has the role output or inout",
                'add "role": "output" to the tensors that the kernel writes',
            )
        if not self.spaces or any(kind not in DEVICE_KINDS for kind in self.spaces):
            yield Fault("workload.spaces", f"spaces are for {', '.join(DEVICE_KINDS)}")
        unknown = next((dtype for dtype in self.dtypes if dtype not in DTYPES), None)
        if unknown is not None or not self.dtypes:
            yield Fault("workload.dtypes", f"unknown dtype {unknown!r}", ", ".join(DTYPES))
        for dim, source in self.dims_from_arguments.items():
            where = f"workload.dims_from_arguments.{dim}"
            try:
                parse_dim_source(source)
            except WorkloadError as error:
                yield Fault(where, error.message, error.hint)
            if dim not in self.dims:
                yield Fault(
                    where, f"dims_from_arguments names the unknown dim {dim!r}", f"dims: {', '.join(self.dims)}"
                )

    @property
    def _expressions(self) -> Iterator[str]:
        """The texts of all but the constraints, for which :mod:`..space` has a limit of its own."""
        yield from (text for tensor in self.tensors for text in tensor.shape)
        yield from self.scalars.values()
        yield from (value for value in self.constexprs.values() if isinstance(value, str))
        yield from (*self.grid, self.flops, self.bytes)

    def _wrong_expressions(self) -> Iterator[Fault]:
        fixed = {*self.dims, *PROBLEM_FACTS}
        free = fixed | {name for space in self.spaces.values() for name in space.names}
        for number, tensor in enumerate(self.tensors):
            for axis, text in enumerate(tensor.shape):
                yield from _unknown(text, fixed, f"tensors[{number}].shape[{axis}]", f"the shape of {tensor.name}")
        for name, text in self.scalars.items():
            yield from _unknown(text, fixed, f"scalars.{name}", f"the scalar {name}")
        for name, value in self.constexprs.items():
            if isinstance(value, str):
                yield from _unknown(value, free, f"constexprs.{name}", f"the constexpr {name}")
        if not 1 <= len(self.grid) <= 3:
            yield Fault("workload.grid", f"a grid has one to three axes, not {len(self.grid)}")
        for axis, text in enumerate(self.grid):
            yield from _unknown(text, free, f"grid[{axis}]", "the grid")
        yield from _unknown(self.flops, fixed, "flops", "flops")
        yield from _unknown(self.bytes, fixed, "bytes", "bytes")
        for kind, space in self.spaces.items():
            unknown = space.free_names - fixed - set(DEVICE_FACTS)
            if unknown:
                yield Fault(
                    f"workload.spaces.{kind}.constraints",
                    f"a constraint of the {kind} space uses the unknown name {min(unknown)!r}",
                    f"known: {', '.join([*space.names, *sorted(fixed), *DEVICE_FACTS])}",
                )

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """Numbers that stand for expressions as text; ``space`` and ``default`` as those of any device; the kernel's
        name as the workload's."""
        fields = without_nulls(value, where)
        for one, many in (("space", "spaces"), ("default", "defaults")):
            if one in fields and many not in fields:
                fields[many] = {"any": fields.pop(one)}
        if "kernel" in fields:
            kernel = KernelText.from_json(fields["kernel"], f"{where}.kernel")
            fields = {"name": kernel.name, **fields, "kernel": kernel}
        if isinstance(fields.get("tensors"), list | tuple):
            _check_length(fields["tensors"], MOST_ARGUMENTS, f"{where}.tensors", "tensors")
            tensors = convert(fields["tensors"], list[object], f"{where}.tensors")
            fields["tensors"] = [Tensor.from_json(item, f"{where}.tensors[{i}]") for i, item in enumerate(tensors)]
        if "spaces" in fields:
            spaces = expect_object(fields["spaces"], f"{where}.spaces")
            _check_length(spaces, len(DEVICE_KINDS), f"{where}.spaces", "spaces")
            fields["spaces"] = {kind: Space.from_json(item, f"{where}.spaces.{kind}") for kind, item in spaces.items()}
        for name, most in (
            ("dims", MOST_DIMS),
            ("scalars", MOST_ARGUMENTS),
            ("constexprs", MOST_ARGUMENTS),
            ("grid", 3),
        ):
            _check_length(fields.get(name), most, f"{where}.{name}", name if name != "grid" else "axes")
        for name in ("scalars", "grid", "flops", "bytes"):
            if name in fields:
                fields[name] = _expression_texts(fields[name], f"{where}.{name}")
        return {"scalars": {}, "constexprs": {}, **fields}


def _check_length(value: object, most: int, where: str, what: str) -> None:
    """Before what is listed is read, which takes longer than counting it."""
    if isinstance(value, list | tuple | Mapping) and len(value) > most:
        raise WorkloadError(f"{where}: {len(value)} {what}", hint=f"at most {most}")


def parse_dim_source(text: str) -> tuple[str, int | None]:
    """Split ``n_elements`` or ``x_ptr.shape[1]`` into argument and axis; raises :class:`WorkloadError`."""
    match = _SOURCE.fullmatch(text)
    if match is None:
        raise WorkloadError(f"{text!r} does not say where a dim comes from", hint="argument, or argument.shape[0]")
    return match["argument"], None if match["axis"] is None else int(match["axis"])


def _unknown(text: str, known: set[str], field: str, what: str) -> Iterator[Fault]:
    """The fault of an expression that uses a name it cannot; one that does not parse is a fault, too."""
    try:
        unknown = Expression.parse(text).names - known
    except ExpressionError as error:
        yield Fault(f"workload.{field}", error.message, error.hint)
        return
    if unknown:
        message = f"{what} ({text!r}) uses the unknown name {min(unknown)!r}"
        yield Fault(f"workload.{field}", message, f"known: {', '.join(sorted(known))}")


def _expression_texts(value: object, where: str) -> object:
    """``value`` with numbers as text, and every text in it parsed as an expression."""
    match value:
        case Mapping():
            return {name: _expression_texts(item, f"{where}.{name}") for name, item in value.items()}
        case list() | tuple():
            return [_expression_texts(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case int() | float() if not isinstance(value, bool):
            return repr(value)
        case str():
            return Expression.parse(value).text
        case _:
            return value  # refused with its place when the field is converted
