"""From a decorated function and its arguments to a launch."""
