"""The modules of the language, and Python's ``math``, under the names that programs import them by."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from os.path import commonprefix

from .. import language
from ..errors import UnknownName
from ..language import cuda as cuda_registers
from ..language import libdevice, records, target_info
from ..language.compile_time import constexpr_type, tuple_type, unwrap_if_constexpr
from ..language.constexpr import constexpr
from ..language.control import range, static_range
from ..language.descriptors import tensor_descriptor
from ..language.maths import PropagateNan
from ..language.standard import exponent
from ..language.tensor import tensor
from ..language.types import block_type, dtype, pointer_type
from . import python_math

_DESCRIPTORS = "use make_tensor_descriptor, load_tensor_descriptor and store_tensor_descriptor"

#: What to write instead of those functions of Triton that do not exist here.
INSTEAD: Mapping[str, str] = {
    "_experimental_make_tensor_descriptor": _DESCRIPTORS,
    "_experimental_descriptor_load": _DESCRIPTORS,
    "_experimental_descriptor_store": _DESCRIPTORS,
    "_experimental_reinterpret_tensor_descriptor": _DESCRIPTORS,
    "libdevice": "it is tl.extra.libdevice",
}
#: Of the names of the language those that are none of ``tl.math``: its maximum was that of two numbers in Triton 2.
REDUCTIONS: Mapping[str, str] = {
    "max": "tl.maximum(a, b) is the larger of two, tl.max(x, axis) that of a row",
    "min": "tl.minimum(a, b) is the smaller of two, tl.min(x, axis) that of a row",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LanguageModule:
    """A module of the language as kernels see it: a fixed table of names."""

    name: str
    members: Mapping[str, object]

    def __repr__(self) -> str:
        return self.name

    def member(self, name: str) -> object:
        """The member called ``name``; raises UnknownName with what is meant or near."""
        if name not in self.members:
            raise UnknownName(
                f"{self.name} has no {name!r}",
                hint=INSTEAD.get(name) or REDUCTIONS.get(name) or _of_libdevice(name) or suggest(name, self.members),
            )
        return self.members[name]


def _of_libdevice(name: str) -> str | None:
    """Where the functions are that Triton 2 had in ``tl.math``."""
    return f"it is tl.extra.libdevice.{name}" if name in libdevice.__all__ else None


def suggest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known name and those nearly as close, first what begins as ``name`` does."""
    likeness = {other: _likeness(name, other) for other in difflib.get_close_matches(name, list(known), n=3)}
    near = [other for other, found in likeness.items() if found > max(likeness.values()) - 0.1]
    near.sort(key=lambda other: (likeness[other], len(commonprefix([name, other]))), reverse=True)
    return f"did you mean {' or '.join(near)}?" if near else None


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, name).ratio()


_ROOTS = ("deuteron", "triton")


@cache
def _modules() -> dict[str, LanguageModule]:
    device = LanguageModule("libdevice", _public(libdevice))
    dependents = {name: getattr(cuda_registers, name) for name in ("gdc_wait", "gdc_launch_dependents")}
    gdc = LanguageModule("deuteron.language.extra.cuda.gdc", dependents)
    cuda = LanguageModule("deuteron.language.extra.cuda", {**_public(cuda_registers), "gdc": gdc, "libdevice": device})
    extra = LanguageModule("deuteron.language.extra", {"libdevice": device, "cuda": cuda})
    where = LanguageModule("deuteron.language.target_info", _public(target_info))
    names = _public(language)
    core = LanguageModule("deuteron.language", {**names, "extra": extra})
    math = LanguageModule("deuteron.language.math", {n: m for n, m in names.items() if n not in REDUCTIONS})
    standard = LanguageModule("deuteron.language.standard", {**names, "_log2": exponent})
    inner = {"extra": extra, "math": math, "random": math, "standard": standard, "target_info": where}
    inner["core"] = LanguageModule("deuteron.language.core", {**names, "_unwrap_if_constexpr": unwrap_if_constexpr})
    core = LanguageModule("deuteron.language", {**names, **inner})
    scopes = LanguageModule("deuteron.profiler.language", _public(records))
    profiler = LanguageModule("deuteron.profiler", {"language": scopes})
    root = LanguageModule(
        "deuteron",
        {
            "language": core,
            "profiler": profiler,
            "cdiv": language.cdiv,
            "next_power_of_2": language.next_power_of_2,
        },
    )
    table = {
        "": root,
        ".language": core,
        ".language.core": inner["core"],
        ".language.math": math,
        ".language.random": math,
        ".language.standard": standard,
        ".language.extra": extra,
        ".language.target_info": where,
        ".language.extra.cuda": cuda,
        ".language.extra.cuda.gdc": gdc,
        ".language.extra.libdevice": device,
        ".language.extra.cuda.libdevice": device,
        ".profiler": profiler,
        ".profiler.language": scopes,
    }
    found = {root_name + path: m for root_name in _ROOTS for path, m in table.items()}
    found["math"] = LanguageModule("math", python_math.MEMBERS)
    found["deuteron.compiler.language"] = core
    found["deuteron.compiler.language.libdevice"] = device
    return found


def _public(module: types.ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in module.__dict__["__all__"]}


def language_module(name: str) -> LanguageModule | None:
    """The language module that an import of ``name`` gives; None if it is not part of the language."""
    return _modules().get(name)


_TYPES = (
    *(constexpr, range, static_range, tensor, tensor_descriptor, tuple, PropagateNan),
    *(dtype, pointer_type, block_type, constexpr_type, tuple_type, records.scope),
)


class _LanguageTypes:
    """The classes of the language that kernels may name (``tl.constexpr(...)``, ``tl.range(...)``)."""

    def __contains__(self, candidate: object) -> bool:
        return any(candidate is t for t in _TYPES)


LANGUAGE_TYPES = _LanguageTypes()
