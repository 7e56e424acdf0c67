"""Sensible types and compile-time values for a kernel that comes without them.

``deuteron compile FILE:KERNEL`` needs an argument type for every run-time parameter and a value for every constexpr.
What the caller does not say is taken, in this order, from annotations, from the first configuration that the autotune
decorator spells out, and from how the kernel uses the parameter (:mod:`.usage`). Every assumption is reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import DeuteronError, SignatureError
from ..ir.types import SCALARS
from ..options import SCHEDULE_OPTIONS
from ..signature import parse_argument_type
from .arguments import Argument
from .kernel import KernelSource
from .usage import Usage, usage_of

_REAL_NAMES = re.compile(r"(.*_)?(eps|epsilon|p|prob|rate|scale|factor|alpha|beta|gamma|lr|momentum|temperature)")
_BLOCK_NAMES = re.compile(r"(.*_)?(block|blk|tile)(_?size)?(_.*|[mnkxyz0-9])?", re.IGNORECASE)
_FLAG_NAMES = re.compile(r"(is|has|use|even|do|with|allow)_.*|causal", re.IGNORECASE)
_GROUP_NAMES = re.compile(r"group(_.*)?", re.IGNORECASE)
#: ``stride_am``, ``x_stride_0``: the strides of an array, one name an axis.
_STRIDE_NAMES = re.compile(r"(?P<array>.*stride.*)(?P<axis>[a-z0-9])", re.IGNORECASE)
_HEAD_NAMES = re.compile(r"(.*_)?(head|dim|d|dhead|headdim)(_.*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Assumptions:
    """Everything ``compile`` needs. ``assumed`` names what nobody said, with the value taken: lines for people."""

    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    schedule: Mapping[str, object]
    assumed: Mapping[str, str] = field(default_factory=dict)


def assume(
    source: KernelSource,
    *,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, object] | None = None,
    schedule: Mapping[str, object] | None = None,
    dtype: str = "f32",
) -> Assumptions:
    """Complete what is given for ``source``. Pointers point to ``dtype`` unless their use says otherwise; pointers and
    integers are promised to be multiples of 16, and where the strides of an array are named axis by axis, the last one
    is 1: arrays are taken to be row-major.

    Raises:
        SignatureError: what a parameter is cannot be told.
    """
    usage = usage_of(source)
    inner = _innermost_strides(source)
    types, values, options = dict(signature or {}), dict(constexprs or {}), dict(schedule or {})
    assumed: dict[str, str] = {}
    config = first_literal_config(source)
    given = {name.partition(".")[0] for name in (*types, *values)}  # elements of tuples are called name.0
    for argument in source.parameters:
        name = argument.name
        if name in given:
            continue
        if argument.variadic:
            raise SignatureError(
                f"how many arguments {source.name} has in *{name}, and of which types, cannot be told from the text",
                hint=f'--signature "{name}.0=*f32:16" gives the first, --constexpr "{name}=()" means none',
            )
        if argument.constexpr:
            if name in config:
                values[name] = config[name]
            elif argument.has_default:
                continue
            else:
                values[name] = constexpr_for(argument, source, usage)
            assumed[name] = repr(values[name])
        elif not argument.has_default or name in usage.pointers:
            types[name] = type_for(argument, usage, dtype)
            if name in inner and types[name] == "i32:16":
                types[name] = "i32:1"
            assumed[name] = types[name]
    for name in SCHEDULE_OPTIONS:
        if name in config and name not in options and name not in values:
            options[name] = config[name]
            assumed[name] = repr(config[name])
    return Assumptions(types, values, options, assumed)


def _innermost_strides(source: KernelSource) -> set[str]:
    """Of the parameters that are strides of one array by their names, the last, as long as there are several."""
    strides: dict[str, list[str]] = {}
    for argument in source.arguments:
        found = _STRIDE_NAMES.fullmatch(argument.name)
        if found is not None and found["array"].lower().strip("_") not in ("stride", "strides"):
            strides.setdefault(found["array"], []).append(argument.name)
    return {names[-1] for names in strides.values() if len(names) > 1}


def type_for(argument: Argument, usage: Usage, dtype: str = "f32") -> str:
    """The argument type (``*f32:16``, ``i32:16``, ``f32``) that a run-time parameter most likely has.

    Raises SignatureError for a tensor descriptor, whose block shape nobody can guess.
    """
    name = argument.name
    if argument.annotation is not None:
        declared = argument.annotation.rpartition(".")[2]
        try:
            return str(parse_argument_type(declared))
        except DeuteronError:
            pass  # an annotation for people, such as torch.Tensor
    if name in usage.descriptors:
        raise SignatureError(
            f"the block shape of the tensor descriptor {name!r} cannot be told from the text",
            hint=f'--signature "{name}=tensordesc<fp16[64, 64]>" gives it',
        )
    if name in usage.pointers or name.lower().endswith(("_ptr", "_pointer")):
        return "*i32:16" if name in usage.integer_pointers else f"*{dtype}:16"
    if name in usage.integers:
        return "i32:16"
    named_real = _REAL_NAMES.fullmatch(name.lower())
    return "f32" if name in usage.reals or named_real else "i32:16"


def constexpr_for(argument: Argument, source: KernelSource, usage: Usage) -> object:
    """A value that a constexpr parameter could have: block sizes that suit most kernels, flags on, texts empty."""
    name = argument.name
    if name in usage.dtypes:
        return SCALARS["f32"]
    if name in usage.precisions:
        return "ieee"
    if name in usage.texts:
        return ""
    if name == "num_warps":
        return 4
    if name == "num_stages":
        return 2
    if _GROUP_NAMES.fullmatch(name):
        return 8
    if is_block(argument, usage):
        return _block_size(name, source, usage)
    if name in usage.conditions or _FLAG_NAMES.fullmatch(name):
        return True
    return 64 if _HEAD_NAMES.fullmatch(name) else 1


def is_block(argument: Argument, usage: Usage) -> bool:
    """Whether a constexpr parameter sizes a tile, by its use or by its name."""
    if not argument.constexpr or _GROUP_NAMES.fullmatch(argument.name):
        return False
    if _BLOCK_NAMES.fullmatch(argument.name):
        return True
    return argument.name in usage.sizes and not _HEAD_NAMES.fullmatch(argument.name)


def _block_size(name: str, source: KernelSource, usage: Usage) -> int:
    """1024 for a kernel with one block size, 64 x 64 (x 32 deep) for one with several."""
    blocks = [a for a in source.arguments if is_block(a, usage)]
    if usage.has_dot:
        return 32 if name.upper().endswith("K") else 64
    return 1024 if len(blocks) == 1 else 64


def first_literal_config(source: KernelSource) -> dict[str, object]:
    """The first of :func:`literal_configs`; empty where there is none."""
    return next(literal_configs(source), {})


def literal_configs(source: KernelSource) -> Iterator[dict[str, object]]:
    """Constexprs and schedule options of every ``Config({...}, num_warps=4)`` that the kernel's autotune decorator
    spells out. What it computes is left out, since nothing of the file is executed."""
    for decorator in source.node.decorator_list:
        if isinstance(decorator, ast.Call) and _last_name(decorator.func) == "autotune":
            named = (k.value for k in decorator.keywords if k.arg == "configs")
            configs = next(named, decorator.args[0] if decorator.args else None)
            for item in configs.elts if isinstance(configs, ast.List | ast.Tuple) else ():
                config = _literal_config(item)
                if config is not None:
                    yield config


def _literal_config(item: ast.expr) -> dict[str, object] | None:
    if not (isinstance(item, ast.Call) and _last_name(item.func) == "Config"):
        return None
    try:
        found = ast.literal_eval(item.args[0]) if item.args else {}
        options = {k.arg: ast.literal_eval(k.value) for k in item.keywords if k.arg}
    except (TypeError, ValueError):  # not literal, or a dictionary of lists
        return None
    if not isinstance(found, dict):
        return None
    known = {n: v for n, v in options.items() if n in SCHEDULE_OPTIONS}
    return {str(n): v for n, v in found.items()} | known


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]
