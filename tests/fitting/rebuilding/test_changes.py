"""What users are told of what was rebuilt."""

from __future__ import annotations

from typing import Any

from openmm_density.fitting.rebuilding.changes import (
    Changes,
    RebuiltStretch,
    TurnedSideChain,
    mark_rebuilt,
    rebuilt_in_words,
    span,
)


def search(*stretches: RebuiltStretch, turned: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    changes = Changes(3, list(stretches), [TurnedSideChain(name, [-60], [180]) for name in turned])
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
    shifted = RebuiltStretch("A", "61", "72", 1, 310.4)
    loop = RebuiltStretch("", "80", "80", 0, 70.0)
    told = rebuilt_in_words(
        [search(loop, shifted, turned=("A ILE 9",)), search(turned=("A ILE 9", "A VAL 3"))]
    )
    assert told == (
        "A 61-72 shifted by +1 (310 kJ/mol), 80 built anew (70 kJ/mol), 2 side chains turned; 2 searches, 61 s"
    )
    many = rebuilt_in_words([search(*[shifted] * 9)])
    assert many.count("shifted") == 4 and "and 5 more" in many
    undone = rebuilt_in_words([search(turned=("A ILE 9",)), search(shifted, undone=True)])
    assert undone == "1 side chain turned, 1 undone, as the model did not bear it; 2 searches, 61 s"


def test_spans_are_short() -> None:
    assert span("A", "61", "72") == "A 61-72" and span("", "5", "5") == "5"


def test_residues_are_marked() -> None:
    rows = [
        {"residue": f"{chain} ALA {number}{code}", "chain": chain, "number": number, "insertion_code": code}
        for chain in "AB"
        for number, code in ((1, ""), (2, ""), (2, "A"), (3, ""), (4, ""))
    ]
    kept = search(RebuiltStretch("A", "2", "3", 1, 60.0), turned=("B ALA 4",))
    again = search(RebuiltStretch("A", "2A", "4", 1, 60.0), RebuiltStretch("B", "1", "1", 0, 60.0))
    dropped = search(RebuiltStretch("B", "1", "4", -1, 60.0), turned=("A ALA 1",), undone=True)
    mark_rebuilt(rows, [kept, again, dropped])
    assert [row["shifted_by"] for row in rows] == [0, 1, 2, 2, 1, 0, 0, 0, 0, 0]
    assert [row["rebuilt"] for row in rows] == [False] + [True] * 5 + [False] * 4
    assert [row["residue"] for row in rows if row["turned"]] == ["B ALA 4"]
