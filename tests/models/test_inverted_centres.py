"""Centres of the wrong hand, found and mirrored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmm_density.models.inverted_centres import inverted_centres, with_mended_centres
from openmm_density.models.structures import read_model
from openmm_density.validation.geometry import geometry_report

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


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


def test_a_mirror_image_and_a_good_model_stay(model):
    assert with_mended_centres(model) == (model, [])
    mirrored = replace(model, positions=model.positions * [1, 1, -1])
    assert with_mended_centres(mirrored)[1] == []
