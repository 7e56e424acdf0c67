"""Compiling text and loading objects."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from deuteron.compiler.errors import TargetError
from deuteron.compiler.llvm import driver

INCREMENT = """
@answer = constant i32 42
define i32 @increment(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
"""


def test_objects_survive_a_round_trip_through_bytes():
    code = driver.compile_text(INCREMENT, driver.host_machine(), "object")
    loaded = driver.LoadedObject(bytes(bytearray(code)))
    increment = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loaded.address("increment"))
    assert increment(41) == 42
    assert ctypes.c_int.from_address(loaded.data_address("answer")).value == 42


def test_missing_symbols_are_errors():
    loaded = driver.LoadedObject(driver.compile_text(INCREMENT, driver.host_machine(), "object"))
    with pytest.raises(TargetError, match="no function 'decrement'"):
        loaded.address("decrement")
    with pytest.raises(TargetError, match="no variable 'question'"):
        loaded.data_address("question")


def test_assembly_is_text_of_the_function():
    text = driver.compile_text(INCREMENT, driver.host_machine(), "assembly").decode()
    assert "increment:" in text


@pytest.mark.parametrize("bad", ["define i32 @f( {", "define i32 @f() {\n  ret i64 0\n}\n"])
def test_rejected_text_is_shown_with_line_numbers(bad):
    with pytest.raises(driver.InternalCompilerError) as error:
        driver.compile_text(bad, driver.host_machine(), "object")
    assert "    1 define i32 @f(" in error.value.message


def test_threads_may_compile_at_once():
    def one(number: int) -> int:
        text = f"define i32 @f() {{\n  ret i32 {number}\n}}\n"
        loaded = driver.LoadedObject(driver.compile_text(text, driver.host_machine(), "object"))
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(loaded.address("f"))())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(16))) == list(range(16))


def test_llvmlite_is_imported_on_first_use_only():
    code = "import sys, deuteron.compiler.llvm.driver; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
