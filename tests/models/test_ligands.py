"""Ligands with parameters: openmmforcefields is not on PyPI with what it needs, so a stand-in with its API serves."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from openmm import unit

from openmm_density.base.errors import InputError
from openmm_density.models import prepare, read_model
from openmm_density.models.ligands import dictionary_smiles

from ..fragments import write_fragment
from ..small_models import hetatm

# Acetamide: both of the ways in which hydrogens are built are in the methyl and the amide group.
SMILES = "CC(=O)N"
ELEMENTS = (6, 6, 8, 7, 1, 1, 1, 1, 1)
BONDS = ((0, 1), (1, 2), (1, 3), (0, 4), (0, 5), (0, 6), (3, 7), (3, 8))
PLACES = np.array(
    [
        (-1.29, -0.61, 0.00), (0.05, 0.11, 0.00), (0.15, 1.34, 0.00), (1.14, -0.71, 0.00), (-2.10, 0.12, 0.00),
        (-1.38, -1.24, 0.89), (-1.38, -1.24, -0.89), (2.06, -0.29, 0.00), (1.07, -1.72, 0.00),
    ]
)  # fmt: skip


class Molecule:
    """What is used of openff.toolkit's Molecule."""

    def __init__(self, elements, bonds, places):
        self.atoms = [SimpleNamespace(atomic_number=number) for number in elements]
        self.bonds = [SimpleNamespace(atom1_index=a, atom2_index=b) for a, b in bonds]
        self._places = places

    @classmethod
    def from_smiles(cls, smiles, allow_undefined_stereo=False):
        if smiles == SMILES:
            return cls(ELEMENTS, BONDS, PLACES)
        if smiles == "C":
            return cls((6,), (), np.zeros((1, 3)))
        raise ValueError("Unable to read\nSMILES")

    def generate_conformers(self, n_conformers=10):
        assert n_conformers == 1
        self.conformers = [SimpleNamespace(m_as=lambda name: {"angstrom": self._places}[name])]


class Generator:
    """What is used of openmmforcefields' template generators."""

    def __init__(self, molecules=None):
        self.forcefield = "openff-2.2.1"
        self.molecules = molecules
        self.asked = []

    def generator(self, forcefield, residue):
        self.asked.append(residue.name)
        symbols = [atom.element.symbol for atom in residue.atoms()]
        assert sorted(symbols) == list("CCHHHHHNO")
        forcefield.loadFile(io.StringIO(self.xml(residue)))
        return True

    def xml(self, residue, scale="0.8333333333333334"):
        atoms = list(residue.atoms())
        types = "".join(
            f'<Type name="lig-{atom.name}" class="lig-{atom.name}" element="{atom.element.symbol}" '
            f'mass="{atom.element.mass.value_in_unit(unit.dalton)}"/>'
            for atom in atoms
        )
        members = "".join(f'<Atom name="{a.name}" type="lig-{a.name}" charge="0.1"/>' for a in atoms)
        bonds = "".join(
            f'<Bond atomName1="{a.name}" atomName2="{b.name}"/>' for a, b in residue.internal_bonds()
        )
        spheres = "".join(f'<Atom type="lig-{a.name}" sigma="0.3" epsilon="0.4"/>' for a in atoms)
        return (
            f"<ForceField><AtomTypes>{types}</AtomTypes><Residues><Residue name='{SMILES}'>{members}{bonds}</Residue></Residues>"
            f'<NonbondedForce coulomb14scale="{scale}" lj14scale="0.5"><UseAttributeFromResidue name="charge"/>{spheres}'
            "</NonbondedForce></ForceField>"
        )


@pytest.fixture
def installed(monkeypatch):
    """Put the stand-ins in the place of openmmforcefields and OpenFF toolkit."""
    modules = {
        name: ModuleType(name)
        for name in ("openff", "openff.toolkit", "openmmforcefields", "openmmforcefields.generators")
    }
    modules["openff.toolkit"].Molecule = Molecule
    generators = modules["openmmforcefields.generators"]
    generators.SMIRNOFFTemplateGenerator = Generator
    generators.GAFFTemplateGenerator = type("Gaff", (Generator,), {})
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return generators


