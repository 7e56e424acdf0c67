"""Syntax trees are made in many threads at once."""

from __future__ import annotations

import ast
import os
import threading
from collections import Counter

import pytest

from deuteron.compiler import syntax
from deuteron.compiler.syntax import expression_tree, module_tree
from deuteron.tuner import builtin_workload


class Ended:
    """The garbage collector runs Python when it ends one, and another thread may go on then."""

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


def test_threads_parse_at_the_same_time() -> None:
    text = builtin_workload("softmax").kernel.source
    outcomes: Counter[str] = Counter()

    def parse() -> None:
        for _ in range(500):
            for _ in range(20):
                Ended()
            try:
                outcomes[ast.dump(module_tree(text))] += 1
            except SystemError as error:
                outcomes[str(error)] += 1

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {ast.dump(ast.parse(text)): 2000}


def test_a_text_is_parsed_again_where_other_code_was_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, times = ast.parse, Counter[str]()

    def often_between(text: str, *rest: str) -> ast.AST:
        times[text] += 1
        if times[text] < syntax.TRIES or text == "c":
            raise SystemError("AST constructor recursion depth mismatch")
        return parse(text, *rest)

    monkeypatch.setattr(ast, "parse", often_between)
    assert isinstance(module_tree("a").body[0], ast.Expr)
    assert isinstance(expression_tree("b").body, ast.Name)
    with pytest.raises(SystemError):
        module_tree("c")
    assert set(times.values()) == {syntax.TRIES}


def test_a_process_that_is_forked_meanwhile_can_parse() -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with syntax._one_at_a_time:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        parsing = threading.Thread(target=module_tree, args=("x = 1",), daemon=True)
        parsing.start()
        parsing.join(20)
        os._exit(parsing.is_alive())
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
