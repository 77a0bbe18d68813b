from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density.models import Model
from openmm_density.models.structures import read_model
from openmm_density.validation.beta_carbons import BetaCarbons
from openmm_density.validation.geometry import geometry_report


@pytest.mark.parametrize("name", ["emd6374_frag/6374_native.pdb", "xraymap_3pqr_R32/3pqr.pdb"])
def test_deposited_models_have_their_beta_carbons_in_place(small_data: Path, name: str) -> None:
    model = read_model(small_data / name)
    carbons = BetaCarbons(model.topology)
    kinds = np.array([residue.name for residue in model.topology.residues()])
    assert len(carbons.residues) > 150 and "GLY" not in kinds[carbons.residues]
    deviations = carbons.deviations(model.positions)
    assert np.median(deviations) < 0.05 and (deviations > 0.25).mean() < 0.01
    # Of prolines, whose ring pulls them aside, as of others.
    assert np.median(deviations[kinds[carbons.residues] == "PRO"]) < 0.1
    turned = model.positions @ Rotation.random(random_state=1).as_matrix().T + 5.0
    np.testing.assert_allclose(carbons.deviations(turned), deviations, atol=1e-9)
    assert carbons.deviations(-model.positions).min() > 2.0


def test_a_beta_carbon_out_of_place_is_named(emd6374: Model) -> None:
    atoms = {atom.name: atom.index for atom in next(iter(emd6374.topology.residues())).atoms()}
    carbons = BetaCarbons(emd6374.topology)
    axis = emd6374.positions[atoms["CB"]] - emd6374.positions[atoms["CA"]]
    for away, outliers in ((0.0, []), (0.5, ["D MET 1"])):
        positions = emd6374.positions.copy()
        positions[atoms["CB"]] += away * axis / np.linalg.norm(axis)
        report = geometry_report(emd6374.topology, positions)
        assert report.c_beta_outliers == outliers and report.c_beta_outlier_count == len(outliers)
        assert report.c_beta_count == len(carbons.residues)
        moved = carbons.deviations(positions)[0]
        assert abs(moved - carbons.deviations(emd6374.positions)[0]) <= away and (moved >= 0.25) == bool(away)
