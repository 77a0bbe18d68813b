"""Residues are found in the sentences that name them, and no others."""

import pytest

from openmm_density.validation.named_residues import ResidueFinder
from openmm_density.validation.stretches import doubtful_stretches


def rows(*labels):
    """Return rows of residues as in ``A HIS 57``; a chain without a letter is left out of the label."""
    found = []
    for label in labels:
        *chain, name, number = label.split()
        found.append({"residue": label, "chain": "".join(chain), "name": name, "number": int(number)})
    return [{**row, "insertion_code": ""} for row in found]


MODEL = rows("A GLU 14", "A GLU 143", "A PRO 144", "B GLU 14", "GLU 14", "A ALA -3")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("the fit made Ramachandran outliers of A GLU 143, A PRO 144: look at the model there.", (1, 2)),
        ("bonds of B GLU 14 CA - A ALA -3 N (2.3 Å)", (3, 5)),
        ("GLU 14 alone, and A GLU 14 beside it", (0, 4)),
        ("A GLU 14B and CA GLU 143 are other residues", ()),
        ("the correlation did not rise (0.14 to 0.143)", ()),
    ],
)
def test_a_residue_is_found_by_its_whole_name(sentence, expected):
    assert ResidueFinder(MODEL).named_in(sentence) == expected


@pytest.mark.parametrize(("chain", "first"), [("A", 1), ("A", -6), ("", 1), ("long", 998)])
def test_a_stretch_is_found_from_its_own_sentence(chain, first):
    residues = rows(*(f"{chain} ALA {number}".strip() for number in range(first, first + 30)))
    for place, row in enumerate(residues):
        low = 10 <= place < 17
        row |= {"kind": "polymer", "correlation_initial": 0.8, "correlation_final": 0.2 if low else 0.8}
        row |= {"q_score_initial": None, "q_score_final": None}
    [stretch] = doubtful_stretches(residues)
    assert stretch.rows == tuple(range(10, 17))
    assert ResidueFinder(residues).named_in(str(stretch)) == stretch.rows


def test_insertion_codes_are_part_of_a_number():
    residues = rows("A HIS 57", "A HIS 57", "A SER 58")
    residues[1] |= {"residue": "A HIS 57B", "insertion_code": "B"}
    finder = ResidueFinder(residues)
    assert finder.named_in("A HIS 57B") == (1,)
    assert finder.named_in("residue A 57B fit the map worse than before") == (1,)
    assert finder.named_in("residues A 57-58 fit the map worse than before") == (0, 1, 2)
