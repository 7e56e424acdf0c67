"""Random kernels as users write and launch them: loads and stores of every kind, loops, branches, products, atomics.

Read in this order: what a kernel is made of (``kinds``, ``bounds``, ``statements``), how it grows (``building``, the
operations, ``control``, ``products`` and ``attention``), the families of kernels (``families``), their text
(``rendering``), runs (``launching``), what a run may leave (``comparison``), and what remains of a kernel that fails
(``shrinking``).
"""
