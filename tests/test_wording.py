"""Sentences for users of the command line."""

import pytest

from openmm_density.wording import counted, in_options

SPELLINGS = {
    "similarity": "--similarity",
    "solvent": "--solvent",
    "atoms": "--atoms",
    "report_interval": "--report-interval",
    "density_interval": "--density-interval",
    "dictionaries": "--dictionary",
    "density_map": "MAP",
}


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ('similarity="likeness" is not known: use a, b.', '--similarity "likeness" is not known: use a, b.'),
        (
            "report_interval must be a multiple of density_interval, which is 3.",
            "--report-interval must be a multiple of --density-interval, which is 3.",
        ),
        (
            "atoms must be a selection: these atoms are not.",
            "--atoms must be a selection: these atoms are not.",
        ),
        ("give dictionaries=, or positions=", "give --dictionary, or positions="),
        ('give solvent="water".', 'give --solvent "water".'),
        ("density_map is empty.", "MAP is empty."),
        ("runs/density_interval/atoms.pdb: no such file.", "runs/density_interval/atoms.pdb: no such file."),
        ("own.toml: density_interval must be 1.", "own.toml: density_interval must be 1."),
    ],
)
def test_options_take_the_place_of_python_arguments(sentence, expected):
    assert in_options(sentence, SPELLINGS) == expected


def test_one_is_no_plural():
    assert [counted(n, "heavy atom") for n in (0, 1, 2)] == ["0 heavy atoms", "1 heavy atom", "2 heavy atoms"]
