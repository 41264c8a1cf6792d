"""Answers as plain data, JSON and tables."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

from ..checks import a_kind


class Written:
    """Base class of answers that can be converted to plain data, JSON or a DataFrame."""

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the answer as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dataframe(self) -> Any:
        """Return the answer as a pandas DataFrame with one row, or one for each row of a table. Needs pandas."""
        data = self.to_dict()
        rows = data.pop("rows", [{}])
        return data_frame([_flat({**data, **row}) for row in rows])

    def to_xarray(self) -> Any:
        """Return an answer of many rows, such as a curve, as an xarray Dataset along its first column. Needs xarray."""
        try:
            xarray = importlib.import_module("xarray")
        except ImportError:
            raise ValueError("to_xarray needs xarray: pip install xarray") from None
        data = self.to_dict()
        rows = [_flat(row) for row in data.pop("rows", [])]
        if not rows:
            raise ValueError(f"{a_kind(self)} has one row only: see to_dict and to_dataframe")
        along, *names = rows[0]
        columns = {name: (along, [row[name] for row in rows]) for name in names}
        return xarray.Dataset(columns, {along: [row[along] for row in rows]}, _flat(data))


def data_frame(rows: Any, **options: Any) -> Any:
    """Return a pandas DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise ValueError("to_dataframe needs pandas: pip install pandas") from None
    return pandas.DataFrame(rows, **options)


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of one row: two columns for an interval, one text for another list, and NaN for None."""
    row: dict[str, Any] = {}
    for name, value in data.items():
        if name == "runs":
            continue
        if isinstance(value, list) and len(value) == 2 and not any(isinstance(x, str) for x in value):
            row |= {
                f"{name}_{end}": math.nan if x is None else x for end, x in zip(("low", "high"), value, strict=True)
            }
        elif isinstance(value, list):
            row[name] = "; ".join(map(str, value))
        else:
            row[name] = math.nan if value is None else value
    return row


def finite(x: float) -> float | None:
    """Return x, or None if it is not finite, which JSON cannot represent."""
    return x if math.isfinite(x) else None


def plain_name(name: Any) -> Any:
    """Return the name of a variable or model as a value that JSON can represent."""
    if isinstance(name, tuple):
        return [plain_name(x) for x in name]
    return name if isinstance(name, str | int) else str(name)
