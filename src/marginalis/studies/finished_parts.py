"""Finished parts of a study in a file, so that a stopped study can be continued."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any


class FinishedParts:
    """Values by key, one line of JSON each; a value is on disk as soon as it is added.

    Without a path nothing is kept on disk. Without `resume` an existing file is overwritten. A last line that a killed
    run left incomplete is ignored, and so are the parts of a study with other settings, whose keys differ.
    """

    def __init__(self, path: Path | None = None, resume: bool = False) -> None:
        self._found: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._path = path
        if path is None:
            return
        lines = path.read_text("utf-8").splitlines() if resume and path.exists() else []
        for line in lines:
            try:
                key, value = json.loads(line)
            except ValueError:
                continue
            self._found[key] = value
        path.write_text("".join(json.dumps(item) + "\n" for item in self._found.items()), "utf-8")

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def add(self, key: str, value: Any) -> None:
        """Keep the value of a finished part."""
        with self._lock:
            self._found[key] = value
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps((key, value)) + "\n")
