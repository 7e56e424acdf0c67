"""Generating the function that a launch goes through: it binds arguments as Python would, reads each into a type key
and a machine value, and looks up the variant under the keys.

The text is generated once per kernel, because binding by hand costs more than the rest of a launch. Only names of
parameters go into it; they are identifiers, checked by Python's own grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...errors import LaunchError
from ...ir.types import SCALARS
from ...signature import FIELDS, leaves
from ..arrays.arguments import Key, reading_text
from ..arrays.dtypes import canonical_dtype
from ..variant.constants import launch_key


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """How one parameter of a kernel takes part in specialisation."""

    name: str
    constexpr: bool
    keyword_only: bool = False
    variadic: bool = False  # *name: a tuple of what is left of the positional arguments
    has_default: bool = False
    default: object = None
    dtype: str | None = None  # fixed by an annotation such as tl.int64
    const: bool = False  # tl.const: a pointer that is not stored through
    specialize: bool = True
    align: bool = True

    @property
    def plain(self) -> bool:
        """Whether keys are used as the readers give them."""
        return self.dtype is None and not self.const and self.specialize and self.align


def parts_of(parameter: KernelParameter, value: object) -> Iterator[tuple[KernelParameter, object]]:
    """What an argument is specialised as: itself or, of a tuple at run time, each leaf as a parameter of its own."""
    if parameter.constexpr or not isinstance(value, tuple):
        yield parameter, value
        return
    for name, part in leaves(parameter.name, value):
        is_names = name.endswith(f".{FIELDS}")
        yield replace(parameter, name=name, constexpr=is_names), part


class Missing:
    """Stands for an argument that was not given; its class has no reader."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


class KeyChange(dict[Key, Key]):
    """Keys as the readers give them -> keys as one parameter's declaration wants them. Those of tuples stay: what the
    declaration says of their elements is looked at once for each, when its launch is specialised."""

    def __init__(self, parameter: KernelParameter) -> None:
        super().__init__()
        self.parameter = parameter

    def __missing__(self, key: Key) -> Key:
        changed = self._change(key) if isinstance(key, str) else key
        self[key] = changed
        return changed

    def _change(self, key: str) -> str:
        parameter = self.parameter
        if key.startswith("tensordesc<"):
            if parameter.dtype is not None:
                raise LaunchError(f"is a tensor descriptor, the kernel declares it as {parameter.dtype}")
            return key.replace("<", "<const ", 1) if parameter.const and "<const " not in key else key
        text, at, device = key.partition("@")
        base, _, promise = text.partition(":")
        if base.startswith("*"):
            if parameter.dtype is not None:
                raise LaunchError(f"is an array, the kernel declares it as {parameter.dtype}")
            if parameter.const and not base.startswith("*const "):
                base = f"*const {base[1:]}"
        elif parameter.dtype is not None:
            base = _fixed(base, parameter.dtype)
        keep = promise and parameter.specialize and (parameter.align or promise == "1")
        keep = keep and (base.startswith("*") or SCALARS[base].is_integer)
        return f"{base}:{promise}{at}{device}" if keep else f"{base}{at}{device}"


def _fixed(given: str, declared: str) -> str:
    """The declared dtype, if a number of type ``given`` may be passed as it."""
    given_type, wanted = SCALARS[given], SCALARS[declared]
    if given_type.is_float and not wanted.is_float:
        raise LaunchError(f"is a float, the kernel declares it as {declared}")
    if given == "u64" and declared != "u64" and not wanted.is_float:
        raise LaunchError(f"does not fit {declared}, as which the kernel declares it")
    if given == "i64" and wanted.is_integer and wanted.bits < 64:
        raise LaunchError(f"does not fit {declared}, as which the kernel declares it")
    return declared


def annotation_dtype(annotation: str | None) -> tuple[str | None, bool]:
    """Fixed dtype, and whether it is ``tl.const``, of a parameter's annotation as text."""
    name = (annotation or "").rpartition(".")[2].strip("'\"")
    if name == "const":
        return None, True
    if not name or name in ("constexpr", "int", "float", "bool", "tensor"):
        return None, False
    try:
        return canonical_dtype(name), False
    except LaunchError:
        return None, False  # an annotation for readers and type checkers


#: How a launch function ends: with the launch, with what repeats it, or with the variant that a launch would run.
Ending = Literal["launch", "bind", "warm"]


