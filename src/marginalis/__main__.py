"""``python -m marginalis``."""

from .cli import main

main()
