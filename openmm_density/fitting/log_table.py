"""The log of a fit as a table: ``log.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from .fit_result import Row

# Columns that only some fits have: those with a reference, or with another map.
_OPTIONAL = ("ca_rmsd", "cc_free")


def log_table(rows: Sequence[Row]) -> str:
    """Return rows of a log as CSV, without the columns of what the fit does not have."""
    last = vars(rows[-1])
    names = [name for name, value in last.items() if name not in _OPTIONAL or value is not None]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in vars(row).items()}
        )
    return buffer.getvalue()
