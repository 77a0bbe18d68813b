from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.base.wording import residue_label
from openmm_density.models import prepare
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.structure_files import prepared_header, write_cif, write_model_cif, write_pdb
from openmm_density.models.structures import Model, read_model

from ..small_models import ADK_OPEN, FRAGMENT, bonds_between_residues, fragment_lines, hetatm, written

MODELS = (
    "emd3488_5ni1/5me2.pdb",
    "emd3488_5ni1/5ni1_updated.cif",
    "emd6187_kinesin/1bg2_K_fitted.pdb",
    "emd6187_kinesin/chain_K_box_complete.pdb",
    "emd5925_frag/5925_native.pdb",
    "emd6374_frag/6374_native.pdb",
    "emd21457_ntd/6vyb_Ndom.pdb",
    "qr_6i5a/6i5a_box_complete.pdb",
    "xraymap_3pqr_R32/3pqr.pdb",
    "xray_1g8a_P21/1G8A_refined.pdb",
)


@pytest.mark.parametrize("name", MODELS)
def test_atoms_are_those_of_gemmi_in_the_order_of_the_file(small_data: Path, name: str) -> None:
    model = read_model(small_data / name)
    oracle = gemmi.read_structure(str(small_data / name), merge_chain_parts=False)
    oracle.remove_alternative_conformations()
    places = np.array([cra.atom.pos.tolist() for cra in oracle[0].all()])
    b_factors = np.array([cra.atom.b_iso for cra in oracle[0].all()])
    assert len(model.records) == model.topology.getNumAtoms() == len(places)
    # 3pqr has alternate locations of equal and of different occupancy; gemmi keeps the first of each.
    same = np.all(model.positions == places, axis=1)
    assert same.mean() > 0.99
    np.testing.assert_array_equal(model.b_factors[same], b_factors[same])
    assert all(atom.element is not None for atom in model.topology.atoms())


def test_charmm_names_and_missing_elements_become_standard(tmp_path: Path) -> None:
    prepared = prepare(read_model(ADK_OPEN))
    amber = replace(prepared.model, topology=prepared.topology, positions=prepared.positions)
    write_cif(tmp_path / "amber.cif", prepared.topology, prepared.positions)
    lines = gemmi.read_structure(str(tmp_path / "amber.cif")).make_pdb_string().splitlines()
    names = {"ILE": {"CD1": "CD"}, "MET": {"H2": "HT2", "H3": "HT3"}}
    with_names = []
    for line in (line for line in lines if line.startswith("ATOM")):
        name, residue = line[12:16].strip(), line[17:20]
        name = names.get(residue, {}).get(
            name, {"H": "HN" if int(line[22:26]) > 1 else "HT1", "OXT": "OT2"}.get(name, name)
        )
        residue = "HSD" if residue == "HIS" else residue
        # No element, and a segment in its place.
        with_names.append(
            f"{line[:12]}{name if len(name) > 3 else ' ' + name:<4s} {residue}{line[20:66]}      4AKE"
        )
    charmm = read_model(written(tmp_path / "charmm.pdb", with_names))

    def table(model: Model) -> list[tuple[str, str, list[str]]]:
        return [
            (residue.id, residue.name, sorted(a.name for a in residue.atoms() if not is_hydrogen(a)))
            for residue in model.topology.residues()
        ]

    assert table(charmm) == table(amber)
    assert {record.residue_name for record in charmm.records} >= {"HSD"}
    assert "HT1" in [record.name for record in charmm.records[:20]]
    assert charmm.records[0].segment == "4AKE"
    assert sorted(a.element.symbol for a in charmm.topology.atoms()) == sorted(
        a.element.symbol for a in amber.topology.atoms()
    )
    assert charmm.topology.getNumBonds() == amber.topology.getNumBonds()


def test_no_peptide_bond_across_a_gap(small_data: Path) -> None:
    model = read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb")
    numbers = {
        tuple(sorted((int(a.residue.id), int(b.residue.id))))
        for a, b in model.topology.bonds()
        if {a.name, b.name} == {"C", "N"} and a.residue is not b.residue
    }
    assert all(second == first + 1 for first, second in numbers)
    peptides = sum(residue.name != "NAG" for residue in model.topology.residues())
    assert len(numbers) == peptides - 6


