"""Honest timing: plans, samples, statistics, verdicts."""
