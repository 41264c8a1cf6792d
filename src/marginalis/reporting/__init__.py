"""One page about one model."""
