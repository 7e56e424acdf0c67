"""Numbers of an example as expressions over its dims: 4096 is ``M * N`` where M is 64 and N is 64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from deuteron.compiler.printable import shown

from ..codec import Scalar
from ..errors import ExpressionError, WorkloadError
from ..expression import Expression
from ..space import Configuration

# Sizes that are a part or a multiple of a dim: groups of a quantised weight, heads, packed values.
_FACTORS = (2, 4, 8, 16, 32, 64, 128, 256)


def express(value: int, dims: Mapping[str, int], what: str) -> str:
    """``value`` as a dim, a product of dims, or a part or multiple of one; else as the number it is.

    Raises:
        WorkloadError: several dims, or products, have this size in the example.
    """
    if value == 1:
        return "1"
    for level in (_single(dims), _products(dims, 2), _products(dims, 3), _scaled(dims)):
        found = [text for text, size in level if size == value]
        if len(found) > 1:
            raise WorkloadError(
                f"{what} is {value}, which is both {found[0]} and {found[1]} in this example",
                hint="give an example in which no two dims have the same size, nor products of them",
            )
        if found:
            return found[0]
    return str(value)


def express_constexpr(value: Scalar, dims: Mapping[str, int]) -> Scalar:
    """A constexpr that equals a dim or the power of two above it follows that dim; any other keeps its value."""
    if isinstance(value, str):
        return repr(value)  # text in a workload's constexprs is an expression
    if isinstance(value, bool) or not isinstance(value, int) or value <= 1:
        return value
    for name, size in dims.items():
        if value == size:
            return name
    powers = [name for name, size in dims.items() if value == 1 << (size - 1).bit_length()]
    return f"next_power_of_2({powers[0]})" if len(powers) == 1 else value


def express_grid(
    grid: Callable[[dict[str, Scalar]], Sequence[int]], dims: Mapping[str, int], configs: Sequence[Configuration]
) -> tuple[str, ...]:
    """The expressions that give what the function gives for every one of ``configs``.

    Raises:
        WorkloadError: none of the usual forms does.
    """
    launched = [_launched(grid(dict(config))) for config in configs]
    if len({len(sizes) for sizes in launched}) > 1:
        raise WorkloadError(
            f"the grid has {len(launched[0])} axes for {dict(configs[0])}, and another number for other configurations"
        )
    axes = []
    for axis, values in enumerate(zip(*launched, strict=True)):
        cases = list(zip(values, configs, strict=True))
        fitting = (text for text in _grid_forms(dims, configs[0]) if _gives(text, dims, cases))
        text = next(fitting, None)
        if text is None:
            forms = f"cdiv({next(iter(dims))}, BLOCK)"
            raise WorkloadError(
                f"axis {axis} of the grid is {values[0]} for {dict(configs[0])}, and no usual expression gives that",
                hint=f'give the grid as expressions: grid=("{forms}",)',
            )
        axes.append(text)
    return tuple(axes)


def _launched(grid: object) -> tuple[int, ...]:
    """What a function of the grid gave. Raises WorkloadError for what is no grid, such as its size alone."""
    if isinstance(grid, str) or not isinstance(grid, Iterable):
        raise WorkloadError(f"the function of the grid gives {shown(grid)}", hint="a tuple: (cdiv(N, BLOCK),)")
    return tuple(grid)


def _single(dims: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    yield from dims.items()


def _products(dims: Mapping[str, int], count: int) -> Iterator[tuple[str, int]]:
    for names in itertools.combinations(dims, count):
        size = 1
        for name in names:
            size *= dims[name]
        yield " * ".join(names), size


def _scaled(dims: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, size in dims.items():
        for factor in _FACTORS:
            if size % factor == 0 and size > factor:
                yield f"{name} // {factor}", size // factor
            yield f"{name} * {factor}", size * factor


def _grid_forms(dims: Mapping[str, int], config: Configuration) -> Iterator[str]:
    """Grids that kernels have, the likely ones first."""
    sizes = [name for name, value in config.items() if isinstance(value, int) and not isinstance(value, bool)]
    blocks = [f"cdiv({dim}, {name})" for dim in dims for name in sizes]
    yield from dims
    yield from blocks
    for a, b in itertools.permutations(blocks, 2):
        yield f"{a} * {b}"
    for dim, block in itertools.product(dims, blocks):
        yield f"{dim} * {block}"
    yield from (f"{a} * {b}" for a, b in itertools.combinations(dims, 2))
    yield from (f"cdiv({a} * {b}, {name})" for a, b in itertools.combinations(dims, 2) for name in sizes)
    yield from (f"{dim} // {name}" for dim in dims for name in sizes)
    yield from sizes
    yield from (str(number) for number in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))


def _gives(text: str, dims: Mapping[str, int], cases: Sequence[tuple[int, Configuration]]) -> bool:
    expression = Expression.parse(text)
    try:
        return all(expression.evaluate({**dims, **config}) == value for value, config in cases)
    except ExpressionError:
        return False
