"""engines/cpu."""
