"""Which atoms are nearly in one place."""

import openmm
import pytest

from openmm_density.fitting.relaxation import clashing_pairs
from openmm_density.models import prepare

from ..fragments import fragment


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(fragment(tmp_path_factory.mktemp("fragment") / "model.pdb", residues=12))


def test_atoms_that_are_not_bonded_clash_in_one_place(prepared):
    system, positions = prepared.system(constraints=None), prepared.positions / 10
    assert len(clashing_pairs(system, positions)) == 0
    carbons = [atom.index for atom in prepared.topology.atoms() if atom.name == "CB"]
    spoilt = positions.copy()
    spoilt[carbons[5]] = spoilt[carbons[1]]
    spoilt[carbons[6]] = spoilt[carbons[2]] + 1e-6
    pairs = {tuple(sorted(pair)) for pair in clashing_pairs(system, spoilt).tolist()}
    assert {(carbons[1], carbons[5]), (carbons[2], carbons[6])} <= pairs


def test_bonds_do_not_clash(prepared):
    system = prepared.system(constraints=None)
    bonds = next(f for f in system.getForces() if isinstance(f, openmm.HarmonicBondForce))
    i, j, *_ = bonds.getBondParameters(0)
    positions = prepared.positions / 10
    positions[i] = positions[j]
    assert [i, j] not in clashing_pairs(system, positions).tolist()
