"""Ranges that programs push and pop by NVTX, as libcupti tells of them.

The first call of NVTX in a process loads the library that NVTX_INJECTION64_PATH names, which is libcupti while a
profiler runs: what was called before cannot be seen, nor anything afterwards. Ranges of domains (nvtxDomainRangePushEx)
are libraries' own, as those of CCCL around its kernels, and are left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deuteron.compiler import knobs

#: CUpti_CallbackDomain, and the functions of cupti_nvtx_cbid.h that are followed.
DOMAIN_NVTX = 5
PUSH_A, PUSH_W, PUSH_EX, POP = 8, 9, 10, 11
RANGE_CALLS = (PUSH_A, PUSH_W, PUSH_EX, POP)
#: What a range is called whose message is not a text.
UNNAMED = "<range>"

_PARAMETERS_OFFSET = 8  # in CUpti_NvtxData
# In nvtxEventAttributes_t of version 2 and 3, and nvtxMessageType_t.
_MESSAGE_TYPE_OFFSET, _MESSAGE_OFFSET = 32, 40
_ASCII, _UNICODE = 1, 2

FOLLOWER = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p)


def follower(push: Callable[[str], None], pop: Callable[[], None]) -> Any:  # ctypes has no name for its type
    """What CUPTI's callback calls with the number and the data of a call; it runs in the thread that called NVTX, and
    takes Python's lock there."""

    def called(call: int, data: int) -> None:
        if call == POP:
            pop()
        else:
            push(_message(call, _pointer(data + _PARAMETERS_OFFSET)) or UNNAMED)

    return FOLLOWER(called)


def _message(call: int, parameters: int) -> str | None:
    kind, text = {PUSH_A: _ASCII, PUSH_W: _UNICODE}.get(call, 0), _pointer(parameters)
    if call == PUSH_EX and text:
        kind = ctypes.c_int32.from_address(text + _MESSAGE_TYPE_OFFSET).value
        text = _pointer(text + _MESSAGE_OFFSET)
    if not text:
        return None
    if kind == _ASCII:
        return ctypes.string_at(text).decode(errors="replace")
    return ctypes.wstring_at(text) if kind == _UNICODE else None


def _pointer(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0 if address else 0


@contextmanager
def injected(library: str) -> Iterator[None]:
    """Have NVTX load ``library`` if it is called for the first time meanwhile, unless the user named another."""
    before = knobs.nvtx_injection.variables()
    if not before:
        knobs.nvtx_injection.put_variables({knobs.nvtx_injection.name: library})
    try:
        yield
    finally:
        knobs.nvtx_injection.put_variables(before)
