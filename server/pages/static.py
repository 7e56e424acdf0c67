"""Style sheet, scripts and Plotly, cacheable for ever under addresses that change with the content."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from ..problems import HttpProblem

router = APIRouter(include_in_schema=False)

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
}
_A_DAY = {"Cache-Control": "public, max-age=86400", "X-Content-Type-Options": "nosniff"}


@router.get("/static/plotly.min.js")
def plotly_script() -> Response:
    """The JavaScript that the Python package brings: no content delivery network is asked."""
    path = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
    return FileResponse(path, media_type="text/javascript", headers=_A_DAY)


@router.get("/static/{version}/{name}")
def static_file(version: str, name: str) -> Response:
    folder = files("deuteron.server").joinpath("static")
    names = {item.name for item in folder.iterdir()}
    if name not in names:
        raise HttpProblem(404, "not-found", f"there is no static file {name!r}")
    content = folder.joinpath(name).read_bytes()
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=_FOREVER)
