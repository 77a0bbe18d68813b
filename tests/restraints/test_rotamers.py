"""The restraint of side chains to staggered torsions."""

from __future__ import annotations

import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.models import Model
from openmm_density.models.chemistry.side_chains import side_chain_torsions
from openmm_density.models.chemistry.torsions import torsion_angles
from openmm_density.restraints import ROTAMER_FORCE_CONSTANT, RotamerRestraint
from openmm_density.validation.geometry import rotamer_deviations

from ..small_models import turned_about
from .single_forces import assert_forces_are_the_gradient, context_with, energy_at


def valine(native: Model) -> tuple[app.Topology, np.ndarray, dict[str, int]]:
    """Return one residue alone, with χ1 at 180°."""
    residue = next(r for r in native.topology.residues() if r.name == "VAL")
    topology = app.Topology()
    own = topology.addResidue("VAL", topology.addChain("A"), "7")
    index = {}
    for atom in residue.atoms():
        index[atom.name] = topology.addAtom(atom.name, atom.element, own).index
    positions = native.positions[[atom.index for atom in residue.atoms()]]
    restraint = RotamerRestraint(topology, positions)
    now = torsion_angles(positions, restraint.torsions)[0]
    moved = np.array([index["CG1"], index["CG2"]])
    return topology, turned_about(positions, index["CA"], index["CB"], moved, np.pi - now), index


def test_energy_is_flat_near_staggered_and_highest_where_eclipsed(emd6374: Model) -> None:
    topology, positions, index = valine(emd6374)
    restraint = RotamerRestraint(topology, positions)
    context = context_with(restraint.create_force(), len(positions))
    moved = np.array([index["CG1"], index["CG2"]])

    def energy(degrees: float) -> float:
        return energy_at(
            context, turned_about(positions, index["CA"], index["CB"], moved, np.radians(degrees))
        )

    for staggered in (0.0, 120.0, -120.0):
        assert energy(staggered) == pytest.approx(0, abs=1e-9)
        assert energy(staggered + 19) == pytest.approx(0, abs=1e-6)
        assert energy(staggered - 40) == pytest.approx(ROTAMER_FORCE_CONSTANT, rel=1e-3)
        assert energy(staggered + 60) == pytest.approx(2.25 * ROTAMER_FORCE_CONSTANT, rel=1e-3)
    context.setParameter(restraint.parameter_name, 0.0)
    assert energy(60.0) == 0


def test_forces_are_the_gradient(emd6374: Model) -> None:
    shaken = emd6374.positions + np.random.default_rng(1).normal(0, 0.3, emd6374.positions.shape)
    assert_forces_are_the_gradient(RotamerRestraint(emd6374.topology, shaken).create_force(), shaken)


def test_eclipsed_side_chains_are_told(emd6374: Model) -> None:
    topology, positions, index = valine(emd6374)
    restraint = RotamerRestraint(topology, positions)
    assert restraint.n_terms == 1 and restraint.violations(positions) == []
    moved = np.array([index["CG1"], index["CG2"]])
    eclipsed = turned_about(positions, index["CA"], index["CB"], moved, np.radians(50.0))
    (violation,) = restraint.violations(eclipsed)
    assert violation.restraint == "rotamers" and violation.residues == ("A VAL 7",)
    assert abs(violation.value - violation.target) == pytest.approx(50.0, abs=0.1)
    assert rotamer_deviations(side_chain_torsions(topology), eclipsed).eclipsed.all()


def test_models_without_side_chains_and_wrong_arguments() -> None:
    assert RotamerRestraint(app.Topology(), np.zeros((0, 3))).n_terms == 0
    with pytest.raises(InputError, match="force_constant must be 0 or more"):
        RotamerRestraint(app.Topology(), np.zeros((0, 3)), -1.0)
    with pytest.raises(InputError, match="must be one for each"):
        RotamerRestraint(app.Topology(), np.zeros((3, 3)))
