"""Ligands with a potential: completed, parametrised for what is around them, and with that energy alone within."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.models import prepare
from openmm_density.models.preparation.ligand_terms import remove_inner_terms

from ..contexts import context_of, forces_of
from .test_ligands import BONDS, ELEMENTS, PLACES, SMILES, with_ligands  # noqa: F401  (a fixture)

SYMBOLS = {6: "C", 7: "N", 8: "O", 1: "H"}


@dataclass(frozen=True)
class Pulled:
    """A potential that pulls its first two atoms together by a constant force, as that of no molecule does."""

    charges: np.ndarray = field(default_factory=lambda: np.array([-1, 5, -5, -6, 0, 0.5, 1.0, 2.5, 3.0]) / 10)
    version: str = "a constant force"
    elements: tuple[str, ...] = tuple(SYMBOLS[number] for number in ELEMENTS)
    bonds: tuple[tuple[int, int], ...] = BONDS
    smiles: str = SMILES
    path: Path | None = None
    sha256: str = ""
    bound: float = 1.0

    @property
    def positions(self):
        return PLACES

    def create_force(self, particles, n_particles, parameter_name):
        force = openmm.CustomBondForce(f"{parameter_name}*100*r")
        force.addGlobalParameter(parameter_name, 1.0)
        force.addBond(int(particles[0]), int(particles[1]), [])
        return force

    def energy(self, positions):
        return 0.0

    def disagreement(self, positions):
        return 0.0


@pytest.fixture(scope="module")
def prepared(with_ligands):  # noqa: F811
    return prepare(with_ligands, ligand_forcefield="xtb", ligand_potentials={"ACM": Pulled()})


def test_ligands_get_hydrogens_charges_and_spheres(prepared):
    assert prepared.report.ligand_potentials == [
        "A ACM 501 (a constant force)",
        "A ACM 502 (a constant force)",
    ]
    assert not prepared.report.rigid_residues and len(prepared.potentials) == 2
    system = prepared.system()
    nonbonded = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    atoms = list(prepared.topology.atoms())
    for placed in prepared.potentials:
        assert [atoms[k].element.symbol for k in placed.atoms] == [SYMBOLS[number] for number in ELEMENTS]
        found = [nonbonded.getParticleParameters(int(k)) for k in placed.atoms]
        charges = np.array([each[0]._value for each in found])
        # Hydrogens of the methyl group are alike, and those of the amide.
        assert charges == pytest.approx([-0.1, 0.5, -0.5, -0.6, 0.05, 0.05, 0.05, 0.275, 0.275])
        sigma = np.array([each[1].value_in_unit(unit.angstrom) for each in found])
        assert sigma[7] < 1.2 < sigma[4] < sigma[2] < sigma[0] < 3.5
        assert min(each[2]._value for each in found) > 0
        hydrogen = system.getParticleMass(int(placed.atoms[4])).value_in_unit(unit.dalton)
        assert hydrogen == pytest.approx(1.008, abs=1e-3)


def test_within_a_ligand_there_is_its_potential_alone(prepared):
    system = prepared.system(nonbonded_cutoff=0.5)
    context = context_of(system)
    # 40 Å from the peptide and 10 Å from one another, beyond the cut-off of 5 Å: what acts on them is what is within.
    context.setPositions(prepared.positions / 10)
    forces = forces_of(context)
    for placed in prepared.potentials:
        own = forces[placed.atoms]
        assert np.linalg.norm(own[:2], axis=1) == pytest.approx(100.0, rel=1e-5)
        assert np.abs(own[2:]).max() < 1e-4 and np.abs(own[0] + own[1]).max() < 1e-6
        context.setParameter(placed.parameter_name, 0.0)
    assert np.abs(forces_of(context)[own_atoms(prepared)]).max() < 1e-4


def own_atoms(prepared):
    return np.concatenate([placed.atoms for placed in prepared.potentials])


def test_terms_of_charmm_within_a_ligand_are_removed(prepared):
    """Of the pairs that three bonds join, which it has apart."""
    system, force = openmm.System(), openmm.CustomBondForce("epsilon*(sigma/r)^12")
    force.setName("LennardJones14")
    for name in ("sigma", "epsilon"):
        force.addPerBondParameter(name)
    own = prepared.potentials[0].atoms
    for pair in ((int(own[0]), int(own[4])), (0, 1)):
        force.addBond(*pair, [0.3, 0.5])
    system.addForce(force)
    remove_inner_terms(system, prepared.potentials[0])
    assert [list(force.getBondParameters(k)[2]) for k in range(2)] == [[0.0, 0.0], [0.3, 0.5]]


def test_bound_ligands_and_those_with_metals_stay_rigid_and_are_named(with_ligands):  # noqa: F811
    bound = app.Modeller(with_ligands.topology, with_ligands.positions).topology
    atoms = {(atom.residue.id, atom.name): atom for atom in bound.atoms()}
    bound.addBond(atoms["502", "C1"], atoms["1", "N"])
    prepared = prepare(
        replace(with_ligands, topology=bound), ligand_forcefield="xtb", ligand_potentials={"ACM": Pulled()}
    )
    assert [placed.label for placed in prepared.potentials] == ["A ACM 501"]
    assert any("Bound to other residues" in sentence for sentence in prepared.report.sentences)


def test_a_hydrogen_goes_to_the_longer_bond_of_an_acid(tmp_path):
    """Both oxygens of acetic acid are alike but for the lengths of their bonds."""
    from openmm_density.models.ligand_hydrogens import CompleteMolecule, built_hydrogens

    elements, bonds = ["C", "C", "O", "O", "H"], [(0, 1), (1, 2), (1, 3), (3, 4)]
    places = np.array([(-1.5, 0, 0), (0, 0, 0), (0.6, 1.05, 0), (0.7, -1.15, 0), (1.65, -1.0, 0)])
    molecule = CompleteMolecule(elements, bonds, places, "of a test")
    for swapped in (False, True):
        own = places[[0, 1, 3, 2]] if swapped else places[:4]
        (hydrogen,) = built_hydrogens(molecule, "A ACY 1", elements[:4], bonds[:3], own)
        assert hydrogen.parent == (2 if swapped else 3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ligand_potentials": {"XYZ": Pulled()}}, "has nothing to parametrise"),
        ({"ligand_potentials": {"ACM": Pulled(bonds=BONDS[1:])}}, "are not the 4 of its potential"),
        ({"ligands": {"XYZ": "C"}}, "found XYZ: give SMILES"),
    ],
)
def test_what_cannot_have_a_potential_is_told(with_ligands, changed, said):  # noqa: F811
    with pytest.raises(InputError) as told:
        prepare(
            with_ligands, **{"ligand_forcefield": "xtb", "ligand_potentials": {"ACM": Pulled()}, **changed}
        )
    assert said in str(told.value) and "\n" not in str(told.value)
