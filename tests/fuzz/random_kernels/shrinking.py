"""A kernel that fails, with as few statements as fail the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .statements import Branch, Statement


def numbered(block: Sequence[Statement]) -> Iterator[Statement]:
    """All statements as they are written; the place of one among them is its number."""
    for statement in block:
        yield statement
        for inner in statement.blocks:
            yield from numbered(inner)


def without(body: Sequence[Statement], left_out: set[int]) -> list[Statement]:
    """A body without the statements of some numbers and without those that cannot stand without them."""
    numbers = {id(statement): number for number, statement in enumerate(numbered(body))}
    dropped = {name for name in numbers if numbers[name] in left_out}
    produced = {variable.name for statement in numbered(body) for variable in statement.makes}

    def kept(block: Sequence[Statement], known: set[str]) -> list[Statement]:
        made = []
        for statement in block:
            uses = {variable.name for variable in statement.uses}
            if id(statement) in dropped or uses & produced - known:
                continue
            if statement.blocks:
                inner = [set(known) for _ in statement.blocks]
                blocks = [kept(part, names) for part, names in zip(statement.blocks, inner, strict=True)]
                if isinstance(statement, Branch):
                    known |= inner[0] & inner[1]
                statement = statement.with_blocks(*blocks)
            known |= {variable.name for variable in statement.makes}
            made.append(statement)
        return made

    return kept(body, set())


def shrink(body: Sequence[Statement], fails: Callable[[tuple[int, ...]], bool], attempts: int) -> tuple[int, ...]:
    """The numbers of statements that can be left out, the last ones first; ``fails``: whether a kernel without some
    still fails; ``attempts``: how often it is asked."""
    statements = list(numbered(body))
    left_out: tuple[int, ...] = ()
    for number in reversed(range(len(statements))):
        statement = statements[number]
        if not statement.removable or not _stands(body, number, left_out):
            continue
        if attempts <= 0:
            break
        attempts -= 1
        if fails((*left_out, number)):
            left_out = (*left_out, number)
    return left_out


def _stands(body: Sequence[Statement], number: int, left_out: tuple[int, ...]) -> bool:
    """Whether leaving out a statement more makes a difference."""
    before, after = (sum(1 for _ in numbered(without(body, set(out)))) for out in (left_out, (*left_out, number)))
    return after < before
