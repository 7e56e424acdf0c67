"""Hooks that a session can have; modules are named as Proton's."""

from .launch import LaunchHook, LaunchMetadata, metrics_of

__all__ = ["LaunchHook", "LaunchMetadata", "metrics_of"]
