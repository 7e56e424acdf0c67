"""Latency hiding: which operations a program begins early or ends late, so that it waits for less.

For memory: loads that are asked for together (:mod:`.loads`), an iteration ahead (:mod:`.early`) or for several
iterations of a short loop at once (:mod:`.unroll`), and stores that leave under products (:mod:`.stores`). For tensor
cores: loops turned so that products run beside other work (:mod:`.rotation`, unless they run too few times, see
:mod:`.trips`), and waits for products as late as possible (:mod:`.flight`).
"""
