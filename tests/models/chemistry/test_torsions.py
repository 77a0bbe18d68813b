from __future__ import annotations

import mdtraj
import numpy as np
from openmm import app

from openmm_density.models import Model
from openmm_density.models.chemistry.torsions import peptide_torsions, torsion_angles


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(np.mod(a - b + np.pi, 2 * np.pi) - np.pi)


def test_omega_agrees_with_mdtraj(kinase: Model) -> None:
    trajectory = mdtraj.Trajectory(kinase.positions / 10, mdtraj.Topology.from_openmm(kinase.topology))
    indices, angles = mdtraj.compute_omega(trajectory)
    torsions = peptide_torsions(kinase.topology)
    np.testing.assert_array_equal(indices[np.argsort(indices[:, 1])], torsions[np.argsort(torsions[:, 1])])
    own = torsion_angles(kinase.positions, torsions)[np.argsort(torsions[:, 1])]
    assert apart(own, angles[0][np.argsort(indices[:, 1])]).max() < 1e-3


def test_caps_have_an_omega_too() -> None:
    topology = app.Topology()
    chain = topology.addChain("A")
    atoms = {}
    for name, members in (
        ("ACE", ("CH3", "C", "O")),
        ("ALA", ("N", "CA", "C", "O", "CB")),
        ("NME", ("N", "C")),
    ):
        residue = topology.addResidue(name, chain)
        for atom in members:
            element = app.element.get_by_symbol(atom[0])
            atoms[name, atom] = topology.addAtom(atom, element, residue)
    topology.addBond(atoms["ACE", "C"], atoms["ALA", "N"])
    topology.addBond(atoms["ALA", "C"], atoms["NME", "N"])
    assert peptide_torsions(topology).tolist() == [[0, 1, 3, 4], [4, 5, 8, 9]]