@pytest.fixture(scope="module")
def with_ligands(tmp_path_factory):
    """Return a peptide with two acetamides, of which the second has its hydrogens."""
    path = tmp_path_factory.mktemp("ligands") / "model.pdb"
    lines = [line for line in write_fragment(path, residues=5).read_text().splitlines() if line[:4] == "ATOM"]
    serial = 900
    for number, atoms in ((501, range(4)), (502, range(9))):
        for k in atoms:
            symbol = {6: "C", 7: "N", 8: "O", 1: "H"}[ELEMENTS[k]]
            name, place = f"{symbol}{k + 1}", PLACES[k] + np.array([40.0, 0.0, 10.0 * (number - 500)])
            serial += 1
            lines.append(hetatm(serial, name, "ACM", number, place, symbol))
    path.write_text("\n".join([*lines, "END", ""]))
    return read_model(path)


def test_a_ligand_is_completed_and_parametrised(with_ligands, installed):
    prepared = prepare(with_ligands, ligand_forcefield="openff", ligands={"ACM": SMILES})
    assert prepared.report.ligands == ["A ACM 501 (openff-2.2.1)", "A ACM 502 (openff-2.2.1)"]
    assert not prepared.report.rigid_residues and not prepared.report.dropped_hydrogens
    assert "parametrised by their SMILES" in " ".join(prepared.report.sentences)
    found = {residue.id: residue for residue in prepared.topology.residues() if residue.name == "ACM"}
    for number, residue in found.items():
        places = np.array([prepared.positions[atom.index] for atom in residue.atoms()])
        expected = PLACES + np.array([40.0, 0.0, 10.0 * (int(number) - 500)])
        distances = np.linalg.norm(places[:, None] - expected[None], axis=2)
        # The first has the geometry of its molecule, hydrogens included; the second kept its own.
        assert distances.min(axis=0).max() < 1e-2, number
    system = prepared.system()
    charges = next(force for force in system.getForces() if type(force).__name__ == "NonbondedForce")
    first = next(found["501"].atoms()).index
    charge = charges.getParticleParameters(first)[0]
    assert charge.value_in_unit(unit.elementary_charge) == pytest.approx(0.1)


def test_without_a_force_field_for_them_they_stay_rigid(with_ligands):
    assert len(prepare(with_ligands).report.rigid_residues) == 2


def test_a_dictionary_gives_the_smiles(with_ligands, installed, tmp_path):
    dictionary = tmp_path / "ACM.cif"
    dictionary.write_text(
        "data_comp_ACM\nloop_\n_pdbx_chem_comp_descriptor.comp_id\n_pdbx_chem_comp_descriptor.type\n"
        "_pdbx_chem_comp_descriptor.program\n_pdbx_chem_comp_descriptor.descriptor\n"
        'ACM SMILES ACDLabs "NC(=O)C"\nACM SMILES_CANONICAL CACTVS "CC(=O)N"\nACM InChIKey InChI XXXX\n'
    )
    assert dictionary_smiles(dictionary) == {"ACM": SMILES}
    prepared = prepare(with_ligands, ligand_forcefield="gaff", dictionaries=[dictionary])
    assert len(prepared.report.ligands) == 2


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("amber14, or", {"ligand_forcefield": "amber14, or"}),
        ("conda-forge", {"ligand_forcefield": "openff", "missing": True}),
        ("can only be used with ligand_forcefield", {"ligands": {"ACM": SMILES}}),
        ("found XYZ: give SMILES", {"ligand_forcefield": "openff", "ligands": {"XYZ": "C"}}),
        ("force field knows, found MET:", {"ligand_forcefield": "openff", "ligands": {"MET": "C"}}),
        ("nothing to parametrise", {"ligand_forcefield": "openff"}),
        (
            "must be SMILES of molecules (Unable to read SMILES)",
            {"ligand_forcefield": "openff", "ligands": {"ACM": "C(("}},
        ),
        (
            "4 heavy atoms and their bonds are not the 1",
            {"ligand_forcefield": "openff", "ligands": {"ACM": "C"}},
        ),
        (
            "1-4 scales",
            {"ligand_forcefield": "openff", "ligands": {"ACM": SMILES}, "forcefield": "charmm36"},
        ),
    ],
)
def test_what_cannot_be_parametrised_is_told(with_ligands, installed, monkeypatch, named, options):
    options = dict(options)
    if options.pop("missing", False):
        monkeypatch.setitem(sys.modules, "openmmforcefields", None)
        monkeypatch.delitem(sys.modules, "openmmforcefields.generators")
        options["ligands"] = {"ACM": SMILES}
    with pytest.raises(InputError) as told:
        prepare(with_ligands, **options)
    assert named in str(told.value) and "\n" not in str(told.value)
