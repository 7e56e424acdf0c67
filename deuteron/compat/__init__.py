"""Stand-ins for other packages' import names."""
