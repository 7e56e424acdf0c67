"""What parent and child say to each other: a request is an operation with one of these, an answer is one of these.

Every answer has a ``status`` as a trial has, and an ``error`` unless it is ok. A request that fails is answered with
:class:`Failed`, which can be read as any of the answers. Both lines also have the number of the request, as
``request``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from ..codec import Document, Finite, Scalar
from ..measure.measurement import CodeFacts, TimingProtocol
from ..measure.statistics import Interval
from ..trial import Status
from ..workloads import WorkloadSpec


class Limit(Document, frozen=True):
    """Cap the address space at what is in use plus ``bytes``."""

    bytes: int


class Open(Document, frozen=True):
    """Open a device, which takes a third of a second where it is a GPU. It has no answer: whoever prepares hears why it
    cannot be opened."""

    device: str


class Prepare(Document, frozen=True):
    """Take a problem; with ``device`` also make tensors from ``seed``, and the result that is expected, for which
    ``default`` is the default configuration. ``processors``: SMs or cores of the device that launches will run on,
    where known."""

    workload: WorkloadSpec
    dims: Mapping[str, int]
    dtype: str
    target: str
    processors: int | None = None
    device: str | None = None
    default: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0


class Compile(Document, frozen=True):
    """Compile ``config`` into the cache that all processes share."""

    config: Mapping[str, Scalar]


class Show(Document, frozen=True):
    """Compile ``config`` and tell the stages of that."""

    config: Mapping[str, Scalar]


class Screen(Document, frozen=True):
    """Check ``config``, then a first look at its time; ``best_ns`` is the best time so far."""

    config: Mapping[str, Scalar]
    best_ns: Finite | None = None


class Race(Document, frozen=True):
    """Time ``configs`` in interleaved rounds for at most ``seconds``. In the ``final`` those that are wrong are left
    out, and it ends once the verdicts on all are settled."""

    configs: tuple[Mapping[str, Scalar], ...]
    rounds: int
    seconds: Finite
    seed: int
    final: bool


class Extend(Document, frozen=True):
    """Try ``config``, which is right at the problem's shape, at larger ones, on inputs of ``seed``."""

    config: Mapping[str, Scalar]
    seed: int


class Done(Document, frozen=True):
    """Answer to :class:`Limit` and :class:`Prepare`."""

    status: Status = "ok"


class Failed(Document, frozen=True):
    """``last``: the process ends after this answer."""

    status: Status
    error: str
    last: bool = False


class Compiled(Document, frozen=True):
    """What became of a compilation. ``identity`` is equal for equal code; ``metrics`` as the compiler knows them;
    ``code`` what follows from them and from the launch."""

    status: Status
    error: str | None = None
    identity: str | None = None
    metrics: dict[str, Finite] = field(default_factory=dict)
    seconds: Finite = 0.0
    code: CodeFacts | None = None


class ShownLine(Document, frozen=True):
    """One line of a stage; ``source``: the line of the kernel's file that it comes from, if it comes from one."""

    text: str
    source: int | None = None


class Shown(Document, frozen=True):
    """The stages of a compilation by name, as :func:`deuteron.compiler.runtime.variant.listings.list_stages` orders
    them; none unless ``status`` is ok."""

    status: Status
    error: str | None = None
    stages: dict[str, list[ShownLine]] = field(default_factory=dict)


class Screened(Document, frozen=True):
    """Outcome of checking and first timing. ``time_ns`` is None unless ``status`` is ok, and taken by ``protocol``.
    ``doubt``: why the default configuration, with which the result was compared, is wrong rather than this one."""

    status: Status
    error: str | None = None
    time_ns: Interval | None = None
    hopeless: bool = False
    reference: str | None = None
    worst_error: Finite | None = None
    check_seconds: Finite = 0.0
    measure_seconds: Finite = 0.0
    protocol: TimingProtocol | None = None
    doubt: str | None = None


class Raced(Document, frozen=True):
    """Outcome of interleaved rounds. ``times[c][r]`` in ns, empty for a candidate that failed its check with
    ``errors[c]``; ``sm_mhz``: median clock of the rounds, None where unknown. ``replays[c]``: of a short launch in
    graphs, in ns, empty for others; all of it empty where none were taken. ``status`` other than ok: the whole race
    failed, with ``error``."""

    status: Status
    error: str | None = None
    times: list[list[Finite]] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    sm_mhz: Finite | None = None
    reference: str | None = None
    check_seconds: Finite = 0.0
    measure_seconds: Finite = 0.0
    protocol: TimingProtocol | None = None
    replays: list[list[Finite]] = field(default_factory=list)


class Extended(Document, frozen=True):
    """Outcome of trying larger shapes: as in :class:`~..records.reach.Reach`."""

    status: Status
    error: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    together: bool = False
