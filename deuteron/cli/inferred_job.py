"""A job over the space that its kernel shows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .job_options import KernelOptions, choices_of
from .kernel_file import is_described, split_kernel
from .pairs import parse_pairs

if TYPE_CHECKING:
    from deuteron.tuner import JobSpec
    from deuteron.tuner.codec import Scalar


def with_space_of_kernel(job: JobSpec, text: str, options: KernelOptions) -> JobSpec:
    """``job`` over the space that is inferred for its first shape and dtype on its device.

    Raises:
        DeuteronError: the kernel does not compile, or has nothing to search; there is no such device.
    """
    from msgspec.structs import replace  # lazy: help starts without the tuner

    from deuteron.tuner.inference import (
        device_of,
        infer_space,
        subject_of_problem,
        with_inferred_space,
    )  # lazy: as above

    properties, target = device_of(job.device)
    problem = next(job.problems())
    given, chosen = given_of(text, options), chosen_of(options.search)
    subject = subject_of_problem(problem, properties.kind, target, given=given, chosen=chosen)
    return replace(job, workload=with_inferred_space(job.workload, infer_space(subject, properties)))


def given_of(text: str, options: KernelOptions) -> dict[str, str] | None:
    """The constexprs that options fix, each with that reason; None where a description fixes them: what was guessed
    from a kernel's text is no more than where the inference begins."""
    path, name = split_kernel(text)
    of_kernel = path.suffix == ".py" or name is not None
    if not of_kernel or options.description is not None or (not options.given and is_described(path)):
        return None
    return dict.fromkeys(parse_pairs(options.constexpr, "--constexpr"), "given")


def chosen_of(search: Sequence[str]) -> dict[str, tuple[Scalar, ...]]:
    """The choices that options give: numbers and text."""
    return {
        name: tuple(value if isinstance(value, int | float | str) else str(value) for value in values)
        for name, values in choices_of(search).items()
    }
