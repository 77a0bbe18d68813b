"""Centres of the wrong hand, found and mirrored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmm_density.extensions.crystal_fit.inverted_centres import inverted_centres, with_mended_centres
from openmm_density.models.structures import read_model
from openmm_density.validation.geometry import geometry_report

from ...small_models import written

EXAMPLES = Path(__file__).parents[3] / "examples" / "data"


@pytest.fixture(scope="module")
def model():
    return read_model(EXAMPLES / "adk_closed.pdb")


def test_atoms_moved_at_random_have_some_which_are_mended(model):
    assert inverted_centres(model) == []
    away = np.random.default_rng(7).normal(scale=0.3, size=model.positions.shape)
    shaken = replace(model, positions=model.positions + away)
    wrong = inverted_centres(shaken)
    assert len(wrong) > 3
    # An independent judge: the report's improper torsions.
    assert set(wrong) == set(geometry_report(model.topology, shaken.positions).wrong_centres)
    mended, names = with_mended_centres(shaken)
    assert names == wrong
    assert geometry_report(model.topology, mended.positions).wrong_centres == []
    moved = np.linalg.norm(mended.positions - shaken.positions, axis=1)
    assert (moved > 0).sum() == len(wrong) and moved.max() < 2.5


def test_d_amino_acids_under_names_of_l_ones_are_named_and_stay(small_data, tmp_path):
    """Of gramicidin A, half of whose residues are D; and one of them among L ones, where no mirror image is near."""
    path = small_data / "zoo" / "1grm_gramicidin.pdb"
    named = ", ".join(f"A {name}" for name in ("LEU 4", "VAL 6", "VAL 8", "LEU 10", "LEU 12", "LEU 14"))
    assert any(f"have D chirality, which is kept: {named}: rename" in x for x in read_model(path).notes)
    chosen = ("3", "4", "5", "7", "9", "11", "13", "15")
    lines = [x for x in path.read_text().splitlines() if x.startswith("ATOM") and x[22:26].strip() in chosen]
    model = read_model(written(tmp_path / "one.pdb", lines))
    assert inverted_centres(model) == ["A LEU 4 CA"]
    assert with_mended_centres(model) == (model, [])


def test_a_centre_that_was_moved_through_the_plane_of_its_neighbours_is_no_d_amino_acid(model):
    atoms = {(a.residue.id, a.name): a.index for a in model.topology.atoms()}
    moved = model.positions.copy()
    number, name = next((r.id, r.name) for r in model.topology.residues() if r.name == "ALA")
    n, c, beta, centre = (moved[atoms[number, each]] for each in ("N", "C", "CB", "CA"))
    normal = np.cross(c - n, beta - n)
    normal /= np.linalg.norm(normal)
    moved[atoms[number, "CA"]] = centre - 1.3 * ((centre - n) @ normal) * normal
    assert with_mended_centres(replace(model, positions=moved))[1] == [f"A {name} {number} CA"]


def test_a_mirror_image_and_a_good_model_stay(model):
    assert with_mended_centres(model) == (model, [])
    mirrored = replace(model, positions=model.positions * [1, 1, -1])
    assert with_mended_centres(mirrored)[1] == []
