"""Schedule options of a space: those that change the kernel's code on the target, and that the compiler allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.gpu.legality import objection, traits_of
from deuteron.compiler.options import LAUNCH_OPTIONS, SCHEDULE_OPTIONS, Schedule, effective_options
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_schedule

from ..codec import Scalar
from .inferred_space import InferredParameter
from .subject import Subject, silent

#: What is tried of each option that may make a kernel faster.
_CHOICES: Mapping[str, tuple[Scalar, ...]] = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": (1, 2, 3, 4, 5, 6),
    "persistent": (False, True),
}
#: The reason of what only the author proposes.
OWN = "the kernel's own configurations"
#: Why the other options are left as they are.
_LEFT = {
    "num_ctas": "one CTA runs a program",
    "maxnreg": "a cap that the assembler does without; the choice of num_warps moves the same bound",
    "enable_fp_fusion": "results change with it in their last bits",
    "debug": "it adds checks, and no speed",
    "sanitize_overflow": "it adds checks, and no speed",
}


def options_of(subject: Subject, bases: Sequence[Mapping[str, object]], most_warps: int) -> Iterator[InferredParameter]:
    """Every schedule option that is no constexpr of the kernel, with its choices or the reason why it has none.

    ``bases``: constexprs at which the code of two values is compared; one difference is enough.
    """
    effective = effective_options(subject.kind)
    defaults = Schedule()
    for name in SCHEDULE_OPTIONS:
        if name in subject.constexprs:
            continue
        default = _scalar(subject.options.get(name, getattr(defaults, name)))
        listed = listed_values(subject, name)
        if name in subject.chosen:
            chosen = subject.chosen[name]
            yield InferredParameter(name, "schedule", chosen, chosen[0], "given")
        elif name in LAUNCH_OPTIONS[subject.kind]:
            yield InferredParameter(
                name, "schedule", (), default, "how programs begin belongs to what the kernel means"
            )
        elif name not in effective:
            yield InferredParameter(name, "schedule", (), default, f"no code for {subject.kind} depends on it")
        elif name in _LEFT:
            own = _union(listed, () if default is None else (default,)) if listed else ()
            yield InferredParameter(name, "schedule", own, own[0] if own else default, OWN if own else _LEFT[name])
        else:
            yield _compared(subject, name, default, bases, most_warps)


def _compared(
    subject: Subject, name: str, default: Scalar | None, bases: Sequence[Mapping[str, object]], most_warps: int
) -> InferredParameter:
    refused = _refusals(subject, name)
    legal = [v for v in _CHOICES[name] if v not in refused and not (name == "num_warps" and int(str(v)) > most_warps)]
    why = next(iter(refused.values()), None)
    if len(legal) < 2:
        return InferredParameter(name, "schedule", (), default, why or "there is one value")
    low, high = legal[min(1, len(legal) - 2)], legal[min(3, len(legal) - 1)]
    compared = False
    for base in bases:
        codes = [code_of(subject, {**base, name: value}) for value in (low, high)]
        compared = compared or None not in codes
        if None not in codes and codes[0] != codes[1]:
            listed = listed_values(subject, name)
            reason = f"the code for {low!r} and {high!r} differs"
            reason += (
                f"; beside these the kernel's own: {_shown(set(listed) - set(legal))}"
                if set(listed) - set(legal)
                else ""
            )
            start = default if default in legal or default in listed else legal[0]
            return InferredParameter(name, "schedule", _union(legal, listed), start, reason)
    reason = f"the code for {low!r} and {high!r} is the same" if compared else "nothing compiles with two values of it"
    return InferredParameter(name, "schedule", (), default, reason)


def hint_of(subject: Subject, name: str, reason: str, bases: Sequence[Mapping[str, object]]) -> InferredParameter:
    """A constexpr that loops take as a hint: searched where it changes code."""
    base = _scalar(subject.base[name])
    for values in bases:
        codes = {code_of(subject, {**values, name: value}, "llvm") for value in (1, 2, 4)} - {None}
        if len(codes) > 1:
            choices = _union((1, 2, 3, 4), listed_values(subject, name), () if base is None else (base,))
            return InferredParameter(name, "schedule", choices, base, reason)
    return InferredParameter(name, "schedule", (), base, f"{reason}; the code for 1, 2 and 4 is the same")


def code_of(subject: Subject, changes: Mapping[str, object], stage: str = "gpu") -> str | None:
    """What a variant runs, as far as the schedule decides it: GPU IR, or LLVM IR, where what authors say to loops is
    gone; None where it does not compile."""
    try:
        with silent():
            return str(build(subject.variant(changes), stop_after=stage).artifacts[stage])
    except DeuteronError:
        return None


def listed_values(subject: Subject, name: str) -> tuple[Scalar, ...]:
    """The values that the kernel's own configurations give a parameter, in order of their appearance."""
    found = (config[name] for config in subject.configs if name in config)
    return tuple(dict.fromkeys(v for v in found if isinstance(v, int | float | str | bool)))


def _refusals(subject: Subject, name: str) -> dict[Scalar, str]:
    """The values that the compiler refuses for the kernel, and why."""
    traits = traits_of(subject.tile({}))
    found: dict[Scalar, str] = {}
    for value in _CHOICES[name]:
        try:
            error: DeuteronError | None = objection(make_schedule({name: value}), subject.kind, traits)
        except DeuteronError as refusal:
            error = refusal
        if error is not None:
            found[value] = error.message
    return found


def _union(*several: Iterable[Scalar]) -> tuple[Scalar, ...]:
    values = dict.fromkeys(value for values in several for value in values)
    if all(isinstance(value, int) for value in values):
        return tuple(sorted(values, key=int))
    return tuple(values)


def _scalar(value: object) -> Scalar | None:
    return value if isinstance(value, int | float | str | bool) else None


def _shown(values: Iterable[object]) -> str:
    return ", ".join(sorted(map(repr, values)))
