"""Subspaces against enumeration."""

from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.layout import LayoutError, LinearMap
from deuteron.compiler.layout.f2 import Echelon, combine, independent, intersection, span_of

quick = settings(deadline=None, max_examples=100)
vectors = st.lists(st.integers(0, 63), max_size=6)


@quick
@given(vectors, vectors)
def test_intersection_and_dimension(left, right):
    common = intersection(left, right)
    assert set(span_of(common)) == set(span_of(left)) & set(span_of(right))
    assert len(independent(common)) == len(common)
    assert 1 << len(Echelon(left)) == len(set(span_of(left)))
    added = independent(right, left)
    assert len(set(span_of([*left, *added]))) == 1 << (len(Echelon(left)) + len(added))


@quick
@given(vectors, st.integers(0, 63))
def test_solve_finds_a_combination_exactly_when_there_is_one(columns, target):
    solution = Echelon(columns).solve(target)
    if solution is None:
        assert target not in span_of(columns)
    else:
        assert combine(columns, solution) == target


@quick
@given(st.lists(st.integers(0, 15), min_size=4, max_size=7))
def test_pseudo_inverse(columns):
    matrix = LinearMap(tuple(columns), 4)
    onto = len(set(span_of(columns))) == 16
    assert matrix.is_surjective == onto
    assert matrix.is_injective == (len(set(span_of(columns))) == 1 << len(columns))
    try:
        inverse = matrix.pseudo_inverse()
    except LayoutError:
        assert not onto
        return
    assert [matrix(inverse(value)) for value in range(16)] == list(range(16))
