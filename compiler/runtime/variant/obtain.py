"""What is known of a compiled variant and its code: from the disk cache, or from the pipeline."""

from __future__ import annotations

from dataclasses import replace

from ... import knobs
from .cache import Entry, variant_cache
from .metadata import KernelMetadata
from .pipeline import Artifact, build, check_stage
from .variant import Variant

#: Stages worth keeping: what devices load, and the PTX.
PERSISTENT = ("object", "ptx", "cubin")


def obtain(variant: Variant, stop_after: str | None, step: str | None) -> tuple[KernelMetadata, dict[str, Artifact]]:
    """Metadata and stages of a variant, made up to ``stop_after`` unless the cache has it. Raises what
    :func:`.pipeline.build` raises."""
    check_stage(variant, stop_after, step)
    cache = variant_cache()
    # Lines are no part of the key: the same kernel may stand in another place of its file tomorrow.
    kept = stop_after is None and not variant.lined
    if kept and not knobs.always_compile.get():
        entry = cache.get(variant.key)
        if entry is not None:
            return _from_entry(variant, entry)
    work = build(variant, stop_after, step)
    metadata = work.metadata()
    if kept and ("object" in work.artifacts or "cubin" in work.artifacts):
        blobs = {
            name: value if isinstance(value, bytes) else value.encode()
            for name, value in work.artifacts.items()
            if name in PERSISTENT
        }
        cache.put(variant.key, Entry({"metadata": metadata.to_json()}, blobs))
    return metadata, work.artifacts


def _from_entry(variant: Variant, entry: Entry) -> tuple[KernelMetadata, dict[str, Artifact]]:
    stored = entry.header["metadata"]
    metadata = KernelMetadata.from_json(stored if isinstance(stored, dict) else {})
    asked = variant.schedule  # the entry may be of a variant that differs in options without effect
    ready: dict[str, Artifact] = dict(entry.blobs)
    if "ptx" in entry.blobs:
        ready["ptx"] = entry.blobs["ptx"].decode()
    metadata = replace(
        metadata,
        cached=True,
        num_warps=asked.num_warps,
        num_stages=asked.num_stages,
        num_ctas=asked.num_ctas,
        maxnreg=asked.maxnreg,
    )
    return metadata, ready
