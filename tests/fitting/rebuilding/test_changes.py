"""What users are told of what was rebuilt."""

from __future__ import annotations

from typing import Any

from openmm_density.fitting.rebuilding.changes import (
    Changes,
    FittedRotamer,
    FlippedPeptide,
    RebuiltStretch,
    mark_rebuilt,
    rebuilt_in_words,
    span,
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


def test_flipped_peptides_are_told_of_and_marked() -> None:
    assert rebuilt_in_words([search(flipped=(4,))]) == "1 peptide flipped; 1 search, 30 s"
    searches = [
        search(flipped=(4, 7), turned=(2,)),
        search(flipped=(4,)),
        search(flipped=(8,), undone=True),
    ]
    told = "2 peptides flipped, 1 side chain in another rotamer, 1 undone, as the model became unstable; 3 searches, 91 s"
    assert rebuilt_in_words(searches) == told
    rows: list[dict[str, Any]] = [{"residue": f"ALA {number}"} for number in range(10)]
    mark_rebuilt(rows, searches)
    # What was flipped twice is as it was.
    assert [number for number, row in enumerate(rows) if row["flipped"]] == [7]
    # Fits of earlier versions do not tell.
    before = {key: value for key, value in search().items() if key != "peptides"}
    mark_rebuilt(rows, [before])
    assert rebuilt_in_words([before]) == "nothing; 1 search, 30 s" and not any(row["flipped"] for row in rows)


def test_spans_are_short() -> None:
    assert span("A", "61", "72") == "A 61-72" and span("", "5", "5") == "5"


def test_residues_are_marked_also_where_chains_and_their_numbers_are_alike() -> None:
    rows = [
        {"residue": f"ALA {number}{code}", "chain": "", "number": number, "insertion_code": code}
        for _ in range(2)
        for number, code in ((1, ""), (2, ""), (2, "A"), (3, ""), (4, ""))
    ]
    kept = search(RebuiltStretch("", "2", "3", [1, 2, 3], 1, 60.0), turned=(9,))
    again = search(
        RebuiltStretch("", "2A", "4", [2, 3, 4], 1, 60.0), RebuiltStretch("", "1", "1", [5], 0, 60.0)
    )
    dropped = search(RebuiltStretch("", "1", "4", [5, 6, 7, 8, 9], -1, 60.0), turned=(0,), undone=True)
    mark_rebuilt(rows, [kept, again, dropped])
    assert [row["shifted_by"] for row in rows] == [0, 1, 2, 2, 1, 0, 0, 0, 0, 0]
    assert [row["rebuilt"] for row in rows] == [False] + [True] * 5 + [False] * 4
    assert [row["turned"] for row in rows] == [False] * 9 + [True]
