"""The page itself: texts, data, style and scripts in one file, which opens nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from ..base.atomic_files import write_text
from ..base.page_blocks import Page, Plot


def base64_of(array: np.ndarray, kind: str) -> str:
    """Return an array's values, row after row, in base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def embedded_json(value: Any) -> str:
    """Return a value as JSON that can stand inside a ``<script>``, whatever its texts say."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns, null where a row has nothing: named in each, names would be two thirds of them."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


SCRIPTS = (
    "third_party/3Dmol-min.js",
    "third_party/plotly-basic.min.js",
    "scripts/data.js",
    "scripts/scene.js",
    "scripts/controls.js",
    "scripts/plots.js",
    "scripts/page.js",
)
"""In the order in which they run."""


def write_page(path: str | os.PathLike[str], page: Page) -> None:
    """Write a page to an HTML file, atomically; InputError where it cannot be written."""
    write_text(path, page_text(page))


def page_text(page: Page) -> str:
    """Return the HTML of a page."""
    plots = [block for section in page.sections for block in section.blocks if isinstance(block, Plot)]
    figures = {plot.key: plot.figure for plot in plots if plot.figure is not None}
    data = page.data | {"residues": columns_of(page.data["residues"]), "figures": figures}
    picture = None
    if page.picture is not None:
        picture = f"data:image/png;base64,{base64.b64encode(page.picture).decode('ascii')}"
    scripts = [_file(name) for name in SCRIPTS]
    return _template().render(
        page=page,
        policy=_policy(scripts),
        style=_file("report.css"),
        scripts=scripts,
        data=embedded_json(data),
        picture=picture,
    )


def _policy(scripts: list[str]) -> str:
    """Return a Content-Security-Policy: no network, and no script but these, whatever else the page holds."""
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=len(SCRIPTS))
def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@lru_cache(maxsize=len(SCRIPTS) + 2)
def _file(name: str) -> str:
    text = resources.files(__package__).joinpath(*name.split("/")).read_text(encoding="utf-8")
    if name.endswith(".js") and "</script" in text.lower():
        raise ValueError(f"{name} would end the script that it is put into")
    # A carriage return that a browser takes for a line feed would change the digest.
    return text.replace("\r\n", "\n").replace("\r", "\n")


@lru_cache(maxsize=1)
def _template() -> Any:
    # A tenth of a second that only a report takes.
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Of ours alone: what comes from elsewhere is escaped.
    environment.filters["ours"] = Markup
    return environment.from_string(_file("template.html"))
