"""What users name is read as one molecule with all hydrogens, or refused in a sentence that says what to give."""

import sys

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.distillation.molecule import ligand_of, read_molecule

Chem = pytest.importorskip("rdkit.Chem", reason="the extra [ligands] is not installed")

BOG = "CCCCCCCCO[C@@H]1O[C@H](CO)[C@@H](O)[C@H](O)[C@H]1O"
COMPONENT = """data_{0}
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
{0} C1 C
{0} O1 O
loop_
_pdbx_chem_comp_descriptor.comp_id
_pdbx_chem_comp_descriptor.type
_pdbx_chem_comp_descriptor.descriptor
{0} SMILES_CANONICAL {1}
"""


def test_a_smiles_has_its_hydrogens_bonds_and_charge():
    ligand = ligand_of(read_molecule("CC(=O)[O-]"))
    assert (ligand.elements, ligand.charge) == ((6, 6, 8, 8, 1, 1, 1), -1)
    assert {(0, 1, 1.0), (1, 2, 2.0), (1, 3, 1.0)} < set(ligand.bonds)
    assert ligand.names == ("C1", "C2", "O1", "O2", "H1", "H2", "H3")
    assert ligand.smiles == "CC(=O)[O-]"
    lengths = [np.linalg.norm(ligand.positions[i] - ligand.positions[j]) for i, j, _ in ligand.bonds]
    assert min(lengths) > 0.1 and max(lengths) < 0.17


def test_a_model_s_ligand_keeps_its_atoms_and_places(small_data):
    path = small_data / "xraymap_3pqr_R32" / "3pqr.pdb"
    ligand = ligand_of(read_molecule(path, residue="BOG", smiles=BOG))
    assert (len(ligand), sum(number > 1 for number in ligand.elements)) == (48, 20)
    lines = [line for line in path.read_text().splitlines() if line[17:20] == "BOG"][:20]
    assert list(ligand.names[:20]) == [line[12:16].strip() for line in lines]
    places = [[float(line[k : k + 8]) / 10 for k in (30, 38, 46)] for line in lines]
    np.testing.assert_allclose(ligand.positions[:20], places, atol=1e-6)
    assert Chem.CanonSmiles(BOG) == ligand.smiles


def test_a_model_s_chemistry_comes_from_a_dictionary(small_data, tmp_path):
    dictionary = tmp_path / "BOG.cif"
    dictionary.write_text(COMPONENT.format("BOG", f'"{BOG}"'))
    path = small_data / "xraymap_3pqr_R32" / "3pqr.pdb"
    assert len(ligand_of(read_molecule(path, residue="BOG", dictionaries=[dictionary]))) == 48


def test_a_component_is_read_by_its_file_or_its_name(tmp_path):
    path = tmp_path / "MOH.cif"
    path.write_text(COMPONENT.format("MOH", "CO"))
    assert ligand_of(read_molecule(path)).smiles == "CO"
    assert ligand_of(read_molecule("MOH", dictionaries=[path])).smiles == "CO"
    path.write_text(COMPONENT.format("MOH", "CO") + COMPONENT.format("EOH", "CCO"))
    assert ligand_of(read_molecule(path, residue="EOH")).smiles == "CCO"
    with pytest.raises(InputError, match="has the components EOH, MOH: choose one by residue"):
        read_molecule(path)


@pytest.mark.parametrize("ending", ["sdf", "mol", "mol2"])
def test_molecule_files_are_read_with_their_hydrogens(tmp_path, ending):
    path = tmp_path / f"methanol.{ending}"
    molecule = read_molecule("CO")
    if ending == "mol2":
        path.write_text(MOL2)
    else:
        path.write_text(Chem.MolToMolBlock(molecule) + ("$$$$\n" if ending == "sdf" else ""))
    ligand = ligand_of(read_molecule(path))
    assert (ligand.smiles, len(ligand)) == ("CO", 6)
    if ending != "mol2":
        places = molecule.GetConformer().GetPositions() / 10
        np.testing.assert_allclose(ligand.positions, places, atol=1e-5)


MOL2 = """@<TRIPOS>MOLECULE
methanol
6 5 1
SMALL
NO_CHARGES

@<TRIPOS>ATOM
1 C 0.0 0.0 0.0 C.3 1 MOH 0.0
2 O 1.42 0.0 0.0 O.3 1 MOH 0.0
3 H1 -0.36 1.03 0.0 H 1 MOH 0.0
4 H2 -0.36 -0.51 0.89 H 1 MOH 0.0
5 H3 -0.36 -0.51 -0.89 H 1 MOH 0.0
6 H4 1.74 0.9 0.0 H 1 MOH 0.0
@<TRIPOS>BOND
1 1 2 1
2 1 3 1
3 1 4 1
4 1 5 1
5 2 6 1
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nonsense", "must be a SMILES, the name of a component of a dictionary, or a file ending in"),
        (
            "C1CC(",
            "cannot read it as a SMILES .its brackets, ring numbers, bonds or symbols do not go together.: correct",
        ),
        (
            "C(C)(C)(C)(C)C",
            "cannot read it as a SMILES .Explicit valence for atom # 0 C, 5, is greater than permitted.:",
        ),
        ("missing.sdf", "no such file"),
        ("missing.pdb", "no such file"),
        ("[Na+].[Cl-]", "must be one molecule, found 2 pieces"),
        ("C[CH2]", "unpaired electrons"),
        ("C[Fe]", "found Fe: keep it rigid"),
        ("CC(F)O", "handedness of 1 chiral centre is not given, of C2 first"),
        ("CP(=O)(O)OC", "handedness of 1 chiral centre is not given, of P2 first"),
        ("CC=CC", "which groups are on one side of the double bond C2=C3 is open: give a SMILES that says"),
        ("C" * 80, "must have 2 to 200 atoms with its hydrogens, found 242"),
        ("[He]", "found He"),
    ],
)
def test_what_cannot_be_a_ligand_is_refused(source, said):
    with pytest.raises(InputError, match=said):
        read_molecule(source)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "several ligands .*: choose one by residue"),
        ({"residue": "BOG"}, "does not say the bond orders and hydrogens of BOG: pass its SMILES as smiles"),
        ({"residue": "BOG", "smiles": "CCO"}, "20 heavy atoms of BOG and their bonds are not the 3"),
        ({"residue": "BOG", "smiles": "C" * 20}, "20 heavy atoms of BOG and their bonds are not the 20"),
        ({"residue": "BOG", "smiles": "x"}, "must be a SMILES"),
        ({"residue": "XYZ"}, 'no ligand "XYZ": choose one of'),
    ],
)
def test_an_open_question_of_a_model_is_asked(small_data, given, said):
    with pytest.raises(InputError, match=said):
        read_molecule(small_data / "xraymap_3pqr_R32" / "3pqr.pdb", **given)


def test_a_model_without_ligands_and_a_file_of_several_molecules_are_refused(small_data, tmp_path):
    with pytest.raises(InputError, match="no ligand of two atoms or more"):
        read_molecule(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb")
    path = tmp_path / "two.sdf"
    path.write_text(2 * (Chem.MolToMolBlock(read_molecule("CO")) + "$$$$\n"))
    with pytest.raises(InputError, match="must hold one molecule, found 2"):
        read_molecule(path)
    path.write_text("no molecule\n")
    with pytest.raises(InputError, match="molecule"):
        read_molecule(path)


def test_without_rdkit_one_sentence_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(InputError, match=r'needs rdkit .*: pip install "openmm-density\[ligands\]"'):
        read_molecule("CO")
