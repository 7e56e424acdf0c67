"""Files as answers: whole, in part, or not at all where the client has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import FileResponse

from .problems import HttpProblem

_NO_WEIGHT = re.compile(r"0(\.0{0,3})?")


def send_file(
    request: Request, path: Path, *, media_type: str, headers: Mapping[str, str], filename: str | None = None
) -> Response:
    """A file, or the part of it that `Range` asks for. ``headers`` has its ``ETag``.

    Raises:
        HttpProblem: 416, the part starts behind the end of the file.
    """
    facts = path.stat()
    # With the If-Range of another file there is no part: this one is sent whole.
    if request.headers.get("if-range") in (None, headers["ETag"], formatdate(facts.st_mtime, usegmt=True)):
        _check_range(request.headers.get("range"), facts.st_size)
    return FileResponse(path, media_type=media_type, headers=headers, filename=filename)


def sent_before(request: Request, headers: Mapping[str, str], *etags: str) -> Response | None:
    """The answer to who has the file already; None where it is to be sent. ``headers`` has its ``ETag``; ``etags`` are
    others that stand for the same.

    Raises:
        HttpProblem: 412, `If-Match` names none of them: the client has parts of another file.
    """
    ours = {headers["ETag"], *etags}
    wanted = {tag.strip() for line in request.headers.getlist("if-match") for tag in line.split(",")}
    if wanted and not wanted & {*ours, "*"}:
        raise HttpProblem(
            412,
            "precondition-failed",
            f"If-Match does not name the file that is there, {headers['ETag']}",
            hint="the file changed: fetch all of it",
        )
    return Response(status_code=304, headers=headers) if has_one_of(request, *ours) else None


def has_one_of(request: Request, *etags: str) -> bool:
    """Whether `If-None-Match`, in one line or several, names one of these, weakly compared as GET asks for."""
    named = ",".join(request.headers.getlist("if-none-match")).split(",")
    known = {tag.strip().removeprefix("W/") for tag in named}
    return bool(known & {*etags, "*"})


def accepts_gzip(request: Request) -> bool:
    """Whether the client asks for the whole file and takes it compressed. Parts are those of the plain file."""
    offers = ",".join(request.headers.getlist("accept-encoding")).lower().split(",")
    return "range" not in request.headers and any(map(_is_gzip, offers))


def _is_gzip(offer: str) -> bool:
    coding, *parameters = (part.strip() for part in offer.split(";"))
    weight = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
    return coding == "gzip" and not _NO_WEIGHT.fullmatch(weight)


def _check_range(value: str | None, size: int) -> None:
    if value is None:
        return
    first = value.strip().removeprefix("bytes=").partition("-")[0] or "0"  # a range from the end begins somewhere
    if int(first) >= size:
        raise HttpProblem(
            416,
            "range-not-satisfiable",
            f"the file has {size} bytes; {value} starts behind its end",
            hint="the file changed: send If-Range with the ETag of your part",
            headers={"Content-Range": f"bytes */{size}"},
        )
