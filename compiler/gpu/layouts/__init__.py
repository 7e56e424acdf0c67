"""Layouts for tiles: which one each tile gets, and how operations are emitted with them.

:mod:`.homes` decides and :mod:`.relayout` emits, by the rules of :mod:`.relayout_rules`. What they ask: which layouts
memory accesses (:mod:`.coalesce`), reductions (:mod:`.reduction`) and products (:mod:`.tensorcore`) want, and how views
carry them (:mod:`.views`). :mod:`.operands`, :mod:`.shared_operands` and :mod:`.butterfly` say how elements move to
where products and exchanges want them. The arithmetic of layouts is ``compiler/layout``.
"""
