"""Which pointer tiles are boxes of arrays: the proof behind ``passes/access.py``.

Integers and pointers are written as polynomials (:mod:`.polynomial`) of scalars, of the coordinates of a tile's
elements and of the trip counts of loops (:mod:`.unknowns`, :mod:`.forms`); what those say about signs and divisors is
:mod:`.signs`. A box (:mod:`.box`) is what is left when a pointer tile is linear in its coordinates and its mask bounds
them one by one. :mod:`.emit` turns polynomials back into operations.

The assumptions are those of the axis facts: signed integers of 32 and 64 bits, and unsigned ones in sums and products,
do not overflow, not in the terms of an expanded product either; nothing is divided by zero. One more is about groups of
tiles (:func:`..program.rows_of_group`): a launch has no programs beyond the last tile. Where it has, those may find
zeros where their own pointers lead to elements before an array. Layouts and vectors of pointers assume it, too.
"""
