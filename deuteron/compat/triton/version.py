"""The version of Triton whose language is implemented."""

#: Compared by libraries to decide what they may call.
__version__ = "3.7.1"
