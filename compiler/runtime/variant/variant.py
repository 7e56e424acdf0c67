"""A variant: one kernel for one signature, set of compile-time values, schedule and target. It is what is compiled,
cached and measured."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ... import knobs
from ...errors import IRError, LaunchError, SignatureError
from ...language.constexpr import unwrap
from ...language.inline import Inlinable
from ...launch_recipe import Guard
from ...options import (
    LAUNCH_OPTIONS,
    NEUTRAL_OPTIONS,
    SCHEDULE_OPTIONS,
    Schedule,
    asks_for_nothing,
    effective_options,
)
from ...record_buffer import RecordForm
from ...signature import ArgumentType, TypeText, flattened, gathered, leaves, parse_argument_type, scattered
from ...source.arguments import Argument
from ...source.kernel import KernelSource, source_of
from ...target import Target
from .constants import constant_text
from .toolchain import toolchain


@dataclass(frozen=True, slots=False)
class Variant:
    """What identifies one piece of machine code. ``signature`` holds the run-time parameters in their order
    (a tensor descriptor followed by its hidden ones), ``constants`` every other parameter; ``denied``: promises about
    arguments that the code may not rely on; ``records``: how scopes inside the kernel are recorded, None where they are
    not; ``lined``: a cubin has a table of source lines; ``called``: the name that the kernel's ``repr`` gives the code,
    "" where it has that of the source."""

    source: KernelSource
    signature: Mapping[str, ArgumentType]
    constants: Mapping[str, object]
    target: Target
    schedule: Schedule
    denied: tuple[Guard, ...] = ()
    records: RecordForm | None = None
    lined: bool = False
    called: str = ""

    @property
    def name(self) -> str:
        """The name of the code: in profiles, in metadata and, as far as its letters allow, in PTX."""
        return self.called or self.source.name

    @cached_property
    def key(self) -> str:
        """A sha256 over everything that the generated code depends on, and nothing else: schedule options without
        effect on the target do not make another variant."""
        parts = [
            self.source.name,
            self.source.hash,
            *(f"{name}: {type}" for name, type in self.signature.items()),
            *(f"{name} = {constant_text(value)}" for name, value in self.constants.items()),
            *(f"{name} = {getattr(self.schedule, name)!r}" for name in effective_options(self.target.kind)),
            *(name for name in LAUNCH_OPTIONS[self.target.kind] if getattr(self.schedule, name)),
            *(f"not {guard}" for guard in self.denied),
            *([str(self.records)] if self.records else []),
            *(["lined"] if self.lined else []),
            *([f"called {self.called!r}"] if self.called else []),
            *(f"{name}: {value}" for name, value in toolchain(self.target).items()),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def describe(self) -> str:
        """A line for people: signature, constants and schedule."""
        types = [f"{n}: {t}" for n, t in self.signature.items()]
        values = [f"{n}={v}" for n, v in self.constants.items()]
        denied = f" without {', '.join(map(str, self.denied))}" if self.denied else ""
        return f"{self.source.name}({', '.join(types + values)}) for {self.target}{denied}"

    def without(self, guards: Sequence[Guard]) -> Variant:
        """The variant that relies on none of ``guards`` either; raises IRError where one was denied already, because
        then the compiler would go on relying on it for ever."""
        for guard in guards:
            if guard in self.denied:
                raise IRError(f"{self.source.name}: the code relies on {guard}, which was denied to the compiler")
        return replace(self, denied=tuple(sorted({*self.denied, *guards}, key=str)))


def make_variant(
    kernel: Inlinable | KernelSource,
    signature: Mapping[str, TypeText],
    constexprs: Mapping[str, object] | None,
    target: str,
    options: Mapping[str, object],
) -> Variant:
    """Check what a caller of ``compile`` gave and put it into the form that the pipeline takes.

    Raises:
        SignatureError: unknown or missing parameters, a wrong type, an unknown schedule option.
        TargetError: an unknown target.
    """
    if isinstance(kernel, Inlinable):
        kernel = source_of(kernel)
    _check_given(kernel, signature, constexprs or {})
    given = {n: unwrap(v) for n, v in (constexprs or {}).items()}
    texts = scattered(signature)
    types: dict[str, ArgumentType] = {}
    constants: dict[str, object] = {}
    for argument, name in _leaves_given(kernel, [*texts, *given]):
        text = texts.get(name)
        if name in given:
            constants[name] = given[name]
        elif text == ():
            constants[name] = ()
        elif text not in (None, "constexpr"):
            kind = _type_given(kernel, argument, name, text)
            if kind.is_one:
                constants[name] = 1
            else:
                types |= flattened(name, kind)
        elif name == argument.name and argument.default is not None:
            constants[name] = unwrap(kernel.default(argument))
        else:
            raise _missing(kernel, name, argument.constexpr)
    _check_constants(kernel, constants)
    return Variant(kernel, types, constants, Target.parse(target), make_schedule(options))


def _check_given(kernel: object, signature: object, constexprs: object) -> None:
    """Raise SignatureError where one of these is of another kind than it has to be."""
    if not isinstance(kernel, KernelSource):
        raise SignatureError(
            f"cannot compile a {type(kernel).__name__}",
            hint="pass a @deuteron.jit function or a KernelSource",
        )
    if not isinstance(signature, Mapping):
        raise SignatureError(
            f"the signature of {kernel.name} is {signature!r}",
            hint='pass the types of its parameters by name, such as {"x": "*fp32", "n": "i32"}',
        )
    if not isinstance(constexprs, Mapping):
        raise SignatureError(
            f"the constexprs of {kernel.name} are {constexprs!r}", hint='pass values by name, such as {"BLOCK": 64}'
        )
    for name in (*signature, *constexprs):
        if not isinstance(name, str):
            raise SignatureError(
                f"{kernel.name} has no parameter {name!r}",
                hint=f"its parameters by name: {', '.join(p.name for p in kernel.parameters)}",
            )


def _type_given(kernel: KernelSource, argument: Argument, name: str, text: object) -> ArgumentType:
    if not isinstance(text, str):
        raise SignatureError(
            f"{kernel.name}: the type of the parameter {name!r} is {text!r}",
            hint=f'types are text, such as signature={{{name!r}: "*fp32"}}, or tuples of such texts',
        )
    if argument.constexpr:
        raise SignatureError(
            f"{kernel.name} declares {name!r} as tl.constexpr, but it has the type {text!r} in the signature",
            hint=f"give its value: constexprs={{{name!r}: ...}}",
        )
    return parse_argument_type(text)


def _leaves_given(kernel: KernelSource, given: Sequence[str]) -> Iterator[tuple[Argument, str]]:
    """Every parameter with its name, or with those of its leaves if these are ``given``."""
    arguments = gathered({name: name for name in given})
    names = [argument.name for argument in kernel.parameters]
    for name in arguments:
        if name not in names:
            raise SignatureError(f"{kernel.name} has no parameter {name!r}", hint=nearest(name, names))
    for argument in kernel.parameters:
        for name, _ in leaves(argument.name, arguments.get(argument.name)):
            yield argument, name


def _missing(kernel: KernelSource, name: str, constexpr: bool) -> SignatureError:
    what = "value" if constexpr else "type"
    where = f"constexprs={{{name!r}: 128}}" if constexpr else f'signature={{{name!r}: "*fp32"}}'
    return SignatureError(f"{kernel.name}: no {what} for its parameter {name!r}", hint=f"add it: {where}")


def _check_constants(kernel: KernelSource, constants: Mapping[str, object]) -> None:
    for name, value in constants.items():
        try:
            constant_text(value)
        except LaunchError as error:
            raise SignatureError(f"{kernel.name}: parameter {name!r}: {error.message}", hint=error.hint) from error


def make_schedule(options: Mapping[str, object]) -> Schedule:
    """The schedule that these options give, with defaults from the knobs. The debug knob wins over ``debug=False``.
    Integer overflow is checked with ``debug``, unless ``sanitize_overflow=False``.

    Raises:
        SignatureError: an option is unknown or of the wrong type.
        IllegalSchedule: a value is out of range.
    """
    base = Schedule(enable_fp_fusion=knobs.default_fp_fusion.get())
    chosen = {name: value for name, value in options.items() if name not in NEUTRAL_OPTIONS}
    for name, neutral in NEUTRAL_OPTIONS.items():
        if name in options and not asks_for_nothing(name, options[name]):
            raise SignatureError(
                f"the launch option {name} = {options[name]!r} does not exist in deuteron",
                hint=f"leave it out, or use {' or '.join(map(repr, neutral))}",
            )
    for name in chosen:
        if name not in SCHEDULE_OPTIONS:
            raise SignatureError(f"unknown schedule option {name!r}", hint=nearest(name, SCHEDULE_OPTIONS))
    made: Schedule = replace(base, **chosen)  # type: ignore[arg-type]
    debug = made.debug or knobs.debug.get()
    return replace(made, debug=debug, sanitize_overflow=debug and bool(chosen.get("sanitize_overflow", True)))


def launch_target(own: Target, arch: object) -> Target:
    """What a launch on a device of ``own`` is compiled for: that, or the GPU's architecture that the launch option
    ``arch`` names, such as ``sm90``. Code for another one than the device's can be looked at, not run.

    Raises:
        SignatureError: the device is no GPU, or ``arch`` is no text.
        TargetError: there is no such architecture.
    """
    if arch is None:
        return own
    if own.kind != "cuda":
        raise SignatureError(
            f"the launch option arch = {arch!r} does not exist on {own}",
            hint="leave it out: it names the architecture of a GPU",
        )
    if not isinstance(arch, str):
        raise SignatureError(f"launch option arch = {arch!r}", hint='it takes a text such as "sm90"')
    return Target.of_architecture(arch)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the closest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
