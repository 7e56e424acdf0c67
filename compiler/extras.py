"""Optional packages: which extra of ``pip install 'deuteron[EXTRA]'`` brings each, and what to say where one is
missing.

Code that needs one calls :func:`require_extras` or :func:`require_packages` first, without importing anything, and then
imports it inside the function. ``server`` and ``migrations`` are there for their extra alone: they ask where they are
entered, and import freely below. pyproject.toml says which distributions an extra installs; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from .errors import MissingExtra

#: Import names of what each extra brings and deuteron's code uses by name.
EXTRAS: Mapping[str, Sequence[str]] = {
    "server": ("alembic", "dask", "distributed", "fastapi", "plotly", "sqlalchemy", "uvicorn"),
    "keys": ("cryptography",),
    "viewer": ("hatchet", "matplotlib", "msgpack", "pandas"),
    "postgres": ("psycopg",),
    "optuna": ("optuna",),
    "learn": ("lightgbm",),
}


def require_extras(*extras: str, by: str) -> None:
    """Check that every package of these extras is installed.

    ``by`` names what needs them, as a user knows it: "deuteron serve".

    Raises:
        MissingExtra: one is not; the hint is the command that installs the extras which lack something.
    """
    require_packages(*(package for extra in extras for package in EXTRAS[extra]), by=by)


def require_packages(*packages: str, by: str) -> None:
    """As :func:`require_extras` for single packages of :data:`EXTRAS`, by import name."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        extras = [extra for extra, names in EXTRAS.items() if not set(names).isdisjoint(missing)]
        raise MissingExtra(by, missing, extras)


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    spec = find_spec(package)
    # A folder without __init__.py is found too, and a data folder of that name in the working directory is no package.
    return spec is not None and spec.origin is not None
