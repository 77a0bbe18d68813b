"""A copied System says what the original says, and is changed alone."""

from __future__ import annotations

import openmm
import pytest

from openmm_density.models import prepare
from openmm_density.models.merging import copied_system
from openmm_density.restraints import make_restraints

from ...fragments import fragment

serialized = openmm.XmlSerializer.serialize


@pytest.mark.parametrize(
    ("forcefield", "solvent"), [("amber14", "none"), ("charmm36", "none"), ("amber14", "gbn2")]
)
def test_a_copy_has_all_of_a_system(tmp_path, forcefield: str, solvent: str) -> None:
    prepared = prepare(fragment(tmp_path / "m.pdb", residues=9), forcefield, solvent=solvent)
    system = prepared.system(hydrogen_mass=3.0)
    system.setDefaultPeriodicBoxVectors(*(openmm.Vec3(*row) for row in ((3, 0, 0), (0, 4, 0), (1, 0, 5))))
    for restraint in make_restraints(
        "ss,chirality,ramachandran,position", prepared.topology, prepared.positions
    ):
        system.addForce(restraint.create_force())
    assert serialized(copied_system(system)) == serialized(system)
