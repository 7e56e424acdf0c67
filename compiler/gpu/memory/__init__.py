"""Memory that threads share: places in shared memory, and what keeps accesses of different threads in order.

:mod:`.scratch` gives everything its place, by how long it is needed (:mod:`.lifetimes`). :mod:`.barriers` stand where
threads would run into what others still need, in arrays where :mod:`.meetings` has no proof that they do not;
:mod:`.fences` are between accesses through different proxies.
"""
