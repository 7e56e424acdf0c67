"""/v1/kernels: kernel sources, stored under the hash of their content."""

from __future__ import annotations

import json

from fastapi import Response, status

from deuteron.compiler import KernelSource

from ..auth import Reader, Submitter
from ..context import ContextDep
from ..store import StoredKernel
from ..submission import kernel_to_store
from .routes import make_router
from .schemas.jobs import KernelAnswer, KernelBody

router = make_router("kernels", "/v1/kernels")


@router.post("", status_code=status.HTTP_201_CREATED, summary="Store a kernel")
def post_kernel(body: KernelBody, context: ContextDep, _submitter: Submitter, response: Response) -> KernelAnswer:
    """The text is parsed, never executed. A kernel that does not parse is answered with the place, the
    source line, a caret and a hint. Posting the same kernel again answers with the stored one, and makes it what
    its name stands for, whatever was stored under that name since."""
    source = KernelSource.from_text(body.text, body.name, filename=body.filename)
    to_store = kernel_to_store(source, body.text, body.filename)
    with context.store.write() as tx:
        kernel = tx.kernels.add(to_store)
    response.headers["Location"] = f"/v1/kernels/{kernel.hash}"
    return kernel_answer(kernel)


@router.get("/{hash}", summary="Read a kernel")
def get_kernel(hash: str, context: ContextDep, _reader: Reader, response: Response) -> KernelAnswer:
    with context.store.read() as tx:
        kernel = tx.kernels.get(hash)
    response.headers["ETag"] = f'"{kernel.hash}"'
    return kernel_answer(kernel)


def kernel_answer(kernel: StoredKernel) -> KernelAnswer:
    return KernelAnswer(
        hash=kernel.hash,
        name=kernel.name,
        filename=kernel.filename,
        text=kernel.text,
        arguments=json.loads(kernel.arguments),
        created_at=kernel.created_at,
    )
