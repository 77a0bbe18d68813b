from __future__ import annotations

import numpy as np
import pytest

from openmm_density.models import Model
from openmm_density.models.chemistry.suites import find_suites, named_suites

# The authors' program suitename says the same of 4P5J.
OF_4P5J = (
    "!!9a1a1a1a1a1a!!!!4b!!3b0a1a1a1a1a1a1a1a1a1a1a1a5z!!2g1a!!1a1a1a1a1a1a1a1a1a9a1a1b4a1a1a1a1a1a1g1a1[4d1b2a1a1a1a1a1a1a"
    "1a1b4p2[4n1a1a1a1a1a1a1b4b6p2a1o!!1a1a1a!!1a1g"
)


def test_suites_of_rna_are_those_of_suitename(rna: Model, dna: Model) -> None:
    suites = find_suites(rna.topology)
    names, suiteness = suites.conformers(rna.positions)
    assert suites.residues.tolist() == list(range(1, 83))
    assert "".join(names) == OF_4P5J
    assert ((suiteness == 0) == (names == "!!")).all() and suiteness.max() < 1
    assert not len(find_suites(dna.topology).residues)


@pytest.mark.parametrize(
    ("degrees", "name", "suiteness"),
    [
        ((90.6, 264.156, 256.162, 314.372, 127.363, 60.604, 80.882), "1L", 0.662),
        ((79.433, 180.263, 276.439, 307.621, 216.667, 52.103, 100.85), "&a", 0.112),
        ((147.668, 156.294, 129.91, 280.223, 107.996, 25.36, 101.459), "#a", 0.014),
        ((156.62, 289.929, 122.381, 49.76, 248.233, 160.625, 100.265), "0i", 0.011),
        ((80.601, 179.449, 283.756, 334.254, 222.559, 51.677, 148.251), "1[", 0.022),
        ((85.031, 187.592, 267.386, 147.692, 132.257, 195.915, 82.545), "1f", 0.127),
        ((78.922, 192.784, 267.268, 263.549 - 360, 84.421, 171.993, 87.033), "1e", 0.734),
        ((109.751, 239.812, 226.271, 89.804, 179.39, 55.775, 81.186), "!!", 0.0),  # δ of no pucker
        ((163.969, 298.655, 307.843, 297.148, 149.127, 55.65, 68.076), "!!", 0.0),  # too far in all seven
    ],
)
def test_conformers_beside_others_are_named_as_suitename_names_them(
    degrees: tuple[float, ...], name: str, suiteness: float
) -> None:
    names, found = named_suites(np.array([degrees]))
    assert names.tolist() == [name] and found[0] == pytest.approx(suiteness, abs=5e-3)
