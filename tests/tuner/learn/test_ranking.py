"""Features against their text, and which candidates a ranking offers."""

from __future__ import annotations

import math

import pytest

from deuteron.tuner.errors import ExpressionError, SchemaError, SpaceError
from deuteron.tuner.prediction import Feature, Forest, Ranking, feature_rows, features_of
from deuteron.tuner.space import Parameter, Space, config_key

SPACE = Space(
    (Parameter("BM", (16, 64)), Parameter("BK", (32,)), Parameter("fast", (False, True)), Parameter("w", (1, 2, 4))),
    ("BM <= max(16, M)", "not fast or K % BK == 0"),
    {"sm_count": 4, "dtype": "f16"},
)
MIXED = Space((Parameter("BM", (16, 64, "all")), *SPACE.parameters[1:]), (), SPACE.constants)
CONFIGS = [{"BM": bm, "BK": 32, "fast": fast, "w": w} for bm in (16, 64) for fast in (False, True) for w in (1, 4)]
LEAF = Forest((0,), (0,), (0.0,), (0,), (0,), (0.0,))


def ranking(**changes: object) -> Ranking:
    """By BM alone: 64 before 16."""
    fields: dict[str, object] = {
        "dims": ("M", "K"),
        "space": SPACE,
        "grid": ("cdiv(M, BM)",),
        "features": (Feature("value", (), ("BM",)),),
        "candidates": tuple(CONFIGS),
        "forest": Forest((0,), (0, 0, 0), (5.0, 0.0, 0.0), (1, 1, 2), (2, 1, 2), (0.0, 1.0, -1.0)),
    }
    fields |= changes
    fields.setdefault("right_at", (((1 << 39,) * len(fields["dims"]),),) * len(fields["candidates"]))  # type: ignore[arg-type]
    made = Ranking(**fields)  # type: ignore[arg-type]
    return Ranking.from_json(made.to_json())


def by_hand(feature: Feature, shape: dict[str, int], config: dict[str, int | bool]) -> float:
    """The table of the class's text, one number at a time."""
    sizes, values = [shape[d] for d in feature.dims], [config[p] for p in feature.parameters]
    programs = math.ceil(shape["M"] / config["BM"])
    pieces = [math.ceil(size / value) for size, value in zip(sizes, values, strict=False)]
    return {
        "size": lambda: math.log2(sizes[0]),
        "value": lambda: math.log2(values[0]),
        "level": lambda: [False, True].index(values[0]),
        "count": lambda: math.log2(pieces[0]),
        "waste": lambda: pieces[0] * values[0] / sizes[0],
        "programs": lambda: math.log2(programs),
        "waves": lambda: math.ceil(programs / 4),
        "tail": lambda: 1 - programs / (4 * math.ceil(programs / 4)),
        "tiles": lambda: math.log2(pieces[0] * pieces[1]),
    }[feature.form]()


@pytest.mark.parametrize("shape", [{"M": 1, "K": 1}, {"M": 100, "K": 64}, {"M": 4097, "K": 33}])
@pytest.mark.parametrize("grid", [("cdiv(M, BM)",), ()])
def test_features_are_what_their_text_says(shape: dict[str, int], grid: tuple[str, ...]) -> None:
    features = features_of(SPACE, ("M", "K"), grid)
    forms = {feature.form for feature in features}
    assert forms == {"size", "value", "level", "count", "waste"} | (
        {"programs", "waves", "tail"} if grid else {"tiles"}
    )
    assert not any("BK" in feature.parameters for feature in features), "it has no choice"
    rows = feature_rows(features, SPACE.bind(shape), grid, shape, CONFIGS)
    assert rows.shape == (len(CONFIGS), len(features))
    for config, row in zip(CONFIGS, rows, strict=True):
        assert row.tolist() == pytest.approx([by_hand(feature, shape, config) for feature in features])


def test_only_legal_candidates_are_offered_and_in_order() -> None:
    found = ranking()
    assert {config["BM"] for config in found.order({"M": 32, "K": 32})} == {16}
    assert not any(config["fast"] for config in found.order({"M": 64, "K": 33}))
    order = list(found.order({"M": 64, "K": 64}))
    assert len(order) == len(CONFIGS) and [config["BM"] for config in order] == [64] * 4 + [16] * 4
    assert [config_key(c) for c in order[:4]] == [config_key(c) for c in CONFIGS if c["BM"] == 64], "ties stay in order"
    assert found.best({"M": 64, "K": 64}) == order[0] == found.best({"K": 64, "M": 64})


def test_one_is_offered_to_shapes_no_larger_than_one_where_it_was_right() -> None:
    right_at = tuple(((128, 32), (64, 64)) if config["BM"] == 64 else ((200, 64),) for config in CONFIGS)
    found = ranking(right_at=right_at)
    chosen = [found.best({"M": m, "K": k}) for m, k in ((128, 32), (64, 64), (128, 64), (200, 64), (201, 64))]
    assert [config and config["BM"] for config in chosen] == [64, 64, 16, 16, None]
    assert ranking(right_at=()).best({"M": 64, "K": 64}) is None, "which an older version grew"
    for wrong in (right_at[1:], (((64,),),) * len(CONFIGS)):
        with pytest.raises(ValueError, match="candidates say where|another number of sizes"):
            ranking(right_at=wrong)


