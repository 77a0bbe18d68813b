"""Scenes to write scripts of: a plain one, and one whose every text tries to be a command."""

from __future__ import annotations

from openmm_density.report.viewers.scene import Scene, SceneModel
from openmm_density.validation.named_residues import LocatedDoubt, LocatedPlace

NASTY = [
    "plain",
    "two words",
    '"; exit; "',
    "'; exit; '",
    "x;exit",
    "<script>alert(1)</script>",
    "&#59;exit",
    'a" ;exit',
    "a' ;exit",
    "a\\",
    'a\\" ; exit',
    "line\nexit\r\nquit",
    "'''+__import__('os').system('touch hacked')+r'''",
    "Zoë Ångström 蛋白質 \U0001f9ec",
    "\x00\x1b[2J\u2028exit",
    "$1 * ? ~ #1 //",
    "&lt;b&gt; %3B exit",
    "]]> <!-- -->",
]
"""Names and sentences."""


def residues(*numbered: tuple[str, int, str]) -> tuple[dict, ...]:
    """Return rows of a summary for chains, numbers and insertion codes."""
    return tuple(
        {"chain": chain, "number": number, "insertion_code": code, "kind": "polymer"}
        for chain, number, code in numbered
    )


ROWS = residues(("A", 12, ""), ("A", 13, ""), ("A", 14, ""), ("A", 20, ""), ("A", 20, "B"), ("B", -3, ""))


def scene_of(text: str = "said", rows: tuple[dict, ...] = ROWS, level: float | None = 0.25) -> Scene:
    """Return a scene in which a text stands wherever text may."""
    models = tuple(
        SceneModel(role, f"{role}.pdb", f"{role}: {text}") for role in ("before", "fitted", "reference")
    )
    places = (
        LocatedPlace(text, (0, 1, 2), (1.5, -2.0, 3.25)),
        LocatedPlace(f"{text} too", tuple(range(3, len(rows)))),
    )
    of_extension = LocatedDoubt(f"of all: {text}", (), kind="compactness")
    doubts = LocatedDoubt(text, (0,), places, "ramachandran"), of_extension
    return Scene(models, "fitted_map.mrc", f"map: {text}", level, doubts, rows)
