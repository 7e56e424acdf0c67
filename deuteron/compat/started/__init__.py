"""The folder in which Python processes look for modules first that a program under ``python -m deuteron.compat.triton``
starts: they ``import triton`` themselves, and are to find deuteron, too."""
