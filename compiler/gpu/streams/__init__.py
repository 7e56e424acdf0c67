"""Streams: tiles that are brought from memory for the products of loops, ahead of time.

:mod:`.finder` looks for them and leaves a :mod:`.plan`, with what it knows of boxes (:mod:`.boxes`), of what may run
:mod:`.ahead` and of TMA :mod:`.descriptors`. The plan is expanded to :mod:`.rings` of buffers, which a warp group of
its own fills (:mod:`.roles`), or the threads that compute (:mod:`.multistage`). Results leave through the same engine
(:mod:`.write_back`); :mod:`.edges` is about boxes that no engine moves.
"""
