"""Files that programs keep beside the compile cache, and what compiled code depends on.

deuteron's own variants are in a cache of their own form (``deuteron cache``); nothing is read or written here unless a
program does so.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from deuteron.compat.triton import knobs
from deuteron.compiler import Target
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.variant.toolchain import toolchain


def triton_key() -> str:
    """What compiled code depends on besides the kernel, as a text."""
    return ", ".join(f"{name} {version}" for name, version in toolchain(Target.parse("cpu")).items())


class CacheManager(ABC):
    """Files under one key."""

    @abstractmethod
    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    @abstractmethod
    def get_file(self, filename: str) -> str | None:
        """The path of a file; None where there is none."""

    @abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file and return its path."""

    @abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """The files of a group by name; None where there is no such group, and where one of its files is gone."""

    @abstractmethod
    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep a group of files, names and paths, and return the path of its list."""


class FileCacheManager(CacheManager):
    """Files in a folder of their own, ``$TRITON_CACHE_DIR/deuteron/KEY``; with ``dump`` under DEUTERON_DUMP_DIR. Files
    appear whole: written under another name, then renamed.

    Raises:
        DeuteronError: ``override`` is asked for; deuteron compiles kernels from their source only.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        if override:
            raise DeuteronError("deuteron compiles kernels from their source only", hint="leave override out")
        self.key = key
        self.cache_dir = str(Path(knobs.cache.dump_dir if dump else knobs.cache.dir) / key)
        Path(self.cache_dir).mkdir(parents=True, exist_ok=True)

    def has_file(self, filename: str) -> bool:
        """Whether the file is kept."""
        return (Path(self.cache_dir) / filename).exists()

    def get_file(self, filename: str) -> str | None:
        """The path of a file; None where there is none."""
        return str(Path(self.cache_dir) / filename) if self.has_file(filename) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file and return its path; text is written as UTF-8."""
        path = Path(self.cache_dir) / filename
        with tempfile.NamedTemporaryFile(dir=self.cache_dir, prefix="tmp-", delete=False) as file:
            file.write(data if isinstance(data, bytes) else str(data).encode())
        Path(file.name).replace(path)
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The files of a group by name; None where there is no such group, and where one of its files is gone."""
        listed = self.get_file(f"__grp__{filename}")
        if listed is None:
            return None
        children: dict[str, str] = json.loads(Path(listed).read_text()).get("child_paths", {})
        return children if all(Path(path).exists() for path in children.values()) else None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep a group of files, names and paths, and return the path of its list."""
        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)


def get_cache_manager(key: str) -> CacheManager:
    """The files kept under a key."""
    return FileCacheManager(key)


def get_dump_manager(key: str) -> CacheManager:
    """The files kept under a key where kernels are dumped."""
    return FileCacheManager(key, dump=True)
