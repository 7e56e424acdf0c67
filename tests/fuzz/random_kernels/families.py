"""The kernel of a seed: which kinds of kernels there are, how often, and what every kernel ends with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .attention import attention
from .bounds import Discard, Known, Reject
from .building import Builder
from .control import ALL, FEW, branch, for_loop, leave, step, while_loop
from .kinds import F32, I1, I32, I64, NUMBERS
from .loads import new_load
from .places import random_shape
from .products import gemm, persistent, products, scaled_products
from .statements import Contents, Input, Output, State, Statement, Variable
from .stores import try_store

#: How often each kind of kernel comes.
FAMILIES = {"tiles": 9, "blocks": 9, "gemm": 9, "persistent": 3, "attention": 4, "products": 4, "scaled": 1}
OTHERS = {"persistent": persistent, "attention": attention, "products": products, "scaled": scaled_products}
#: Those without products, which take a tenth of the others' time.
STRAIGHT = ("tiles", "blocks")
#: What is drawn for a seed until something is wanted.
ATTEMPTS = 60


@dataclass(frozen=True)
class RandomKernel:
    """A kernel, its launch and its meaning. ``numbers``: integer arguments; ``options``: of the schedule; ``fixed``:
    values that statements find beside those of other statements."""

    seed: int
    family: str
    programs: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    numbers: dict[str, int]
    options: dict[str, int | bool]
    body: tuple[Statement, ...]
    tags: frozenset[str]
    fixed: dict[str, Known]

    def expected(self) -> dict[str, Contents]:
        """What a launch leaves in each output."""
        state = State(self.programs, self.fixed)
        state.run(self.body)
        return {output.name: state.held(output) for output in self.outputs}

    def with_body(self, body: Sequence[Statement]) -> RandomKernel:
        """The same kernel of other statements."""
        return replace(self, body=tuple(body))


def make(seed: int, assembly: bool = False) -> RandomKernel:
    """The kernel of a seed; ``assembly``: one that may have PTX in it."""
    family, rng = family_of(seed), random.Random(f"{seed} {assembly}")
    for _ in range(ATTEMPTS):
        drawn = random.Random(rng.getrandbits(64))
        try:
            return _make(seed, family, drawn, assembly)
        except (Discard, Reject):
            continue
    raise Discard(f"no kernel for seed {seed}")


def family_of(seed: int) -> str:
    """What kind of kernel a seed is."""
    return random.Random(f"family {seed}").choices(list(FAMILIES), list(FAMILIES.values()))[0]


def _make(seed: int, family: str, rng: random.Random, assembly: bool) -> RandomKernel:
    rows, columns = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    programs = rows * columns if family == "gemm" else rng.choice([1, 2, 2, 3, 4, 5])
    if family == "tiles" and rng.random() < 0.04:
        programs = rng.choice([150, 300])
    b = Builder(rng, programs, assembly)
    b.limit = 8192 if programs < 10 else 256
    _options(b, family)
    if family in STRAIGHT:
        _tiles(b)
        if family == "blocks":
            _blocks(b)
    else:
        if family == "gemm":
            gemm(b, rows, columns)
        else:
            OTHERS[family](b)
        if b.chance(0.4):
            for _ in range(rng.randint(1, 4)):
                step(b, FEW)
    _finish(b, b.rng.randint(5, 10) if family in STRAIGHT else b.rng.randint(2, 4))
    made = (tuple(b.inputs), tuple(b.outputs), b.numbers, b.options, tuple(b.body), frozenset(b.tags), b.fixed)
    return RandomKernel(seed, family, programs, *made)


def _options(b: Builder, family: str) -> None:
    b.options["num_warps"] = b.choose(1, 2, 4, 4, 8, 16) if family in STRAIGHT else b.choose(1, 2, 4, 4, 4, 8, 8, 16)
    b.options["num_stages"] = b.choose(1, 2, 3, 3, 4, 5)
    if b.chance(0.1):
        b.options["num_ctas"] = b.choose(1, 2, 4)
    if b.chance(0.04):
        b.options["maxnreg"] = min(b.choose(64, 128, 255), 2048 // int(b.options["num_warps"]))
    if b.chance(0.2):
        b.options["enable_fp_fusion"] = False


def _tiles(b: Builder) -> None:
    for _ in range(2):
        new_load(b, random_shape(b, b.choose(None, None, 64, 256)), b.rng.choice(NUMBERS))
    if b.chance(0.5):
        new_load(b, (), b.choose(I32, I32, F32, I64))
    for _ in range(b.rng.randint(6, 16)):
        step(b, ALL)


def _blocks(b: Builder) -> None:
    for _ in range(b.choose(1, 1, 2)):
        b.attempt(b.choose(for_loop, for_loop, branch, while_loop))
        for _ in range(b.rng.randint(0, 3)):
            step(b, ALL)
    if b.chance(0.1):
        leave(b, "return")


def _finish(b: Builder, outputs: int) -> None:
    """Store what blocks leave and what nobody reads, so that little of a kernel is dead.

    Raises:
        Discard: the kernel writes nothing.
    """
    wanted = max(1, outputs - len(b.outputs))
    named = [v for v in b.pool if v.kind is not I1 and v.size <= 32768 and not v.name.startswith(("n", "pid"))]
    changed = [v for v in named if v.name[0] in "cr" or (v.name[0] == "k" and v.name not in b.used)]
    b.rng.shuffle(changed)
    unread = [v for v in named if v.name not in b.used and v.name[0] == "v"]
    _store_some(b, [*changed[:4], *unread[::-1], *named[::-1]], wanted)
    if not b.outputs:
        raise Discard("no output")


def _store_some(b: Builder, candidates: Sequence[Variable], wanted: int) -> None:
    for v in list(dict.fromkeys(candidates))[:20]:
        if wanted and try_store(b, v):
            wanted -= 1
