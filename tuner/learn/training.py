"""Trees from a table of times, grown by LightGBM and kept as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from deuteron.compiler.extras import require_extras

from ..cover import TimeTable
from ..errors import TunerError
from ..prediction import Feature, Forest, Ranking, feature_rows, features_of
from ..prediction.ranking import MOST_CANDIDATES
from ..replay.kernel_tuner import observed_parameters
from ..space import Space

if TYPE_CHECKING:
    import numpy as np

#: Shapes below which nothing is learnt: leaving one out says too little.
LEAST_SHAPES = 5
# Candidates of a ranking: what is within this of the best at a shape or more.
_NEAR_BEST = 0.10
# Chosen on modelled products (benchmarks/prediction.py --modelled); from half to twice of each changes little.
_TREES, _LEAVES, _RATE, _LEAST_ROWS = 100, 15, 0.1, 5
# Largest shapes of a candidate that a ranking keeps.
_SHAPES_KEPT = 32
# Slower ones need not be told apart: e times the best.
_CLIP = 1.0

#: What LightGBM's dump of a tree is made of: a split, or a leaf.
_Node: TypeAlias = Mapping[str, object]


class LearnError(TunerError):
    """Nothing can be learnt: too little was measured, or it does not belong together."""


@dataclass(frozen=True)
class RankedKernel:
    """What a ranking needs to know of a kernel besides times: the space that says which configurations are legal, bound
    to the constants of dtype and device but to no shape, and the grid, empty where it is not known."""

    dims: tuple[str, ...]
    space: Space
    grid: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """The pairs of a table as a matrix: ``values`` [pairs, features], ``target`` [pairs]: log(time / time of the
    shape's best); ``shape`` [pairs]: the place of each in the table."""

    features: tuple[Feature, ...]
    values: np.ndarray
    target: np.ndarray
    shape: np.ndarray


def kernel_of_table(table: TimeTable) -> RankedKernel:
    """What a table alone tells: the values of its configurations, no constraint, and no grid."""
    return RankedKernel(tuple(table.shapes[0]), Space(tuple(observed_parameters(list(table.configs)))), ())


def rows_of_table(table: TimeTable, kernel: RankedKernel) -> Rows:
    """Features and targets of all pairs that were measured."""
    import numpy as np

    features = features_of(kernel.space, kernel.dims, kernel.grid)
    blocks, targets, places = [], [], []
    for place, (shape, losses) in enumerate(zip(table.shapes, table.losses, strict=True)):
        configs = [table.configs[c] for c in losses]
        blocks.append(feature_rows(features, kernel.space.bind(shape), kernel.grid, shape, configs))
        targets += list(losses.values())
        places += [place] * len(configs)
    return Rows(features, np.concatenate(blocks), np.log1p(targets), np.array(places))


def grow(rows: Rows, kept: np.ndarray | None = None) -> Forest:
    """The forest of the pairs ``kept`` (a mask; None for all).

    Raises:
        MissingExtra: LightGBM is not installed.
    """
    import numpy as np

    lightgbm = load_lightgbm()
    mask = np.ones(len(rows.target), dtype=bool) if kept is None else kept
    settings = {
        "objective": "regression",
        "num_leaves": _LEAVES,
        "max_depth": 8,
        "learning_rate": _RATE,
        "min_data_in_leaf": _LEAST_ROWS,
        # The same forest everywhere, on any number of cores.
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": 0,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(rows.values[mask], np.minimum(rows.target[mask], _CLIP))
    dumped = lightgbm.train(settings, data, _TREES).dump_model()
    return _forest([tree["tree_structure"] for tree in dumped["tree_info"]])


def rank(table: TimeTable, kernel: RankedKernel, rows: Rows, forest: Forest, kept: Sequence[int]) -> Ranking:
    """The ranking of the shapes ``kept`` (places in the table) whose forest this is."""
    places = candidates_of(table, kept)
    candidates = tuple(table.configs[place] for place in places)
    right_at = tuple(_largest(table, kernel.dims, place, kept) for place in places)
    return Ranking(kernel.dims, kernel.space, kernel.grid, rows.features, candidates, forest, right_at)


def _largest(table: TimeTable, dims: Sequence[str], config: int, kept: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The shapes of those ``kept`` at which a configuration was measured, and so was right, without those that are no
    larger than another in any size."""
    sizes = [tuple(table.shapes[s][dim] for dim in dims) for s in kept if config in table.times[s]]
    largest: list[tuple[int, ...]] = []
    for one in sorted(sizes, key=sum, reverse=True):
        if not any(all(a <= b for a, b in zip(one, other, strict=True)) for other in largest):
            largest.append(one)
    return tuple(largest[:_SHAPES_KEPT])


def candidates_of(table: TimeTable, kept: Sequence[int]) -> list[int]:
    """The configurations that a ranking of these shapes offers: those that were near the best of one of them, first the
    nearest; of equally near ones those that are so more often."""
    loss: dict[int, float] = {}
    often: dict[int, int] = {}
    for shape in kept:
        for config, lost in table.losses[shape].items():
            loss[config] = min(lost, loss.get(config, lost))
            often[config] = often.get(config, 0) + (lost <= _NEAR_BEST)
    near = [config for config in loss if loss[config] <= _NEAR_BEST]
    return sorted(near, key=lambda c: (loss[c], -often[c], c))[:MOST_CANDIDATES]


def load_lightgbm() -> ModuleType:
    """What grows the trees.

    Raises:
        MissingExtra: LightGBM is not installed.
        LearnError: it is, and does not load.
    """
    require_extras("learn", by="learning from trials")
    try:
        import lightgbm  # lazy: an extra
    except OSError as error:
        raise LearnError(f"LightGBM cannot be loaded: {error}", hint="apt-get install libgomp1") from None
    found: ModuleType = lightgbm
    return found


def _forest(trees: Sequence[_Node]) -> Forest:
    """LightGBM's trees, each node after its parent. Values of features are known and finite, so that there is one kind
    of split: at most the threshold, or above it."""
    columns: dict[str, list[float]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots = []
    for tree in trees:
        roots.append(len(columns["feature"]))
        _lay_out(tree, columns)
    whole = {name: tuple(int(v) for v in columns[name]) for name in ("feature", "left", "right")}
    return Forest(roots=tuple(roots), threshold=tuple(columns["threshold"]), value=tuple(columns["value"]), **whole)


def _lay_out(tree: _Node, columns: Mapping[str, list[float]]) -> None:
    pending: list[tuple[_Node, str, int]] = [(tree, "", -1)]
    while pending:
        node, side, parent = pending.pop()
        place = len(columns["feature"])
        if side:
            columns[side][parent] = place
        split = "split_feature" in node
        entry = (
            (node["split_feature"], node["threshold"], place, place, 0.0)
            if split
            else (0, 0.0, place, place, node["leaf_value"])
        )
        for column, value in zip(("feature", "threshold", "left", "right", "value"), entry, strict=True):
            columns[column].append(float(value))  # type: ignore[arg-type]  # the dump's numbers
        if split:
            pending += [(node["right_child"], "right", place), (node["left_child"], "left", place)]  # type: ignore[list-item]
