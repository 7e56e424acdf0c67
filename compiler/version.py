"""The version of deuteron; part of every variant's identity. pyproject.toml names the same one."""

__version__ = "0.1.0"
