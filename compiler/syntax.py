"""Syntax trees of Python's texts, in several threads.

Python counts the levels of a tree that it hands out in one place for all threads, and lets another thread begin in
between (seen in 3.11): both raise SystemError then, of texts that are right. So one thread parses at a time; where code
that is not ours parses meanwhile, the text is parsed again.
"""

from __future__ import annotations

import ast
import os
import threading
from typing import cast

#: Times that a text is parsed, at most.
TRIES = 5

# Of the same thread too: what the garbage collector ends in between may parse.
_one_at_a_time = threading.RLock()


def module_tree(text: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """The tree of a module. Raises what ``ast.parse`` does, such as SyntaxError and ValueError."""
    return cast(ast.Module, _parsed(text, filename, "exec"))


def expression_tree(text: str) -> ast.Expression:
    """The tree of one expression. Raises what ``ast.parse`` does."""
    return cast(ast.Expression, _parsed(text, "<unknown>", "eval"))


def _parsed(text: str | bytes, filename: str, mode: str) -> ast.AST:
    for _ in range(TRIES - 1):
        try:
            with _one_at_a_time:
                return ast.parse(text, filename, mode)
        except SystemError:
            continue
    with _one_at_a_time:
        return ast.parse(text, filename, mode)


def _after_fork() -> None:
    """A thread that held the lock is not in the child."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
