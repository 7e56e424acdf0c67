"""@autotune and @heuristics, and timing launches."""
