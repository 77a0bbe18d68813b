"""The log of a fit as a table: ``log.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

# Columns that only some fits have: those with a reference, or with another map.
_OPTIONAL = ("ca_rmsd", "cc_free")


def log_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of a log as CSV, without the columns of what the fit does not have.

    Parameters
    ----------
    rows : sequence of mapping
        The fields of `openmm_density.fitting.fit_result.Row`, one mapping at least.
    """
    names = [name for name in rows[0] if name not in _OPTIONAL or rows[-1][name] is not None]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
        )
    return buffer.getvalue()
