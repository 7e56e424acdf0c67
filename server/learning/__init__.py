"""Predictors that the service trains by itself when jobs have ended.

:mod:`.turns` says when a kernel's turn is, :mod:`.trainer` runs a child process for it (:mod:`.child`), which reads
what was measured (:mod:`.reading`), trains as ``deuteron learn`` does, and puts the predictors into the file of the
home. :mod:`.memory` keeps what each kernel was trained from.
"""