def test_none_is_offered_where_none_is_legal_or_the_grid_cannot_be() -> None:
    never = Space(SPACE.parameters, ("M > 100", "100 // (M - 150) > -99"), SPACE.constants)
    found = ranking(space=never)
    assert found.best({"M": 64, "K": 64}) is None
    assert found.best({"M": 200, "K": 64}) is not None
    assert found.best({"M": 150, "K": 64}) is None, "a constraint that divides by zero"
    assert (
        ranking(grid=("M // (K - 64)",), features=(Feature("programs"),), forest=LEAF).best({"M": 64, "K": 64}) is None
    )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("candidates", [], "0 candidates"),
        ("candidates", [{"BM": 16}], "BK is missing"),
        ("candidates", [{**CONFIGS[0], "BM": 17}], "BM=17 is not a choice"),
        ("candidates", [{**CONFIGS[0], "BM": "x"}], "BM='x' is not a choice"),
        ("candidates", [{**CONFIGS[0], "BM": 16.0}], "BM=16.0 is not a choice"),
        ("candidates", [{**CONFIGS[0], "w": True}], "w=True is not a choice"),
        ("candidates", [CONFIGS[0]] * 257, "257 candidates; 1 to 256"),
        ("features", [], "0 features"),
        ("features", [{"form": "value", "parameters": ["other"]}], "of 'other', which is not known"),
        ("features", [{"form": "size", "dims": ["N"]}], "of 'N', which is not known"),
        ("features", [{"form": "count", "dims": ["M"]}], "1 dims and 1 parameters"),
        ("features", [{"form": "__import__"}], "form"),
        ("space", MIXED.to_json(), "positive whole numbers; those of 'BM' are not"),
        ("features", [{"form": "value", "parameters": ["fast"]}], "positive whole numbers; those of 'fast' are not"),
        ("grid", ["cdiv(M, X)"], "use 'X'"),
        ("grid", ["__import__('os')"], "__import__"),
        ("space", {**SPACE.to_json(), "constraints": ["Q > 1"]}, "use 'Q', which is neither"),
        ("dims", [f"d{n}" for n in range(17)], "17 dims"),
        ("dims", ["M", "K", "w"], "'w' is a dim and also a parameter"),
        ("dims", ["M", "K", "M"], "a dim is named twice in M, K, M"),
        ("space", {**SPACE.to_json(), "constants": {"sm_count": "many"}}, "sm_count is the text 'many'"),
        ("space", {**SPACE.to_json(), "constants": {"sm_count": 2**70}}, "sm_count is the number 11805"),
        ("space", {**SPACE.to_json(), "constants": {"sm_count": 1e300}}, r"sm_count is the number 1e\+300"),
        ("space", {**SPACE.to_json(), "constants": {"sm_count": 0}}, "sm_count is the number 0"),
        ("space", {**SPACE.to_json(), "constants": {"sm_count": True}}, "sm_count is true"),
        ("forest", {**LEAF.to_json(), "feature": [7]}, "8 features; there are 1"),
    ],
)  # fmt: skip
def test_a_ranking_that_cannot_be_used_is_refused(field: str, value: object, why: str) -> None:
    with pytest.raises((SchemaError, SpaceError, ExpressionError), match=why):
        Ranking.from_json({**ranking().to_json(), field: value})


def test_features_of_a_grid_need_one() -> None:
    with pytest.raises(SchemaError, match="features are of the grid"):
        Ranking.from_json({**ranking().to_json(), "grid": [], "features": [{"form": "waves"}]})


@pytest.mark.parametrize("form", ["value", "count", "waste", "tiles"])
@pytest.mark.parametrize("other", ["a", -4, 4.5, 1 << 62])
def test_numbers_of_a_parameter_need_all_of_its_choices_to_be_numbers(form: str, other: object) -> None:
    """Not those of the candidates alone: the feature would be of another kind than the trees were grown on."""
    mixed = {"parameters": [{"name": "BM", "choices": [4, other]}, {"name": "w", "choices": [1, 2]}]}
    dims, parameters = {"value": ([], ["BM"]), "tiles": (["M", "K"], ["BM", "w"])}.get(form, (["M"], ["BM"]))
    changed = {
        "space": mixed,
        "grid": [],
        "features": [{"form": form, "dims": dims, "parameters": parameters}],
        "candidates": [{"BM": 4, "w": 1}],
        "forest": LEAF.to_json(),
    }
    with pytest.raises(SchemaError, match="positive whole numbers; those of 'BM' are not"):
        Ranking.from_json({**ranking().to_json(), **changed})


def test_levels_are_places_whatever_the_choices_are() -> None:
    levels = (Feature("level", (), ("BM",)), Feature("level", (), ("fast",)), Feature("value", (), ("BM",)))
    rows = feature_rows(levels, SPACE.bind({"M": 64, "K": 64}), (), {"M": 64, "K": 64}, CONFIGS)
    assert rows.tolist() == [[c["BM"] == 64, c["fast"], math.log2(c["BM"])] for c in CONFIGS]