def test_gap_hidden_by_renumbering_is_found(small_data: Path, tmp_path: Path) -> None:
    kept = [line for line in fragment_lines(small_data, 1, 20) if not 8 <= int(line[22:26]) <= 11]
    renumbered = [
        f"{line[:22]}{int(line[22:26]) - (4 if int(line[22:26]) > 11 else 0):4d}{line[26:]}" for line in kept
    ]
    model = read_model(written(tmp_path / "gap.pdb", renumbered))
    assert [len(chain) for chain in model.topology.chains()] == [7, 9]
    assert frozenset(("7.C", "8.N")) not in bonds_between_residues(model.topology)


def test_bonds_of_links_disulphides_and_metals(small_data: Path) -> None:
    spike = bonds_between_residues(read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb").topology)
    assert {frozenset(("61.ND2", "1301.C1")), frozenset(("131.SG", "166.SG"))} <= spike
    haem = read_model(small_data / "emd3488_5ni1/5ni1_updated.cif").topology
    iron = [bond for bond in bonds_between_residues(haem) if "201.FE" in bond]
    assert sorted(iron, key=sorted) == [frozenset(("201.FE", "87.NE2")), frozenset(("201.FE", "92.NE2"))]
    inside = [b for b in haem.bonds() if b[0].residue is b[1].residue and "FE" in (b[0].name, b[1].name)]
    assert len(inside) == 4 * 4
    opsin = bonds_between_residues(read_model(small_data / "xraymap_3pqr_R32/3pqr.pdb").topology)
    assert {frozenset(("296.NZ", "401.C15")), frozenset(("403.O4", "404.C1"))} <= opsin


def test_best_conformer_is_kept_whole(small_data: Path, tmp_path: Path) -> None:
    lines = []
    for line in fragment_lines(small_data, 1, 3):
        if int(line[22:26]) == 2 and line[12:16].strip() == "CB":
            for altloc, occupancy, x in (("A", 0.30, 1.0), ("B", 0.70, 2.0)):
                lines.append(
                    f"{line[:16]}{altloc}{line[17:30]}{x:8.3f}{line[38:54]}{occupancy:6.2f}{line[60:]}"
                )
        else:
            lines.append(line)
    model = read_model(written(tmp_path / "alt.pdb", lines))
    index = next(k for k, record in enumerate(model.records) if record.altloc)
    assert (model.records[index].altloc, model.positions[index, 0]) == ("B", 2.0)
    assert [(record.name, record.altloc) for record in model.alternates.records] == [("CB", "A")]
    assert model.alternates.positions[0, 0] == 1.0
    assert model.alternates.occupancies == pytest.approx([0.3])
    note = model.notes[0]
    assert note.startswith("1 alternate conformer is not fitted: it moves rigidly")


def test_insertion_codes_first_model_and_hexadecimal_serials(small_data: Path, tmp_path: Path) -> None:
    lines = [
        f"{line[:22]}  10{'ABC'[int(line[22:26]) - 1]}{line[27:]}".replace("ATOM      1", "ATOM  186a0")
        for line in fragment_lines(small_data, 1, 3)
    ]
    path = written(
        tmp_path / "m.pdb", ["MODEL        1", *lines, "ENDMDL", "MODEL        2", *lines, "ENDMDL"]
    )
    model = read_model(path)
    residues = list(model.topology.residues())
    assert [(residue.id, residue.insertionCode) for residue in residues] == [("10", c) for c in "ABC"]
    assert len(list(model.topology.chains())) == 1
    assert len(model.records) == len(lines)
    assert "2 models" in model.notes[0]


@pytest.mark.parametrize(
    ("chain", "code", "label"), [("A", "B", "A HIS 57B"), ("A", " ", "A HIS 57"), (" ", "", "HIS 57")]
)
def test_residues_are_called_alike_with_and_without_a_chain_name(chain: str, code: str, label: str) -> None:
    topology = app.Topology()
    assert residue_label(topology.addResidue("HIS", topology.addChain(chain), "57", code)) == label


def test_gzip_and_mmcif_give_the_same_model(small_data: Path, tmp_path: Path) -> None:
    plain = read_model(small_data / FRAGMENT)
    packed = tmp_path / "model.pdb.gz"
    packed.write_bytes(gzip.compress((small_data / FRAGMENT).read_bytes()))
    gemmi.read_structure(str(small_data / FRAGMENT)).make_mmcif_document().write_file(
        str(tmp_path / "model.cif")
    )
    for path in (packed, tmp_path / "model.cif"):
        other = read_model(path)
        np.testing.assert_allclose(other.positions, plain.positions, atol=1e-9)
        assert bonds_between_residues(other.topology) == bonds_between_residues(plain.topology)
        assert [r.name for r in other.records] == [r.name for r in plain.records]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.pdb", None, "no such file"),
        ("empty.pdb", "", "no atoms"),
        ("model.xyz", "3", "does not end in"),
        ("bad.cif", "this is not a cif", "mmCIF"),
        ("none.cif", "data_x\n_cell.length_a 3\n", "_atom_site"),
        ("broken.pdb.gz", b"\x1f\x8b\x08broken", "gzip"),
    ],
)
def test_reading_errors_are_one_sentence(tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_model(path)
    assert name in str(caught.value) and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_atoms_in_one_place_than_there_is_room_for_are_refused_at_once(tmp_path: Path) -> None:
    lines = [
        hetatm(k + 1, f"C{k % 100}", "LIG", k // 100 + 1, np.array([1.0 + k % 7 * 0.001, 1.0, 1.0]), "C")
        for k in range(4000)
    ]
    with pytest.raises(
        InputError, match=r"atom A LIG 1 C0 has 3999 others within 3\.2 Å, which is impossible"
    ):
        read_model(written(tmp_path / "heap.pdb", lines))
    assert len(read_model(written(tmp_path / "heap.pdb", lines[:60])).records) == 60


def test_an_atom_of_no_known_element_stays_unknown(small_data: Path, tmp_path: Path) -> None:
    """As the PDB names what nobody could name, with its element and without."""
    lines = fragment_lines(small_data)
    corner = read_model(small_data / FRAGMENT).positions.max(axis=0)
    lines.append(hetatm(900, "UNK", "UNX", 301, corner + 5, "X"))
    lines.append(hetatm(901, "UNK", "UNX", 302, corner + 9, " "))
    lines.append(hetatm(902, "U", "U1", 303, corner + 13, " "))
    model = read_model(written(tmp_path / "unknown.pdb", lines))
    assert [record.element for record in model.records[-3:]] == ["X", "X", "U"]
    assert any("2 atoms of no known element (A UNX 301 UNK, A UNX 302 UNK)" in note for note in model.notes)
    # It has a weight that is neither nothing nor uranium's.
    masses = [atom.element.mass.value_in_unit(unit.dalton) for atom in model.topology.atoms()]
    assert masses[-3] == pytest.approx(np.mean([mass for mass in masses[:-3] if mass > 2]), abs=1.5)
    prepared = prepare(model)
    write_pdb(tmp_path / "m.pdb", model, model.positions + 1.0)
    write_model_cif(tmp_path / "m.cif", model, model.positions + 1.0)
    write_cif(tmp_path / "p.cif", prepared.topology, prepared.positions, header=prepared_header(prepared))
    for name in ("m.pdb", "m.cif", "p.cif"):
        structure = gemmi.read_structure(str(tmp_path / name))
        found = {r.name: atom.element.name for chain in structure[0] for r in chain for atom in r}
        assert (found["UNX"], found["U1"]) == ("X", "U")


def test_a_hydrogen_bond_that_a_file_lists_is_none(small_data: Path, tmp_path: Path) -> None:
    lines = [line for line in (small_data / FRAGMENT).read_text().splitlines() if line.startswith("ATOM")]
    polar = {
        int(x[6:11]): np.array([float(x[k : k + 8]) for k in (30, 38, 46)])
        for x in lines
        if x[12:14] in (" N", " O")
    }
    number = {int(x[6:11]): int(x[22:26]) for x in lines}
    i, j = next(
        (i, j)
        for i in polar
        for j in polar
        if number[j] > number[i] + 2 and 2.7 < np.linalg.norm(polar[i] - polar[j]) < 2.95
    )
    given = written(tmp_path / "plain.pdb", lines)
    listed = written(tmp_path / "listed.pdb", [*lines, f"CONECT{i:5d}{j:5d}"])
    expected = bonds_between_residues(read_model(given).topology)
    assert bonds_between_residues(read_model(listed).topology) == expected
    assert read_model(listed).notes == [
        "1 bonds of the file join atoms that are too far apart and were left out."
    ]
