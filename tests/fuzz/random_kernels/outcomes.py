"""How a random kernel ends on a target."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from deuteron.compiler.errors import CompilationError, DeuteronError, IllegalSchedule, OutOfResources

from .comparison import compare
from .families import RandomKernel, make
from .launching import LAUNCHES, WITH_ASSEMBLY
from .shrinking import without

#: Ends that are no findings: right, or more than a target has.
FINE = ("good", "resources")
#: What is said of operations that an architecture lacks.
NEWER = re.compile(r"needs? sm_\d+\w* or newer")
#: Lines of a traceback that are kept.
TRACE_LINES = 8


@dataclass(frozen=True)
class Work:
    """The kernel of a seed on a target, without the statements of some numbers."""

    seed: int
    target: str
    left_out: tuple[int, ...] = ()

    def kernel(self) -> RandomKernel:
        made = make(self.seed, self.target in WITH_ASSEMBLY)
        return made.with_body(without(made.body, set(self.left_out))) if self.left_out else made


@dataclass(frozen=True)
class Outcome:
    """``kind``: good, resources, wrong, refused, failed, crashed or hangs; ``what``: the reason; ``tags``: what the
    kernel has in it."""

    work: Work
    kind: str
    what: str = ""
    tags: frozenset[str] = frozenset()

    @property
    def is_finding(self) -> bool:
        return self.kind not in FINE

    @property
    def brief(self) -> str:
        """The reason without places and numbers, to count by."""
        line = next(iter(self.what.splitlines()), "")
        line = re.sub(r"<random kernel [^>]*>:\d+:\d+: ", "", line)
        return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", re.sub(r"\b[a-z]+\d+\b", "#", line))[:120]


def check(work: Work) -> Outcome:
    """Make a kernel, launch it and compare.

    Raises:
        Discard, Reject: without some of its statements it is no kernel whose results are known.
    """
    kernel = work.kernel()
    expected = kernel.expected()
    tags = kernel.tags | {kernel.family}
    try:
        after = LAUNCHES[work.target](kernel)
    except (OutOfResources, IllegalSchedule) as error:
        return Outcome(work, "resources", str(error), tags)
    except CompilationError as error:
        return Outcome(work, "resources" if NEWER.search(str(error)) else "refused", str(error), tags)
    except DeuteronError as error:
        return Outcome(work, "failed", f"{type(error).__name__}: {error}", tags)
    except Exception as error:
        trace = "".join(traceback.format_exc().splitlines(True)[-TRACE_LINES:])
        return Outcome(work, "failed", f"{type(error).__name__}: {error}\n{trace}", tags)
    wrong = "" if after is None else compare(kernel, expected, after)
    return Outcome(work, "wrong" if wrong else "good", wrong, tags)
