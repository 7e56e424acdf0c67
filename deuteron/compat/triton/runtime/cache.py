"""Files that programs keep beside the compile cache, and what compiled code depends on.

deuteron's own variants are in a cache of their own form (``deuteron cache``); nothing is read or written here unless a
program does so.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from deuteron.compat.triton import knobs
from deuteron.compiler import Target
from deuteron.compiler import knobs as settings
from deuteron.compiler.errors import KnobError
from deuteron.compiler.folders import make_folder
from deuteron.compiler.runtime.variant.toolchain import toolchain
from deuteron.compiler.whole_file import write_whole


def triton_key() -> str:
    """What compiled code depends on besides the kernel, as a text."""
    return ", ".join(f"{name} {version}" for name, version in toolchain(Target.parse("cpu")).items())


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The variables of the environment that are set and decide what kernels are compiled to."""
    deciding = (
        settings.debug,
        settings.default_fp_fusion,
        settings.f32_default,
        settings.override_arch,
        settings.ptxas_path,
        settings.ptxas_options,
        settings.disable_ptxas_opt,
    )
    return {name: text for knob in deciding for name, text in knob.variables().items()}


def _base32(key: str) -> str:
    """A digest, in hexadecimal digits, as a name of files: base 32 without padding."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def _json(data: bytes) -> object:
    """What a list of files says; None where it is garbled."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _check_name(name: str) -> None:
    """Raise KnobError for a name from another machine that is a path to somewhere else."""
    if not name or name in (".", "..") or "/" in name or "\0" in name or os.sep in name:
        raise KnobError(
            f"the remote cache lists the file {name!r}, which would be outside of the key's folder",
            hint="a group's files are named without folders; see who else writes to knobs.cache.remote_manager_class",
        )


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
    """Files in a folder of their own, ``knobs.cache.dir/KEY``; with ``dump`` in ``dump_dir/KEY``, with ``override`` in
    ``override_dir/KEY``, which is for a program's own use: deuteron compiles kernels from their source only. Files
    appear whole (:mod:`deuteron.compiler.whole_file`)."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        folder = knobs.cache.dump_dir if dump else knobs.cache.override_dir if override else knobs.cache.dir
        self.cache_dir = str(Path(folder) / key)
        make_folder(Path(self.cache_dir))

    def has_file(self, filename: str) -> bool:
        """Whether the file is kept."""
        return (Path(self.cache_dir) / filename).exists()

    def get_file(self, filename: str) -> str | None:
        """The path of a file; None where there is none."""
        return str(Path(self.cache_dir) / filename) if self.has_file(filename) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file and return its path; text is written as UTF-8."""
        path = Path(self.cache_dir) / filename
        write_whole(path, data if isinstance(data, bytes) else str(data))
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The files of a group by name; None where there is no such group, and where one of its files is gone."""
        listed = self.get_file(f"__grp__{filename}")
        if listed is None:
            return None
        found = _json(Path(listed).read_bytes())
        children = found.get("child_paths") if isinstance(found, dict) else None
        if not isinstance(children, dict) or not all(isinstance(path, str) for path in children.values()):
            return None  # no such list, so no such group
        return children if all(Path(path).exists() for path in children.values()) else None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep a group of files, names and paths, and return the path of its list."""
        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)


class RemoteCacheBackend(ABC):
    """Bytes under names that belong to one key, kept where other machines find them."""

    @abstractmethod
    def __init__(self, key: str) -> None: ...

    @abstractmethod
    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """Those of the files that are kept, by name."""

    @abstractmethod
    def put(self, filename: str, data: bytes) -> None:
        """Keep a file."""


class _RedisClient(Protocol):
    def mget(self, names: list[str]) -> list[bytes | None]: ...

    def set(self, name: str, value: bytes) -> object: ...


class RedisRemoteCacheBackend(RemoteCacheBackend):
    """Files on the Redis server that ``knobs.redis`` says; raises ImportError without the package redis."""

    def __init__(self, key: str) -> None:
        self._key, self._format = key, knobs.redis.key_format
        client = importlib.import_module("redis").Redis
        self._server: _RedisClient = client(host=knobs.redis.host, port=knobs.redis.port)

    def _name(self, filename: str) -> str:
        return str(self._format).format(key=self._key, filename=filename)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """Those of the files that are kept, by name."""
        found = self._server.mget([self._name(filename) for filename in filenames])
        return {filename: data for filename, data in zip(filenames, found, strict=True) if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        """Keep a file."""
        self._server.set(self._name(filename), data)


class RemoteCacheManager(CacheManager):
    """Files of a :class:`RemoteCacheBackend`, ``knobs.cache.remote_manager_class``, with copies in a FileCacheManager,
    so that they have paths. What is dumped or overridden stays on this machine.

    Raises:
        KnobError: no backend is chosen.
    """

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._files = FileCacheManager(key, override, dump)
        self._remote: RemoteCacheBackend | None = None
        if not (override or dump):
            backend = knobs.cache.remote_manager_class
            if backend is None:
                raise KnobError("no remote cache is chosen", hint="set knobs.cache.remote_manager_class")
            self._remote = backend(key)

    def get_file(self, filename: str) -> str | None:
        """The path of a copy made now; None where there is no such file."""
        if self._remote is None:
            return self._files.get_file(filename)
        found = self._remote.get([filename])
        return self._files.put(found[filename], filename) if filename in found else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Keep a file and return the path of a copy; text is written as UTF-8."""
        if self._remote is not None:
            self._remote.put(filename, data if isinstance(data, bytes) else str(data).encode())
        return self._files.put(data, filename, binary)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Copies of the files of a group by name; None where there is no such group, and where one of them is gone.

        Raises:
            KnobError: the list has a name that is no file of the folder.
        """
        if self._remote is None:
            return self._files.get_group(filename)
        listed = f"__grp__{filename}"
        found = self._remote.get([listed])
        if listed not in found:
            return None
        names = _json(found[listed])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
        for name in names:
            _check_name(name)
        files = self._remote.get(names)
        if not all(name in files for name in names):
            return None
        return {name: self._files.put(files[name], name) for name in names}

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Keep the names of a group's files, which are put by themselves, and return the path of their list."""
        if self._remote is None:
            return self._files.put_group(filename, group)
        return self.put(json.dumps(sorted(group)), f"__grp__{filename}", binary=False)


def get_cache_manager(key: str) -> CacheManager:
    """The files kept under a key."""
    return _manager()(key)


def get_dump_manager(key: str) -> CacheManager:
    """The files kept under a key where kernels are dumped."""
    return _manager()(key, dump=True)


def get_override_manager(key: str) -> CacheManager:
    """The files kept under a key where a program looks for other versions of them."""
    return _manager()(key, override=True)


def _manager() -> type[CacheManager]:
    chosen: type[CacheManager] | None = knobs.cache.manager_class
    return FileCacheManager if chosen is None else chosen
