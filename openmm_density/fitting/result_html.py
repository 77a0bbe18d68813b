"""What a notebook shows of the result of a fit."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

PICTURE, REPORT = "overview.png", "report.html"

_ROWS = (
    ("CC (mask)", "cc", ".3f"),
    ("Q-score", "q_score", ".3f"),
    ("RMSD to the reference (Å)", "ca_rmsd", ".2f"),
)
_GEOMETRY = (
    ("bond RMSZ", "bond_rmsz", ".2f"),
    ("angle RMSZ", "angle_rmsz", ".2f"),
    ("clashscore", "clashscore", ".1f"),
    ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
    ("rotamer outliers", "rotamer_outlier_count", "d"),
)


def result_html(state: str, figures: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return a table of a fit before and after, and, where it was written, its doubts, its picture and a link to its report."""
    parts = [f"<p>{escape(state)}</p>", _table(figures)]
    if folder is not None:
        parts += [_doubts(figures), _picture(folder), _links(folder)]
    return f"<div>{''.join(parts)}</div>"


def _table(summary: Mapping[str, Any]) -> str:
    """Return the figures that are known, before, after and of the reference."""
    columns = ["before", "after"] if summary.get("simulated") is None else ["before (kept)", "after"]
    rows = [(name, form, *_compared(summary, key)) for name, key, form in _ROWS]
    rows += [(name, form, *_geometry(summary, key)) for name, key, form in _GEOMETRY]
    if any(row[-1] is not None for row in rows):
        columns.append("reference")
    cells = "".join(
        _row(name, form, values[: len(columns)])
        for name, form, *values in rows
        if any(value is not None for value in values)
    )
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{cells}</tbody></table>"


def _compared(summary: Mapping[str, Any], key: str) -> tuple[Any, Any, Any]:
    simulated = summary.get("simulated")
    after = summary.get(f"{key}_final") if simulated is None else simulated.get(key)
    return summary.get(f"{key}_initial"), after, summary.get(f"{key}_reference")


def _geometry(summary: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    return tuple((figures or {}).get(key) for figures in _compared(summary, "geometry"))


def _row(name: str, form: str, values: list[Any]) -> str:
    shown = "".join(f"<td>{'–' if value is None else format(value, form)}</td>" for value in values)
    return f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>'


def _doubts(summary: Mapping[str, Any]) -> str:
    if not summary["doubts"]:
        return "<p>No doubts.</p>"
    return f"<p>Doubts:</p><ul>{''.join(f'<li>{escape(doubt)}</li>' for doubt in summary['doubts'])}</ul>"


def _picture(folder: Path) -> str:
    """Return the picture within the page, so that a saved notebook keeps it; nothing where it was left out."""
    path = folder / PICTURE
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    said = "the backbone before and after the fit over the density"
    return f'<img src="data:image/png;base64,{data}" alt="{said}" style="max-width: 100%">'


def _links(folder: Path) -> str:
    """Return links to what there is in the folder, from the folder that the notebook runs in."""
    links = [_link(folder / name, name) for name in _linked(folder)]
    return f"<p>In {escape(str(folder))}: {', '.join(links)}</p>" if links else ""


def _linked(folder: Path) -> Iterator[str]:
    for name in (REPORT, "fitted.pdb", "fitted_input.cif", "residues.png", "progress.png", "summary.json"):
        if (folder / name).is_file():
            yield name


def _link(path: Path, label: str) -> str:
    target = quote(os.path.relpath(path).replace(os.sep, "/"))
    return f'<a href="{escape(target)}" target="_blank" rel="noopener">{escape(label)}</a>'
