"""Best configurations with their evidence: identity, lookup, bundles."""
