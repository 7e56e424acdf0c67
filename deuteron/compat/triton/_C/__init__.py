"""The name under which programs look for Triton's compiled parts."""
