"""Arguments: arrays of any library and numbers, as a launch sees them."""
