"""Common subexpressions: of two equal pure operations the second is replaced by the first."""

from __future__ import annotations

from ...ir.core import Block, Effect, FieldKind, Function, Op, Value

Key = tuple[object, ...]


def cse(function: Function) -> Function:
    """Replace pure operations that repeat one which dominates them."""
    _block(function.body, {}, {})
    return function


def _block(block: Block, known: dict[Key, Op], replaced: dict[Value, Value]) -> None:
    added: list[Key] = []
    kept: list[Op] = []
    for op in block.ops:
        if replaced and not replaced.keys().isdisjoint(op.operands):
            op.replace_operands(replaced)
        for nested in op.blocks:
            # Combining regions stay closed: targets inline them wherever they need the combination.
            _block(nested, {} if op.effect is Effect.PURE else known, replaced)
        if op.effect is not Effect.PURE:
            kept.append(op)
            continue
        key = _key(op, {})
        first = known.get(key)
        if first is None:
            known[key] = op
            added.append(key)
            kept.append(op)
        else:
            replaced.update(zip(op.results, first.results, strict=True))
    block.ops = kept
    for key in added:
        del known[key]


def _key(op: Op, local: dict[Value, int]) -> Key:
    """Equal for operations that compute the same; ``local`` numbers the values of a combining region."""
    parts: list[object] = [type(op)]
    for name, kind in op.kinds.items():
        held = getattr(op, name)
        if kind is FieldKind.ATTRIBUTE:
            # 0.0 == -0.0 == False as dictionary keys, but not as constants.
            parts.append((type(held), repr(held)) if isinstance(held, float | bool) else held)
        elif kind is FieldKind.VARIADIC:
            parts.append(tuple(local.get(v, v) for v in held))
        elif kind is FieldKind.BLOCK:
            parts.append(_region_key(held, local))
        else:
            parts.append(local.get(held, held))
    return tuple(parts)


def _region_key(block: Block, local: dict[Value, int]) -> Key:
    for arg in block.args:
        local[arg] = len(local)
    parts = []
    for op in block.ops:
        parts.append(_key(op, local))
        for result in op.results:
            local[result] = len(local)
    return (tuple(a.type for a in block.args), *parts)