def make_binder(
    name: str, parameters: Sequence[KernelParameter], namespace: Mapping[str, Any], ending: Ending
) -> Callable[..., Any]:
    """The launch function of a kernel: ``launch(grid, *args, **kwargs)``; with the ending ``bind`` it gives what the
    launch would do, to be repeated, with ``warm`` what ``variants`` has, given the machine values; the grid means
    nothing to it, and of arguments that cannot be read it gives what ``explain`` does.

    ``namespace`` gives what the text refers to: ``readers``, ``tensors``, ``variants``, ``prepare``, ``explain``,
    ``refresh``, ``epoch``, ``seen_epoch``, ``watched``, ``check_watched``, ``installed``.
    """
    scope: dict[str, Any] = {f"_d_{k}": v for k, v in namespace.items()}
    scope |= {
        "_d_missing": MISSING,
        "_d_constant": launch_key,
        "_d_hashable": _hashable,
        "_d_errors": (LaunchError, RuntimeError),
    }
    for i, parameter in enumerate(parameters):
        scope[f"_d_default{i}"] = parameter.default if parameter.has_default else MISSING
        scope[f"_d_change{i}"] = KeyChange(parameter)
    exec(compile(binder_text(parameters, ending), f"<launch of {name}>", "exec"), scope)
    made: Callable[..., Any] = scope["launch"]
    made.__qualname__ = name  # what Python's own messages call it, such as those of arguments given twice
    return made


def binder_text(parameters: Sequence[KernelParameter], ending: Ending) -> str:
    """The source of the launch function."""
    names = [p.name for p in parameters]
    everything = _tuple(names)
    extra = "()" if any(p.variadic for p in parameters) else "_d_extra"
    reads, keys, values = [], [], []
    for i, p in enumerate(parameters):
        if p.constexpr:
            keys.append(f"{p.name} if {p.name}.__class__ is int else _d_constant({p.name})")
            continue
        values.append(f"_d_v{i}")
        keys.append(f"_d_k{i}")
        if p.plain:
            reads += [f"        {line}" for line in reading_text(p.name, f"_d_k{i}", f"_d_h{i}", f"_d_v{i}")]
            keys.append(f"_d_h{i}")
        else:
            reads.append(f"        _d_k{i}, _d_v{i} = _d_readers[{p.name}.__class__]({p.name})")
            reads.append(f"        _d_k{i} = _d_change{i}[_d_k{i}]")
    meta = ", ".join(f"{n!r}: {n}" for n in names)
    given = f"(_d_grid, {_tuple(values)}, {everything})"
    launch = [
        "    _d_direct = _d_run.direct",
        "    if _d_direct is None or _d_installed.hooks:",
        f"        return _d_run{given}",
        f"    return _d_direct({', '.join(['_d_grid', *values])})",
    ]
    last = {
        "launch": launch,
        "bind": [f"    return _d_run.bound{given}"],
        "warm": [f"    return _d_run({_tuple(values)})"],
    }
    sized = [
        "    if _d_grid.__class__ is not tuple and callable(_d_grid):",
        f"        _d_grid = _d_grid({{{meta}{', ' if meta else ''}**_d_options}})",
    ]
    return "\n".join(
        [
            f"def launch({_declaration(parameters)}):",
            "    if _d_epoch.value != _d_seen_epoch[0]:",
            "        _d_refresh()",
            "    if _d_watched:",
            "        _d_check_watched()",
            "    try:",
            *reads,
            f"        _d_key = {_tuple([f'({k})' for k in keys])}",
            "    except _d_errors as _d_problem:",  # PyTorch's are of tensors without storage of their own
            f"        return _d_explain(_d_problem, {everything}, {extra}, _d_options)",
            "    if _d_options:",
            "        _d_key = (*_d_key, *_d_options.items())",
            "    try:",
            "        _d_run = _d_variants.get(_d_key)",
            "    except TypeError:",  # an option that cannot be in a key
            "        _d_key = _d_hashable(_d_key)",
            "        _d_run = _d_variants.get(_d_key)",
            *(sized if ending != "warm" else ()),
            f"    if _d_run is None or {extra}:",
            f"        _d_run = _d_prepare(_d_key, {everything}, {extra}, _d_options, _d_grid)",
            *last[ending],
        ]
    )


def _hashable(part: object) -> Hashable:
    """A key whose options have mappings and lists, such as ``extern_libs``, as tuples. What has no hash either is like
    nothing else, so that the launch looks at it again."""
    if isinstance(part, Mapping):
        return dict, tuple((key, _hashable(held)) for key, held in part.items())
    if isinstance(part, list | tuple | set):
        return part.__class__, tuple(map(_hashable, part))
    if isinstance(part, Hashable):
        return part
    return object()


def _declaration(parameters: Sequence[KernelParameter]) -> str:
    """The parameter list of the launch function. Missing and surplus arguments reach our own messages."""
    parts = ["_d_grid", "/"]
    parts += [f"{p.name}=_d_default{i}" for i, p in enumerate(parameters) if not (p.keyword_only or p.variadic)]
    parts.append(next((f"*{p.name}" for p in parameters if p.variadic), "*_d_extra"))
    parts += [f"{p.name}=_d_default{i}" for i, p in enumerate(parameters) if p.keyword_only]
    return ", ".join([*parts, "**_d_options"])


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
