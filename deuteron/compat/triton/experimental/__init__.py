"""Languages beside Triton's, which deuteron does not have."""
