"""``triton.compile(ASTSource(...), target=GPUTarget(...))``: deuteron's compiler behind Triton's call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import deuteron
from deuteron.compat.triton.backends.compiler import BaseBackend, GPUTarget, own_target
from deuteron.compat.triton.runtime.driver import driver
from deuteron.compiler import CompiledKernel, JITFunction
from deuteron.compiler.errors import SignatureError
from deuteron.compiler.runtime.variant.variant import launch_target, make_schedule

#: Where an argument is: its place among the parameters, and in a tuple those of the element.
Path = tuple[int, ...]


class ASTSource:
    """A kernel with the types of its arguments and its compile-time values.

    ``signature``: a type a parameter, such as ``*fp32``, ``i32``, a tuple of types, or ``constexpr``. ``constexprs``:
    values by name or by place ``(3,)``. ``attrs``: promises by place, ``{(0,): [["tt.divisibility", 16]]}``.
    """

    def __init__(
        self,
        fn: JITFunction,
        signature: Mapping[str, Any],
        constexprs: Mapping[str | Path, object] | None = None,
        attrs: Mapping[Path, Sequence[Sequence[Any]]] | None = None,
    ) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.ext = "tile"
        self.signature = dict(signature)
        names = fn.arg_names
        self.constants: dict[Path, object] = {
            (names.index(place),) if isinstance(place, str) else tuple(place): value
            for place, value in (constexprs or {}).items()
        }
        self.attrs = dict(attrs or {})

    def hash(self) -> str:
        """A digest of the kernel and of everything that was said about its arguments."""
        parts = [self.fn.cache_key, *map(repr, (self.signature, self.constants, self.attrs))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def types(self) -> dict[str, Any]:
        """The signature with its promises, as :func:`deuteron.compile` takes it."""
        return {
            name: self._promised(kind, (place,))
            for place, name in enumerate(self.fn.arg_names)
            if (kind := self.signature.get(name, "constexpr")) != "constexpr"
        }

    def _promised(self, kind: Any, place: Path) -> Any:
        if isinstance(kind, tuple | list):
            return tuple(self._promised(part, (*place, i)) for i, part in enumerate(kind))
        divisible = [value for name, value in self.attrs.get(place, ()) if name == "tt.divisibility"]
        return f"{kind}:16" if divisible and divisible[0] % 16 == 0 and ":" not in kind else kind

    def values(self) -> dict[str, object]:
        """The compile-time values by parameter; elements of tuples as ``name.0``."""
        names = self.fn.arg_names
        return {".".join([names[place[0]], *map(str, place[1:])]): value for place, value in self.constants.items()}


class IRSource:
    """A file of Triton's IR. There is none: what deuteron compiles is kernels.

    Raises:
        SignatureError: always.
    """

    def __init__(self, path: object, *_: object) -> None:
        raise SignatureError(
            f"IRSource({str(path)!r}): deuteron does not read Triton's IR, which is a dialect of MLIR",
            hint="pass ASTSource(kernel, signature, constexprs)",
        )


def compile(
    src: ASTSource, target: GPUTarget | None = None, options: Mapping[str, Any] | None = None
) -> CompiledKernel:
    """Compile for a target, by default that of the current device. ``options``: ``num_warps`` and the other schedule
    options, and ``arch``, another architecture than the target's. ``asm`` of the result has ``ptx`` and ``cubin``,
    LLVM's text under ``llir``, and deuteron's own IR under ``ttir`` and ``ttgir``.

    Raises:
        SignatureError: ``src`` is not an ASTSource, or does not fit its kernel.
        CompilationError, OutOfResources, TargetError: as :func:`deuteron.compile`.
    """
    if not isinstance(src, ASTSource):
        raise SignatureError(
            f"cannot compile a {type(src).__name__}",
            hint="pass ASTSource(kernel, signature, constexprs); IR of Triton's is not taken, only kernels are",
        )
    given = dict(options or {})
    where = own_target(driver.active.get_current_target() if target is None else target)
    where = launch_target(where, given.pop("arch", None))
    made = make_schedule(given)  # says which option is wrong before anything is compiled
    schedule = {name: getattr(made, name) for name in deuteron.compiler.SCHEDULE_OPTIONS}
    return deuteron.compile(src.fn, src.types(), src.values(), str(where), **schedule)


def make_backend(target: GPUTarget) -> BaseBackend:
    """What compiles for a target; raises TargetError where nothing does."""
    return BaseBackend(own_target(target))
