"""What users are told of what was rebuilt."""

from __future__ import annotations

from typing import Any

from openmm_density.extensions.rebuilding.changes import (
    Changes,
    FittedRotamer,
    FlippedPeptide,
    RebuiltStretch,
    rebuilt_in_words,
)


def search(
    *stretches: RebuiltStretch, turned: tuple[int, ...] = (), flipped: tuple[int, ...] = (), **changed: Any
) -> dict[str, Any]:
    side_chains = [FittedRotamer(f"ILE {row}", row, [-60], [180]) for row in turned]
    peptides = [FlippedPeptide(f"ILE {row}", row, 60.0) for row in flipped]
    changes = Changes(3, list(stretches), side_chains, peptides=peptides)
    return {
        "stage": "heat",
        "step": 10,
        **changes.as_dict(),
        "undone": False,
        "wall_seconds": 30.4,
        **changed,
    }


def test_a_line_says_it_all() -> None:
    assert rebuilt_in_words([]) is None
    assert rebuilt_in_words([search()]) == "nothing; 1 search, 30 s"
    shifted = RebuiltStretch("A", "61", "72", list(range(60, 72)), 1, 310.4)
    loop = RebuiltStretch("", "80", "80", [79], 0, 70.0)
    told = rebuilt_in_words([search(loop, shifted, turned=(9,)), search(turned=(9, 3))])
    assert told == (
        "A 61-72 shifted by +1 (310 kJ/mol), 80 built anew (70 kJ/mol), 2 side chains in other rotamers; 2 searches, 61 s"
    )
    many = rebuilt_in_words([search(*[shifted] * 9)])
    assert many.count("shifted") == 4 and "and 5 more" in many
    undone = rebuilt_in_words([search(turned=(9,)), search(shifted, undone=True)])
    assert (
        undone == "1 side chain in another rotamer, 1 undone, as the model became unstable; 2 searches, 61 s"
    )
