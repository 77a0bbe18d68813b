"""What is fitted is one conformer, whatever names and numbers its residues have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gemmi
import numpy as np
import pytest

from openmm_density.models import Model, read_model
from openmm_density.models.conformer_topology import all_conformers
from openmm_density.models.structure_files import write_model_cif, write_pdb

ZOO = Path(__file__).parents[1] / "data" / "zoo"


def _fitted(model: Model) -> dict[tuple[str, int, str], set[str]]:
    """Return the labels of the fitted atoms of each residue that has some."""
    labels: dict[tuple[str, int, str], set[str]] = {}
    for atom in model.topology.atoms():
        record = model.records[atom.index]
        if record.altloc:
            labels.setdefault((record.chain, record.residue_number, atom.residue.name), set()).add(
                record.altloc
            )
    return labels


def _others(model: Model) -> Counter[tuple[str, int, str, str, str]]:
    """Return the numbers of atoms of each conformer that is not fitted, with the residue in whose place it is."""
    residues = list(model.topology.residues())
    return Counter(
        (*record.residue[:2], record.residue_name, record.altloc, residues[place].id)
        for record, place in zip(model.alternates.records, model.alternates.residues)
    )


def _atoms(path: Path) -> list[tuple[object, ...]]:
    """Return what a file says of its atoms, in any order."""
    return sorted(
        (
            *(cra.chain.name, str(cra.residue.seqid), cra.residue.name, cra.atom.name, cra.atom.altloc),
            *(cra.atom.occ, *np.round(cra.atom.pos.tolist(), 3)),
        )
        for cra in gemmi.read_structure(str(path))[0].all()
    )


def test_residues_of_two_names_under_one_number_are_conformers_though_they_share_unlabelled_atoms() -> None:
    model = read_model(ZOO / "1ejg_microheterogeneity.pdb")
    assert [residue.name for residue in model.topology.residues()] == [
        "THR",
        "PRO",
        "GLU",
        "ALA",
        "LEU",
        "CYS",
    ]
    assert _fitted(model) == {
        ("A", number, name): {"A"} for number, name in ((22, "PRO"), (23, "GLU"), (25, "LEU"))
    }
    assert _others(model) == {
        **{("A", 22, "SER", label, "22"): 5 for label in "BC"},
        **{("A", 25, "ILE", label, "25"): 4 for label in "BC"},
        ("A", 23, "GLU", "B", "23"): 4,
    }
    peptides = [(a.residue.id, b.residue.id) for a, b in model.topology.bonds() if a.residue is not b.residue]
    assert peptides == [("21", "22"), ("22", "23"), ("23", "24"), ("24", "25"), ("25", "26")]


def test_an_unlabelled_atom_is_of_the_conformer_of_another_name_too(tmp_path: Path) -> None:
    """Serine is chosen, whose nitrogen the file has under proline."""
    text = (ZOO / "1ejg_microheterogeneity.pdb").read_text()
    lines = [f"{line[:54]}  0.60{line[60:]}" if line[16:20] == "BSER" else line for line in text.splitlines()]
    path = tmp_path / "serine.pdb"
    path.write_text("\n".join([*lines, ""]))
    model = read_model(path)
    serine = list(model.topology.residues())[1]
    assert (serine.name, [atom.name for atom in serine.atoms()]) == ("SER", ["N", "CA", "C", "O", "CB", "OG"])
    assert [model.records[atom.index].residue_name for atom in serine.atoms()] == ["PRO", *["SER"] * 5]
    bonds = {
        frozenset((a.name, b.name)) for a, b in model.topology.bonds() if {a.residue, b.residue} == {serine}
    }
    assert frozenset(("N", "CA")) in bonds and len(bonds) == 5
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    assert _atoms(tmp_path / "out.pdb") == _atoms(path)


@pytest.mark.parametrize("suffix", ["pdb", "cif"])
def test_residues_of_two_numbers_in_one_place_are_conformers(suffix: str, tmp_path: Path) -> None:
    """Galactose and its anomer, in another chain, share the sugar that they are bonded to."""
    model = read_model(ZOO / "3zw1_anomers.pdb")
    assert [residue.name for residue in model.topology.residues()] == ["GLA", "NAG", "FUC", "GAL"]
    assert _others(model) == {("E", 1, "GAL", "A", "100"): 12}
    assert not model.short_contacts
    joined = {
        frozenset(f"{atom.residue.name} {atom.name}" for atom in bond)
        for bond in model.topology.bonds()
        if bond[0].residue is not bond[1].residue
    }
    assert joined == {
        frozenset(("GLA O3", "NAG C1")),
        frozenset(("NAG O3", "FUC C1")),
        frozenset(("NAG O4", "GAL C1")),
    }
    write = write_pdb if suffix == "pdb" else write_model_cif
    path = tmp_path / f"out.{suffix}"
    write(path, model, model.positions)
    assert _atoms(path) == _atoms(ZOO / "3zw1_anomers.pdb")
    links = {
        frozenset(
            (end.chain_name, end.res_id.seqid.num, end.altloc.strip("\0"))
            for end in (link.partner1, link.partner2)
        )
        for link in gemmi.read_structure(str(path)).connections
    }
    assert {frozenset((("E", 1, "A"), ("E", 2, ""))), frozenset((("B", 100, "B"), ("E", 2, "")))} <= links


def test_bonded_residues_are_fitted_in_one_conformer(tmp_path: Path) -> None:
    """Also where each alone has most of another one."""
    path = tmp_path / "dna.cif"
    document = gemmi.cif.read(str(ZOO / "1pfe_backbone.cif"))
    table = document.sole_block().find("_atom_site.", ["auth_seq_id", "label_alt_id", "occupancy"])
    for row in table:
        if row[0] == "1" and row[1] != ".":
            row[2] = "0.53" if row[1] == "A" else "0.47"
    document.write_file(str(path))
    model = read_model(path)
    assert _fitted(model) == {("A", 1, "DG"): {"B"}, ("A", 2, "DC"): {"B"}}
    bond = next((a, b) for a, b in model.topology.bonds() if (a.name, b.name) == ("O3'", "P"))
    assert np.linalg.norm(np.subtract(*(model.positions[atom.index] for atom in bond))) < 1.65


def test_a_conformer_of_another_name_has_bonds_of_its_own() -> None:
    """Serine is not bonded as the proline is in whose place it is."""
    model = read_model(ZOO / "1ejg_microheterogeneity.pdb")
    joined = all_conformers(model).topology
    serines = [residue for residue in joined.residues() if residue.name == "SER"]
    assert [[atom.name for atom in residue.atoms()] for residue in serines] == [
        ["CA", "C", "O", "CB", "OG"]
    ] * 2
    for serine in serines:
        bonds = sorted(
            "-".join(f"{atom.residue.name} {atom.name}" for atom in sorted(bond, key=lambda atom: atom.index))
            for bond in joined.bonds()
            if serine in (bond[0].residue, bond[1].residue)
        )
        assert bonds == [
            *("GLU N-SER C", "PRO N-SER CA", "SER C-SER O", "SER CA-SER C", "SER CA-SER CB", "SER CB-SER OG"),
        ]
