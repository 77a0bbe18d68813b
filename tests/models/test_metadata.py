"""What a file says beside its atoms is written again, where it is true of the model that was fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

from openmm_density.fitting.placement import Placement
from openmm_density.models import prepare, read_model
from openmm_density.models.structure_files import (
    header_of,
    prepared_header,
    write_cif,
    write_model_cif,
    write_pdb,
)

from ..fragments import write_fragment
from ..small_models import hetatm, turned_about, written

OPSIN = "xraymap_3pqr_R32/3pqr.pdb"
HAEMOGLOBIN = "emd3488_5ni1/5ni1_updated.cif"


def _records(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        found.setdefault(line[:6].strip(), []).append(line.rstrip())
    return found


def test_mmcif_and_pdb_carry_what_the_other_told(small_data: Path, tmp_path: Path) -> None:
    for name in (OPSIN, HAEMOGLOBIN):
        model = read_model(small_data / name)
        oracle = gemmi.read_structure(str(small_data / name))
        paths = [tmp_path / name for name in ("fitted.pdb", "fitted_input.cif", "fitted.cif")]
        write_pdb(paths[0], model, model.positions)
        write_model_cif(paths[1], model, model.positions)
        write_cif(paths[2], model.topology, model.positions, model.b_factors, header_of(model))
        for path in paths:
            found = gemmi.read_structure(str(path))
            assert found.resolution == pytest.approx(oracle.resolution), path
            title = found.info["_struct.title"], oracle.info["_struct.title"]
            assert title[0].upper() == title[1].upper()
            chains = {chain.name for chain in found[0]}
            present = {(chain.name, str(residue.seqid)) for chain in found[0] for residue in chain}
            # An end that the cut took off has no place in mmCIF.
            ends, expected_ends = (
                [
                    (helix.start.chain_name, str(helix.start.res_id.seqid), str(helix.end.res_id.seqid))
                    for helix in each.helices
                    if (helix.end.chain_name, str(helix.end.res_id.seqid)) in present
                ]
                for each in (found, oracle)
            )
            assert ends == expected_ends != []
            assert [len(sheet.strands) for sheet in found.sheets] == [len(s.strands) for s in oracle.sheets]
            assert len(found.mod_residues) == len(oracle.mod_residues)
            sequences = read_model(path).metadata.sequences
            expected = model.metadata.sequences
            assert chains & sequences.keys() == chains & expected.keys() != set()
            for chain in chains & sequences.keys():
                assert list(sequences[chain].full_sequence) == list(expected[chain].full_sequence)
    # Residues are numbered along their sequence, across a gap too.
    for chain in gemmi.read_structure(str(tmp_path / "fitted_input.cif"))[0]:
        for residue in chain.get_polymer():
            assert residue.label_seq == residue.seqid.num


def test_characters_that_pdb_has_not_are_kept_in_mmcif(small_data: Path, tmp_path: Path) -> None:
    title = "Cœur de l’hémoglobine, α₂β₂ – " * 6
    text = (small_data / HAEMOGLOBIN).read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("_struct.title")]
    (tmp_path / "in.cif").write_text(text.replace(line, f'_struct.title "{title}"'), encoding="utf-8")
    model = read_model(tmp_path / "in.cif")
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    assert (tmp_path / "out.pdb").read_text().isascii() and "TITLE     C?UR DE L?H" in (
        tmp_path / "out.pdb"
    ).read_text()
    write_model_cif(tmp_path / "out.cif", model, model.positions)
    assert gemmi.read_structure(str(tmp_path / "out.cif")).info["_struct.title"] == title


def test_links_of_a_conformer_that_is_not_fitted_are_kept_with_it(small_data: Path, tmp_path: Path) -> None:
    lines = (small_data / OPSIN).read_text().splitlines()
    # As if lysine 296 had two places, and retinal with it.
    lines = [line for line in lines if not line.startswith("CONECT")]
    moved = []
    for line in lines:
        if line.startswith("ATOM") and line[12:16] == " NZ " and line[17:26] == "LYS A 296":
            moved.append(f"{line[:16]}A{line[17:54]}  0.60{line[60:]}")
            moved.append(
                f"{line[:16]}B{line[17:30]}{float(line[30:38]) + 0.3:8.3f}{line[38:54]}  0.40{line[60:]}"
            )
        elif line.startswith("LINK") and "LYS A 296" in line and "RET" in line:
            assert line[12:16] == " NZ "
            moved += [f"{line[:16]}{altloc}{line[17:]}" for altloc in "AB"]
        else:
            moved.append(line)
    model = read_model(written(tmp_path / "two.pdb", moved))
    assert len(model.alternates) == 24
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    write_model_cif(tmp_path / "out.cif", model, model.positions)
    for path in (tmp_path / "out.pdb", tmp_path / "out.cif"):
        found = [
            end.altloc
            for link in gemmi.read_structure(str(path)).connections
            for end in (link.partner1, link.partner2)
            if end.atom_name == "NZ"
        ]
        assert sorted(found) == ["A", "B"]
    # The simulated atoms are of one conformer.
    header = header_of(model)
    write_cif(tmp_path / "all.cif", model.topology, model.positions, header=header)
    links = gemmi.read_structure(str(tmp_path / "all.cif")).connections
    assert sum("NZ" in (link.partner1.atom_name, link.partner2.atom_name) for link in links) == 1


def test_a_resolution_that_only_the_refinement_told_is_kept(small_data: Path, tmp_path: Path) -> None:
    model = read_model(small_data / "xray_1g8a_P21/1G8A_refined.pdb")
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    remarks = _records(tmp_path / "out.pdb")["REMARK"]
    assert remarks == ["REMARK   2", "REMARK   2 RESOLUTION.    1.23 ANGSTROMS."]


def test_cis_peptides_are_those_that_are_cis_now(tmp_path: Path) -> None:
    path = write_fragment(tmp_path / "model.pdb", residues=12)
    lines = path.read_text().splitlines()
    told = "CISPEP   1 ALA A    8    PRO A    9          0        -3.20"
    path = written(tmp_path / "told.pdb", [told, *(line for line in lines if line.startswith("ATOM"))])
    model = read_model(path)
    atoms = {(atom.residue.id, atom.name): atom.index for atom in model.topology.atoms()}
    write_pdb(tmp_path / "trans.pdb", model, model.positions)
    assert "CISPEP" not in _records(tmp_path / "trans.pdb")
    behind = [atom.index for atom in model.topology.atoms() if int(atom.residue.id) > 4]
    positions = turned_about(model.positions, atoms["4", "C"], atoms["5", "N"], behind, np.pi)
    write_pdb(tmp_path / "cis.pdb", model, positions)
    (record,) = _records(tmp_path / "cis.pdb")["CISPEP"]
    residues = [residue.name for residue in list(model.topology.residues())[3:5]]
    assert record.split()[2:8] == [residues[0], "A", "4", residues[1], "A", "5"]
    write_model_cif(tmp_path / "cis.cif", model, positions)
    (peptide,) = gemmi.read_structure(str(tmp_path / "cis.cif")).cispeps
    assert abs(peptide.reported_angle) < 30


def test_no_occupancy_or_charge_changes(tmp_path: Path) -> None:
    path = write_fragment(tmp_path / "model.pdb", residues=6)
    lines = [line for line in path.read_text().splitlines() if line.startswith("ATOM")]
    # A water on a threefold axis, as a file has it.
    water = hetatm(900, " O", "HOH", 300, np.array([40.0, 0.0, 0.0]), "O").replace("  1.00 20", "  0.33 20")
    zinc = hetatm(901, "ZN", " ZN", 301, np.array([46.0, 0.0, 0.0]), "ZN") + "2+"
    prepared = prepare(read_model(written(tmp_path / "water.pdb", [*lines, water, zinc])))
    write_cif(
        tmp_path / "fitted.cif", prepared.topology, prepared.positions, header=prepared_header(prepared)
    )
    found = gemmi.read_structure(str(tmp_path / "fitted.cif"))[0]
    occupancies = {
        (cra.residue.name, cra.atom.name): round(cra.atom.occ, 2)
        for cra in found.all()
        if cra.residue.name == "HOH" or cra.atom.occ != 1
    }
    assert occupancies == {("HOH", name): 0.33 for name in ("O", "H1", "H2")}
    assert {cra.residue.name: cra.atom.charge for cra in found.all() if cra.atom.charge} == {"ZN": 2}


def test_a_model_that_was_laid_elsewhere_has_no_operators(small_data: Path, tmp_path: Path) -> None:
    model = read_model(small_data / OPSIN)
    placement = Placement(np.eye(3).tolist(), [1.0, 2.0, 3.0], 1.0, 0.0, 0.0, 0.0, 0.0)
    moved = placement.apply(model)
    write_pdb(tmp_path / "out.pdb", moved, moved.positions)
    records = _records(tmp_path / "out.pdb")
    numbers = {int(line[6:10]) for line in records["REMARK"]}
    assert not numbers & {290, 300, 350} and {2, 200, 280, 465} <= numbers
    assert "CRYST1" not in records and records["SEQRES"]
    write_model_cif(tmp_path / "out.cif", moved, moved.positions)
    assert not len(gemmi.read_structure(str(tmp_path / "out.cif")).assemblies)
    # The input's metadata are its own.
    assert {290, 350} <= {int(line[6:10]) for line in model.metadata.structure.raw_remarks}
    # A crystal's model in a map that is none stays where it is, without its symmetry.
    write_pdb(tmp_path / "out.pdb", replace(model, space_group=""), model.positions)
    numbers = {int(line[6:10]) for line in _records(tmp_path / "out.pdb")["REMARK"]}
    assert 290 not in numbers and 350 in numbers


def test_a_sequence_in_the_names_of_charmm_is_kept_with_those_of_the_atoms(
    small_data: Path, tmp_path: Path
) -> None:
    lines = (
        (small_data / "emd5925_frag" / "5925_native.pdb").read_text().replace(" HIS ", " HSD ").splitlines()
    )
    atoms = [line for line in lines if line.startswith("ATOM")]
    chain = atoms[0][21]
    names = list({line[22:27]: line[17:20] for line in atoms}.values())
    # Two residues that nobody has seen, at the end.
    names += ["HSE", "GLY"]
    sequence = [
        f"SEQRES {number // 13 + 1:3d} {chain} {len(names):4d}  {' '.join(names[number : number + 13])}"
        for number in range(0, len(names), 13)
    ]
    (tmp_path / "charmm.pdb").write_text("\n".join([*sequence, *atoms, "TER", "END"]) + "\n")
    model = read_model(tmp_path / "charmm.pdb")
    assert "HSD" in names and "HIS" in {residue.name for residue in model.topology.residues()}
    write_cif(tmp_path / "fitted.cif", model.topology, model.positions, model.b_factors, header_of(model))
    block = gemmi.cif.read(str(tmp_path / "fitted.cif")).sole_block()
    told = [*block.find_values("_entity_poly_seq.mon_id")]
    assert told == [{"HSD": "HIS", "HSE": "HIS"}.get(name, name) for name in names]
    # The input's atoms keep their names, and the sequence with them.
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    assert _records(tmp_path / "out.pdb")["SEQRES"] == [line.ljust(len(line)) for line in sequence]
