"""What is known of a compiled variant and its code: from the disk cache, or from the pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from ... import knobs
from ...launch_recipe import LaunchRecipe
from .cache import Entry, variant_cache
from .metadata import KernelMetadata
from .pipeline import Artifact, Build, build, check_stage
from .variant import Variant

#: Stages worth keeping: what devices load, and the PTX.
PERSISTENT = ("object", "ptx", "cubin")


def obtain(variant: Variant, stop_after: str | None, step: str | None) -> tuple[KernelMetadata, dict[str, Artifact]]:
    """Metadata and stages of a variant, made up to ``stop_after`` unless the cache has it. Raises what
    :func:`.pipeline.build` raises."""
    check_stage(variant, stop_after, step)
    cached = _cached(variant) if stop_after is None else None
    if cached is not None:
        return cached
    work = build(variant, stop_after, step)
    if stop_after is None:
        _keep(work)
    return work.metadata(), work.artifacts


def obtain_if_fitting(
    variant: Variant, known: Mapping[str, object]
) -> tuple[LaunchRecipe, tuple[KernelMetadata, dict[str, Artifact]] | None]:
    """How a variant is launched, and what :func:`obtain` gives of it, unless guards of it do not hold of what is
    ``known``, numbers and addresses of a launch by parameter name: then it is not assembled, and the cache remembers
    the guards."""
    found = _cached(variant)
    recipe = found[0].recipe if found is not None else _remembered(variant)
    if recipe is None or (found is None and not recipe.broken_by(known)):
        work = build(variant, known=known)
        (_remember if work.broken else _keep)(work)
        metadata = work.metadata()
        recipe, found = metadata.recipe, None if work.broken else (metadata, work.artifacts)
    return recipe, found


def obtain_fitting(
    variant: Variant, known: Mapping[str, object]
) -> tuple[Variant, KernelMetadata, dict[str, Artifact]]:
    """The variant without the guards that do not hold of what is ``known``, and what :func:`obtain` gives of it; on the
    way there nothing is assembled that relies on such guards."""
    while True:
        recipe, found = obtain_if_fitting(variant, known)
        broken = recipe.broken_by(known)
        if found is not None and not broken:
            return variant, *found
        variant = variant.without(broken)


def _remembered(variant: Variant) -> LaunchRecipe | None:
    """How a variant is launched that was looked at and not assembled; None where the cache does not know it."""
    if not _may_be_cached(variant):
        return None
    entry = variant_cache().get(_recipe_key(variant))
    recipe = None if entry is None else entry.header.get("recipe")
    return LaunchRecipe.from_json(recipe) if isinstance(recipe, dict) else None


def _remember(work: Build) -> None:
    if _is_kept(work.variant):
        variant_cache().put(_recipe_key(work.variant), Entry({"recipe": work.metadata().recipe.to_json()}, {}))


def _recipe_key(variant: Variant) -> str:
    return hashlib.sha256(f"recipe of {variant.key}".encode()).hexdigest()


def _is_kept(variant: Variant) -> bool:
    """Lines are no part of the key: the same kernel may stand in another place of its file tomorrow."""
    return not variant.lined


def _may_be_cached(variant: Variant) -> bool:
    return _is_kept(variant) and not knobs.always_compile.get()


def _cached(variant: Variant) -> tuple[KernelMetadata, dict[str, Artifact]] | None:
    if not _may_be_cached(variant):
        return None
    entry = variant_cache().get(variant.key)
    return None if entry is None else _from_entry(variant, entry)


def _keep(work: Build) -> None:
    if not _is_kept(work.variant) or not ("object" in work.artifacts or "cubin" in work.artifacts):
        return
    blobs = {
        name: value if isinstance(value, bytes) else value.encode()
        for name, value in work.artifacts.items()
        if name in PERSISTENT
    }
    variant_cache().put(work.variant.key, Entry({"metadata": work.metadata().to_json()}, blobs))


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
