"""``import triton`` in a process that was started by a program with deuteron in Triton's place."""

import sys

from deuteron.compat.alias import install

if __name__ == "triton":
    # The import system returns what bears this module's name in the end.
    del sys.modules[__name__]
    install()
