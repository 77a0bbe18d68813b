"""What the page and the tables of a fit say of the copies by symmetry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.models.assembly import copied_topology
from openmm_density.report.fit_page.contents import shown_copies
from openmm_density.report.shown_model import ShownModel
from openmm_density.report.structures import drawn_models
from openmm_density.report.surfaces import surfaces_of

from ..fragments import fragment


@pytest.fixture(scope="module")
def unit(tmp_path_factory):
    model = fragment(tmp_path_factory.mktemp("unit") / "unit.pdb", residues=12)
    return ShownModel(
        "after", "after", model.topology, model.positions - model.positions.mean(axis=0) + [14, 0, 0]
    )


@pytest.fixture(scope="module")
def summary():
    rotations = Rotation.from_euler("z", [[0.0], [120.0], [240.0]], degrees=True).as_matrix()
    return {
        "assembly": {
            "symmetry": "C3",
            "copies": 3,
            "cc_initial": 0.5,
            "cc_final": 0.8126,
            "rotations": rotations.tolist(),
            "translations": np.zeros((3, 3)).tolist(),
        }
    }


def test_copies_are_drawn_by_their_backbones(unit, summary):
    copies = shown_copies(summary, unit)
    assert (copies.key, copies.label) == ("copies", "copies by C3")
    names = {atom.name for atom in copies.topology.atoms()}
    assert names == {"N", "CA", "C", "O"} and copies.topology.getNumChains() == 2
    backbone = [atom.index for atom in unit.topology.atoms() if atom.name in names]
    expected = np.concatenate(
        [unit.positions[backbone] @ np.array(each).T for each in summary["assembly"]["rotations"][1:]]
    )
    np.testing.assert_allclose(copies.positions, expected)
    assert copies.topology.getNumBonds() == 2 * (12 * 3 + 11)
    residues = [{"residue": f"A {name.name} {name.id}"} for name in unit.topology.residues()]
    drawn = drawn_models([unit, copies], residues)
    # To choose a residue is to choose that of the unit.
    rows = [atoms["residues"]["row"] for atoms in drawn["atoms"]]
    assert rows[0] == list(range(12)) and set(rows[1]) == {None}
    assert shown_copies({"assembly": None}, unit) is None and shown_copies({}, unit) is None


def test_the_map_is_shown_around_copies_where_it_stays_fine(unit, summary):
    copies = shown_copies(summary, unit)
    everything = np.concatenate([unit.positions @ np.array(R).T for R in summary["assembly"]["rotations"]])
    density_map = DensityMap.simulate(copied_topology(unit.topology, 3), everything, 4.0, 1.5)
    sizes = [
        np.prod(surfaces_of(density_map, models, 4.0, most_voxels=most).map["size"])
        for models, most in (([unit], 600_000), ([unit, copies], 600_000), ([unit, copies], 2_000))
    ]
    assert sizes[1] > 2 * sizes[0] and sizes[2] < sizes[0] / 3
    # What is not in the unit's model is no difference where the copies are.
    alone, among = (surfaces_of(density_map, models, 4.0).difference for models in ([unit], [unit, copies]))
    assert alone is not None and among is not None
