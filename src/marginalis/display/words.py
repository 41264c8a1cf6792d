"""Names and numbers as people read them; files and JSON keep their keys."""

from __future__ import annotations

_METHODS = {"ais": "AIS", "mais": "mAIS", "mais-v": "mAIS-V", "mais-h": "mAIS-H"}


def method_name(method: str) -> str:
    """Return a method as the paper spells it; any other name as it is."""
    name, mark, rest = method.partition("+")
    return _METHODS.get(name, name) + (mark + rest.upper() if name in _METHODS else mark + rest)
