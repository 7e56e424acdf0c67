"""The modules of the language, under the names that programs import them by."""

from __future__ import annotations

import types
from functools import cache

from .namespace import LanguageModule

_ROOTS = ("deuteron", "triton")


@cache
def _modules() -> dict[str, LanguageModule]:
    from .. import language
    from ..language import libdevice

    device = LanguageModule("libdevice", _public(libdevice))
    cuda = LanguageModule("deuteron.language.extra.cuda", {"libdevice": device})
    extra = LanguageModule("deuteron.language.extra", {"libdevice": device, "cuda": cuda})
    names = _public(language)
    core = LanguageModule("deuteron.language", {**names, "extra": extra})
    math = LanguageModule("deuteron.language.math", names)
    core = LanguageModule("deuteron.language", {**names, "extra": extra, "math": math, "core": core})
    root = LanguageModule(
        "deuteron",
        {
            "language": core,
            "cdiv": language.cdiv,
            "next_power_of_2": language.next_power_of_2,
        },
    )
    table = {
        "": root,
        ".language": core,
        ".language.core": core,
        ".language.math": math,
        ".language.standard": core,
        ".language.extra": extra,
        ".language.extra.cuda": cuda,
        ".language.extra.libdevice": device,
        ".language.extra.cuda.libdevice": device,
    }
    found = {root_name + path: m for root_name in _ROOTS for path, m in table.items()}
    found["deuteron.compiler.language"] = core
    found["deuteron.compiler.language.libdevice"] = device
    return found


def _public(module: types.ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in module.__dict__["__all__"]}


def language_module(name: str) -> LanguageModule | None:
    """The language module that an import of ``name`` gives; None if it is not part of the language."""
    return _modules().get(name)


class _LanguageTypes:
    """The classes of the language that kernels may name (``tl.constexpr(...)``, ``tl.range(...)``)."""

    def __contains__(self, candidate: object) -> bool:
        from ..language.constexpr import constexpr
        from ..language.control import range, static_range
        from ..language.maths import PropagateNan
        from ..language.tensor import tensor

        return any(candidate is t for t in (constexpr, range, static_range, tensor, PropagateNan))


LANGUAGE_TYPES = _LanguageTypes()
