"""Compiling, checking and measuring configurations in child processes that may crash."""
