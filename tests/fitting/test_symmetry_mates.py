"""Fits of one unit whose copies follow from operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from openmm import app, unit

from openmm_density import DensityMap, SymmetryOperators
from openmm_density.base.errors import InputError
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.protocols import find_protocol
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.report.contacts import contact_report

from ..fragments import RESOLUTION, fragment
from .left_behind import kept_at

RESIDUES = 8
QUARTER = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    """Return a shifted unit, the map of all four, the operators, and the unit where it belongs."""
    folder = tmp_path_factory.mktemp("assembly")
    there = fragment(folder / "there.pdb", residues=RESIDUES)
    # Beside the axis: the nearest heavy atoms of neighbours are 3 to 5 Å apart.
    centred = there.positions - there.positions.mean(axis=0)
    operators = SymmetryOperators.from_matrices(
        [np.linalg.matrix_power(QUARTER, k) for k in range(4)], np.zeros((4, 3))
    )
    for radius in np.arange(2.0, 20.0, 0.5):
        x = centred + np.array([radius, 0.0, 0.0])
        near = np.linalg.norm(operators.expanded(x)[1:, :, None] - x, axis=-1).min()
        if near > 3.2:
            break
    modeller = app.Modeller(there.topology, x / 10 * unit.nanometer)
    for _ in range(3):
        modeller.add(there.topology, x / 10 * unit.nanometer)
    density_map = DensityMap.simulate(
        modeller.topology, operators.expanded(x).reshape(-1, 3), RESOLUTION, 1.5, margin=10.0
    )
    start = fragment(folder / "start.pdb", residues=RESIDUES)
    start.positions[:] = x + np.array([-1.2, 1.0, 0.8])
    return start, density_map, operators, x


def fit_of(assembly, **options):
    start, density_map, operators, _ = assembly
    protocol = replace(find_protocol("quick", RESOLUTION), strength=100.0, minimize_last=50).with_steps(240)
    options = {"threads": 1, "report_interval": 40, "save_interval": 80, "operators": operators, **options}
    return FlexibleFit(start, density_map, RESOLUTION, protocol, place="off", **options)


def test_a_unit_is_fitted_with_its_copies_and_resumed_to_the_same_bits(assembly, tmp_path):
    fit = fit_of(assembly)
    folder, copy = tmp_path / "whole", tmp_path / "killed"
    keep = kept_at(folder, copy, lambda step, total, stage, row: row is not None and step >= 90)
    result = fit.run(RunFolder(folder), keep)
    assert result.similarity_final > result.similarity_initial
    assert fit.notes == []
    heavy = [atom.index for atom in fit.prepared.topology.atoms() if not is_hydrogen(atom)]
    final = result.final[heavy]
    near = np.linalg.norm(fit.density.operators.expanded(final)[1:, :, None] - final, axis=-1).min()
    assert near > 2.3  # a hydrogen bond or farther, as no bond is this long
    report = contact_report(fit, result)
    assert report["mates_fitted"] and report["mate_contacts_final"] <= report["mate_contacts_initial"]
    forces = {force.getName(): force for force in fit.system.getForces()}
    assert {"MateContacts", "DensityFit"} <= forces.keys()
    again = fit_of(assembly).run(RunFolder(copy))
    np.testing.assert_array_equal(again.final, result.final)
    assert again.rows == result.rows


def test_in_water_there_are_no_mates(assembly):
    with pytest.raises(InputError, match="is not for a unit with symmetry mates"):
        fit_of(assembly, solvent="water")
