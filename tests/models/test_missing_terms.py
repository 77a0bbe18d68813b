"""Bonds and angles that a force field has no term for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.models import prepare, read_model
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.preparation import missing_terms as module

from ..contexts import context_of, system_of


@pytest.fixture(scope="module")
def junction(small_data: Path):
    return prepare(read_model(small_data / "zoo" / "104d_junction.pdb"))


def terms_of(system: openmm.System) -> set[frozenset[int]]:
    return {
        frozenset(force.getBondParameters(k)[:2])
        for force in system.getForces()
        if isinstance(force, openmm.HarmonicBondForce)
        for k in range(force.getNumBonds())
    } | {
        (force.getAngleParameters(k)[1], frozenset(force.getAngleParameters(k)[:3]))
        for force in system.getForces()
        if isinstance(force, openmm.HarmonicAngleForce)
        for k in range(force.getNumAngles())
    }


def test_every_bond_and_angle_of_a_junction_of_rna_and_dna_has_a_term(junction) -> None:
    assert junction.untyped == [
        "A G 4 O3' - A DT 5 P",
        "A G 4 C3' - A G 4 O3' - A DT 5 P",
        "A G 4 O3' - A DT 5 P - A DT 5 OP1",
        "A G 4 O3' - A DT 5 P - A DT 5 OP2",
        "A G 4 O3' - A DT 5 P - A DT 5 O5'",
    ]
    for options in ({}, {"constraints": None, "rigidWater": False}, {"constraints": app.AllBonds}):
        system = junction.system(**options)
        fixed = (system.getConstraintParameters(k)[:2] for k in range(system.getNumConstraints()))
        known = terms_of(system) | set(map(frozenset, fixed))
        heavy = [(a, b) for a, b in junction.topology.bonds() if not (is_hydrogen(a) or is_hydrogen(b))]
        around: dict[int, list[int]] = {}
        for a, b in heavy:
            assert frozenset((a.index, b.index)) in known
            around.setdefault(a.index, []).append(b.index)
            around.setdefault(b.index, []).append(a.index)
        for centre, members in around.items():
            for number, one in enumerate(members):
                assert all((centre, frozenset((one, centre, two))) in known for two in members[number + 1 :])


def test_they_are_held_at_amber_s_values_not_at_those_of_a_bad_start(junction) -> None:
    atoms = {f"{atom.residue.id} {atom.name}": atom.index for atom in junction.topology.atoms()}
    ends = [atoms["4 O3'"], atoms["5 P"], atoms["5 OP1"]]
    positions = junction.positions.copy()
    # OP1 nearly on O3', as a fit left it.
    positions[ends[2]] = positions[ends[0]] + [0.9, 0.9, 0.0]
    system = junction.system(constraints=None, rigidWater=False)
    context = context_of(system, positions)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 500)
    found = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    assert np.linalg.norm(found[ends[0]] - found[ends[1]]) == pytest.approx(1.61, abs=0.05)
    u, v = found[ends[0]] - found[ends[1]], found[ends[2]] - found[ends[1]]
    angle = np.degrees(np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v)))
    assert angle == pytest.approx(108, abs=8)


def test_what_chemistry_has_no_value_for_is_held_about_where_it_is_if_that_can_be(junction) -> None:
    topology = app.Topology()
    chain = topology.addChain("A")
    residue = topology.addResidue("LIG", chain)
    a, b, c = (topology.addAtom(name, app.element.carbon, residue) for name in ("C1", "C2", "C3"))
    topology.addBond(a, b)
    topology.addBond(b, c)
    force = openmm.HarmonicBondForce()
    force.addBond(1, 0, 0.15, 1e5)
    system = system_of(3, force)
    positions = np.array([[0.0, 0, 0], [1.5, 0, 0], [1.5, 0.63, 0]])
    missing = module.missing_terms(system, topology, positions)
    assert missing.bonds.tolist() == [[1, 2]] and missing.angles.tolist() == [[0, 1, 2]]
    # gemmi's covalent radius of carbon: 0.73 Å.
    assert missing.lengths.tolist() == [pytest.approx(0.85 * 1.46)] and missing.degrees.tolist() == [100.0]
    held = module.missing_terms(system, topology, positions, held=[np.arange(3)])
    assert not len(held.bonds) and not len(held.angles)
    linked = module.missing_terms(system, topology, positions, links=[(2, 1)])
    # Springs hold the bond; of an angle they would let go as it nears 180 degrees.
    assert not len(linked.bonds) and linked.angles.tolist() == [[0, 1, 2]]
