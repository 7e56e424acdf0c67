"""Gluon, a language in which authors choose layouts and barriers themselves, is not implemented: importing it fails."""

raise ImportError(
    "deuteron does not implement triton.experimental.gluon: use kernels in triton.language, whose layouts, rings and "
    "warp roles deuteron chooses itself",
    name="triton.experimental.gluon",
)
