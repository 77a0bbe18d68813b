"""Where in a model something is doubted."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density.fitting.doubt import KINDS, Doubt, Place, located_doubts
from openmm_density.validation.named_residues import LocatedDoubt, LocatedPlace, doubts_in

RESIDUES = [{"residue": name} for name in ("A LYS 45", "A GLY 46", "A GLY 46B", "HOH 7", "A GLY 46")]
CENTRES = np.arange(15.0).reshape(5, 3)


def test_places_are_found_by_the_names_of_residues_and_of_their_atoms():
    doubt = Doubt(
        "cis", "said", (Place.of("A LYS 45 CA - A GLY 46 N"), Place("spot", ("A GLY 46B", "HOH 7")))
    )
    (found,) = located_doubts([doubt], RESIDUES, CENTRES)
    assert found == {
        "kind": "cis",
        "sentence": "said",
        "places": [
            {"label": "A LYS 45 CA - A GLY 46 N", "residues": [0, 1], "centre": [1.5, 2.5, 3.5]},
            {"label": "spot", "residues": [2, 3], "centre": [7.5, 8.5, 9.5]},
        ],
    }


def test_what_is_in_no_residue_of_the_list_is_left_out_and_a_residue_is_named_once():
    places = Place.of("Z ION 9 NA"), Place.of("A LYS 45 CA - A LYS 45 CB - Z ION 9 NA")
    (found,) = located_doubts([Doubt("stretched", "said", places)], RESIDUES, CENTRES)
    assert [place["residues"] for place in found["places"]] == [[0]]


def test_a_doubt_is_of_a_kind_that_is_known():
    assert all(KINDS.values())
    with pytest.raises(ValueError, match="no kind of doubt is called odd"):
        Doubt("odd", "said")


def test_a_summary_gives_the_doubts_back_with_the_rows_of_its_residues():
    doubts = located_doubts(
        [Doubt("cis", "said", (Place.of("A GLY 46B"), Place.of("A LYS 45 CA")))], RESIDUES, CENTRES
    )
    (found,) = doubts_in({"located_doubts": doubts})
    places = LocatedPlace("A GLY 46B", (2,), (6, 7, 8)), LocatedPlace("A LYS 45 CA", (0,), (0, 1, 2))
    assert found == LocatedDoubt("said", (0, 2), places, "cis")
