"""What programs read of a kernel without launching it, under the names that Triton's kernels have."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...errors import ArgumentMismatch, CompilationError
from ...language.constexpr import unwrap
from ...launch_recipe import LaunchRecipe
from ...source.arguments import spelled
from ...syntax import module_tree
from ..variant.specialization import function_name, variant_from_text
from .binding import KernelParameter, annotation_dtype
from .compiled import CompiledKernel, compile_variant
from .kernel import Kernel, Prepared, Specialization
from .launcher import Warm
from .pending import PendingKernel


@dataclass(frozen=True, slots=True)
class DeclaredParameter:
    """One parameter as it is declared. ``num``: its place. ``annotation``: as text, ``""`` without one; ``default``:
    ``inspect.Parameter.empty`` without one. ``annotation_type``: the scalar type that the annotation fixes, or ``""``.
    """

    num: int
    name: str
    annotation: str
    annotation_type: str
    default: object
    is_constexpr: bool
    is_const: bool
    do_not_specialize: bool
    do_not_specialize_on_alignment: bool

    @property
    def has_default(self) -> bool:
        """Whether the declaration gives a default, be it None."""
        return self.default is not inspect.Parameter.empty


class Variants(dict[str, CompiledKernel | PendingKernel]):
    """Variants compiled so far, and those under way, by their hash. Clearing forgets what was ``derived`` from them,
    such as what is ready to be launched, too: the next launch looks for its variant on disk and compiles it if it is
    not there."""

    def __init__(self, *derived: dict[object, Prepared] | dict[object, Warm] | dict[str, LaunchRecipe]) -> None:
        super().__init__()
        self._derived = derived

    def clear(self) -> None:
        """Forget all variants."""
        super().clear()
        for known in self._derived:
            known.clear()


class DeviceCaches(Mapping[object, tuple[Variants]]):
    """Device -> (variants by hash,). All devices share one table, since the target is part of the hash."""

    def __init__(self, variants: Variants) -> None:
        self._variants = variants

    def __getitem__(self, device: object) -> tuple[Variants]:
        return (self._variants,)

    def __iter__(self) -> Iterator[object]:
        return iter((0,))

    def __len__(self) -> int:
        return 1

    def clear(self) -> None:
        """Forget all variants."""
        self._variants.clear()


#: What is kept of a kernel's text; another text has others.
DERIVED = ("parameters", "params", "signature", "raw_src", "starting_line_number")


class DescribedKernel(Kernel):
    """A kernel that says what it is made of, and from where. A kernel made of another one's text may be told the place
    of that text, as Triton's kernels may: errors show ``file_name``, ``def_file_line_number`` and
    ``def_file_col_number``; ``raw_src`` and ``starting_line_number`` are for those who read them.
    """

    cache: Variants
    _repr: Callable[[Specialization], str] | None
    _unspecialized: set[int | str]
    _unaligned: set[int | str]

    @property
    def __globals__(self) -> dict[str, object]:
        """The globals of the decorated function, as Triton's kernels have them; of a kernel made of text none."""
        function = self.python()
        return function.__globals__ if function is not None else {}

    def get_capture_scope(self) -> dict[str, object]:
        """What the function's free names stand for: its globals, and the variables around it that it reads."""
        function = self.python()
        if function is None or function.__closure__ is None:
            return self.__globals__
        return self.__globals__ | dict(inspect.getclosurevars(function).nonlocals)

    def repr(self, specialization: Specialization) -> str:
        """The name of a specialisation's code, and of its launches in profiles: what the function says that ``jit`` was
        given, or the kernel's own. Raises ArgumentMismatch where that is no name."""
        if self._repr is None:
            return self.__name__
        name = self._repr(specialization)
        if not isinstance(name, str) or not name:
            raise ArgumentMismatch(f"{self.__name__}: its repr returned {name!r}", hint="return a name, as text")
        return name

    @property
    def module(self) -> str:
        """The name of the module that the function was written in; of a kernel made of text none, ""."""
        function = self.python()
        return function.__module__ if function is not None else ""

    @property
    def _fn_name(self) -> str:
        """Triton's name: the module and the qualified name of the function."""
        return function_name(self)

    def is_gluon(self) -> bool:
        """False: there is no Gluon here."""
        return False

    def parse(self) -> ast.Module:
        """The syntax tree of ``src``."""
        return module_tree(self.source.text)

    @property
    def src(self) -> str:
        """The source text as it was written, without decorators."""
        return self.source.written

    @property
    def arg_names(self) -> list[str]:
        """Names of the parameters in order, ``tl.constexpr`` ones included."""
        return [p.name for p in self.parameters]

    @property
    def cache_key(self) -> str:
        """A digest of the source, of everything that it reaches and of the line that it begins in. Our own caches go by
        ``source.hash``, which is the same wherever the kernel stands."""
        return hashlib.sha256(f"{self.source.hash} {self.starting_line_number}".encode()).hexdigest()

    @functools.cached_property
    def parameters(self) -> list[KernelParameter]:
        """How each parameter takes part in specialisation."""
        defaults = self._defaults()
        keyword_only = {a.arg for a in self.source.node.args.kwonlyargs}
        made = []
        given = getattr(self.python(), "__annotations__", {})  # which a decorator may have set
        for i, argument in enumerate(self.source.parameters):
            name = argument.name
            set_later = spelled(given[name]) if argument.annotation is None and name in given else None
            dtype, const = annotation_dtype(argument.annotation or set_later)
            if argument.constexpr and {i, name} & (self._unspecialized | self._unaligned):
                raise CompilationError(
                    f"{self.__name__}: {name} marked as constexpr and listed in do_not_specialize",
                    hint="every value of a constexpr is a variant of its own: remove one of the two",
                )
            made.append(
                KernelParameter(
                    name,
                    argument.constexpr,
                    keyword_only=name in keyword_only,
                    variadic=argument.variadic,
                    has_default=name in defaults,
                    default=defaults.get(name),
                    dtype=dtype,
                    const=const,
                    specialize=not {i, name} & self._unspecialized,
                    align=not {i, name} & self._unaligned,
                )
            )
        return made

    def _defaults(self) -> dict[str, object]:
        """Default values: the function's own objects, or what the text says."""
        function = self.python()
        if function is not None:
            given = inspect.signature(function).parameters.values()
            return {p.name: unwrap(p.default) for p in given if p.default is not p.empty}
        source = self.source
        return {a.name: unwrap(source.default(a)) for a in source.arguments if a.default is not None}

    @functools.cached_property
    def params(self) -> list[DeclaredParameter]:
        """The parameters in their order, as they are declared."""
        declared = zip(self.source.parameters, self.parameters, strict=True)
        return [_described(i, argument.annotation, kept) for i, (argument, kept) in enumerate(declared)]

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the Python function; of a kernel made of text that of an equal function."""
        function = self.python()
        if function is not None:
            return inspect.signature(function)
        kinds = inspect.Parameter
        made = []
        for parameter in self.parameters:
            named = kinds.KEYWORD_ONLY if parameter.keyword_only else kinds.POSITIONAL_OR_KEYWORD
            kind = kinds.VAR_POSITIONAL if parameter.variadic else named
            default = parameter.default if parameter.has_default and not parameter.variadic else kinds.empty
            made.append(kinds(parameter.name, kind, default=default))
        return inspect.Signature(made)

    @property
    def constexprs(self) -> list[int]:
        """Places of the ``tl.constexpr`` parameters."""
        return [parameter.num for parameter in self.params if parameter.is_constexpr]

    @property
    def do_not_specialize(self) -> list[str]:
        """Names of the parameters whose value does not lead to new variants."""
        return [parameter.name for parameter in self.params if parameter.do_not_specialize]

    @property
    def do_not_specialize_on_alignment(self) -> list[str]:
        """Names of the parameters whose divisibility does not lead to new variants."""
        return [parameter.name for parameter in self.params if parameter.do_not_specialize_on_alignment]

    @functools.cached_property
    def raw_src(self) -> list[str]:
        """The source text as it was written, line by line, decorators included."""
        return [f"{line}\n" for line in self.source.lines[self._first_line - 1 : self.source.node.end_lineno]]

    @functools.cached_property
    def starting_line_number(self) -> int:
        """The line of the file that ``raw_src`` begins in."""
        return self.source.first_line + self._first_line - 1

    @property
    def _first_line(self) -> int:
        return min([self.source.node.lineno, *(d.lineno for d in self.source.node.decorator_list)])

    @property
    def file_name(self) -> str:
        """The file that errors name."""
        return self.source.filename

    @file_name.setter
    def file_name(self, name: str) -> None:
        """Say that the text is of another file."""
        self.__dict__["source"] = replace(self.source, filename=name)

    @property
    def def_file_line_number(self) -> int:
        """The line of the file that ``def`` stands in."""
        return self.source.first_line + self.source.node.lineno - 1

    @def_file_line_number.setter
    def def_file_line_number(self, line: int) -> None:
        """Say where ``def`` stands; all lines move with it."""
        self.__dict__["source"] = replace(self.source, first_line=line - self.source.node.lineno + 1)

    @property
    def def_file_col_number(self) -> int:
        """The column of the file that ``def`` begins in, from 1."""
        return self.source.indent + 1

    @def_file_col_number.setter
    def def_file_col_number(self, column: int) -> None:
        """Say how far the text is indented."""
        self.__dict__["source"] = replace(self.source, indent=column - 1)

    @property
    def device_caches(self) -> DeviceCaches:
        """Variants compiled so far: ``kernel.device_caches[device][0]`` maps their hashes to compiled kernels."""
        return DeviceCaches(self.cache)

    def preload(self, specialization_data: str) -> CompiledKernel:
        """Compile, or read from the cache, what a listener was told of in another process (``specialization_data`` of
        Triton's compile hooks), so that launches of that kind find it.

        Raises:
            LaunchError: the data is of another kernel, or no such data.
        """
        variant = self.called(variant_from_text(self.source, specialization_data))
        made = compile_variant(variant)
        made.launch_metadata = self.launch_metadata
        self.cache[variant.key] = made
        return made


def _described(num: int, annotation: str | None, kept: KernelParameter) -> DeclaredParameter:
    return DeclaredParameter(
        num,
        kept.name,
        annotation or "",
        kept.dtype or "",
        kept.default if kept.has_default else inspect.Parameter.empty,
        kept.constexpr,
        kept.const,
        not (kept.constexpr or kept.specialize),
        not (kept.constexpr or kept.align),
    )
