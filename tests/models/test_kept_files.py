"""Nothing of an input file is lost where a fit has no reason to change it, character by character."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting.placement import Placement
from openmm_density.models import prepare, read_model
from openmm_density.models.kept_files.cif_document import STALE_BEGINNING, STALE_CATEGORIES
from openmm_density.models.metadata import STALE_REMARKS, remark_number
from openmm_density.models.structure_files import (
    header_of,
    prepared_header,
    write_cif,
    write_model_cif,
    write_pdb,
)

from ..conftest import PROJECT, SMALL_DATA
from ..fragments import write_fragment
from ..small_models import hetatm, turned_about, written

HAEMOGLOBIN = "emd3488_5ni1/5ni1_updated.cif"


def _structures() -> list[Path]:
    """Return all structures that ship, and those of the whole data where they are, one of each group of alike ones."""
    folders = [PROJECT / "examples" / "data", SMALL_DATA]
    whole = Path(os.environ.get("OPENMM_DENSITY_DATA") or PROJECT.parent / "shared" / "data")
    paths = [path for folder in (*folders, whole) for path in sorted(folder.rglob("*"))]
    return [path for path in paths if path.suffix in (".pdb", ".cif") and "_original_" not in path.name]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", _structures(), ids=lambda path: f"{path.parents[1].name}-{path.name}")
def test_a_model_that_did_not_move_comes_back(path: Path, tmp_path: Path) -> None:
    # What is taken for a prediction has B factors in the place of its confidence.
    model = read_model(path, predicted=False)
    out = tmp_path / f"out{path.suffix}"
    (check_pdb if path.suffix == ".pdb" else check_cif)(path, out, model)
    # gemmi as an independent reader: of every atom all that it reads.
    before, after = (_atoms(gemmi.read_structure(str(each))) for each in (path, out))
    # They are filled in where the file leaves them open, for which gemmi has the columns of names.
    has_elements = path.suffix == ".cif" or _tells_elements(path)
    assert before.keys() == after.keys()
    for name, atom in before.items():
        assert after[name][:-1] == atom[:-1], name
        assert not has_elements or atom[-1] == after[name][-1], name


def _tells_elements(path: Path) -> bool:
    return any(line.startswith("ATOM") and line[76:78].strip() for line in path.read_text().splitlines())


def _atoms(structure: gemmi.Structure) -> dict[tuple[object, ...], tuple[object, ...]]:
    found = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for cra in structure[0].all():
        atom, residue = cra.atom, cra.residue
        name = (cra.chain.name, str(residue.seqid), residue.name, atom.name, atom.altloc)
        counts[name] += 1
        found[(*name, counts[name])] = (
            *(atom.pos.tolist(), atom.occ, atom.b_iso, atom.charge, atom.aniso.elements_pdb()),
            *(residue.het_flag, residue.segment, residue.subchain, residue.label_seq, residue.entity_id),
            atom.element.name,
        )
    return found


def check_pdb(path: Path, out: Path, model: object) -> None:
    left_out = write_pdb(out, model, model.positions)
    before, after = _lines(path.read_text()), _lines(out.read_text())
    # All but columns 77-78, where the element may be missing.
    before, after = ([f"{line[:76]:<76}" + line[78:] for line in lines] for lines in (before, after))
    lost, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
    stale = {line for line in lost if line.startswith("REMARK") and remark_number(line) in STALE_REMARKS}
    assert {line[:6] for line in lost if line not in stale} <= {"MASTER"}
    # What was not named before: cis peptides, bonds, the resolution that only a refinement's statistics told, the end.
    assert {line[:6].strip() for line in new} <= {"CISPEP", "LINK", "SSBOND", "REMARK", "MASTER", "END"}
    assert [line for line in after if line not in new] == [line for line in before if line not in lost]
    assert bool(stale) == any("REMARK" in sentence for sentence in left_out)


def check_cif(path: Path, out: Path, model: object) -> None:
    left_out = write_model_cif(out, model, model.positions)
    before, after = (gemmi.cif.read(str(each)).sole_block() for each in (path, out))
    stale = set()
    for name in before.get_mmcif_category_names():
        old, new = (block.get_mmcif_category(name, raw=True) for block in (before, after))
        if name in STALE_CATEGORIES or name.startswith(STALE_BEGINNING):
            stale.add(name.rstrip("."))
            assert not new
        elif name == "_refine.":
            assert new["ls_d_res_high"] == old["ls_d_res_high"] and new.items() <= old.items()
        else:
            assert new == old, name
    assert set(after.get_mmcif_category_names()) <= set(before.get_mmcif_category_names())
    assert all(any(name in sentence for sentence in left_out) for name in stale)


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Return a PDB file with all that files have, of a fragment of a real model."""
    path = write_fragment(tmp_path / "fragment.pdb", residues=8)
    atoms = [line for line in path.read_text().splitlines() if line.startswith("ATOM")]
    header = [
        "HEADER    TRANSFERASE                             01-JAN-01   1ABC",
        "REMARK   1 Gr\u00f6\u00dfe, \u03b1-helix: a remark with characters that PDB has not",
        "REMARK   3   R VALUE     (WORKING SET) : 0.2",
        "REMARK 610 MISSING HETEROATOM",
        "SEQRES   1 A   10  GLY GLY " + " ".join(sorted({line[17:20] for line in atoms})),
        "SSBOND   1 CYS Z   99    CYS Z  101                          1555   1555  2.03",
        "LINK         NZ  LYS Z  45                 C1  LIG Z 900     1555   1555  1.34",
        "SITE     1 AC1  3 TYR Z  28  THR Z  29  ASN Z  61",
        "CRYST1   60.000   70.000   80.000  90.00  90.00  90.00 P 21 21 21    4",
        "SCALE1      0.016667  0.000000  0.000000        0.00000",
    ]
    body = []
    for serial, line in enumerate(atoms, start=20001):
        number = int(line[22:26])
        code = "A" if number == 4 else " "
        number = 3 if number == 4 else number
        line = f"ATOM  {serial:5d}{line[11:22]}{number:4d}{code}{line[27:60]} 12.34      SEGA{line[76:78]}"
        body.append(line)
        body.append(f"ANISOU{line[6:28]}    100    200    300     10     20     30      SEGA{line[76:78]}")
    second = [line for line in body[-40:] if line[12:16] == " CB "][:1]
    assert second
    other = f"{second[0][:16]}B{second[0][17:54]}  0.30{second[0][60:]}"
    body = [f"{line[:16]}A{line[17:54]}  0.70{line[60:]}" if line is second[0] else line for line in body]
    body += [other, f"TER   {29999:5d}      {other[17:27]}"]
    tail = ["CONECT2000120002", "MASTER        3    0    0    0    0    0    1    1    1    1    1    1"]
    return written(tmp_path / "in.pdb", [*header, *body, *tail])


def test_a_pdb_file_comes_back_line_by_line(told: Path, tmp_path: Path) -> None:
    model = read_model(told)
    assert len(model.alternates) == 1
    left_out = write_pdb(tmp_path / "out.pdb", model, model.positions)
    before = [line for line in told.read_bytes().splitlines() if not line.startswith(b"REMARK   3")]
    after = (tmp_path / "out.pdb").read_bytes().splitlines()
    (lost,) = set(before) - set(after)
    assert lost.startswith(b"MASTER        3") and b"MASTER        2" in b"".join(after)
    assert [line for line in after if line in before] == [line for line in before if line in after]
    assert left_out == [
        "Left out of the written model, as they describe the model before the fit, or its place: REMARK 3."
    ]


def test_what_an_atom_that_moved_makes_untrue_is_named(told: Path, tmp_path: Path) -> None:
    model = read_model(told)
    positions, b_factors = model.positions.copy(), model.b_factors.copy()
    positions[:3] += 1.0
    b_factors[3] = 45.678
    left_out = write_pdb(tmp_path / "out.pdb", model, positions, b_factors)
    assert left_out[0] == "ANISOU of 4 atoms is left out: the atoms moved, or had a new B factor."
    before, after = (
        [line for line in each.read_text().splitlines() if line.startswith("ATOM")]
        for each in (told, tmp_path / "out.pdb")
    )
    for k, (old, new) in enumerate(zip(before, after, strict=True)):
        moved = old[:30] + "".join(f"{x:8.3f}" for x in positions[k]) + old[54:] if k < 3 else old
        assert new == (f"{old[:60]} 45.68{old[66:]}" if k == 3 else moved)
    anisotropic = [
        line[6:11] for line in (tmp_path / "out.pdb").read_text().splitlines() if line[:6] == "ANISOU"
    ]
    assert [line[6:11] for line in before[4:-1]] == anisotropic[: len(before) - 5]
    # Laid elsewhere, it is in no crystal.
    placed = Placement(np.eye(3).tolist(), [1.0, 2.0, 3.0], 1.0, 0.0, 0.0, 0.0, 0.0).apply(model)
    left_out = write_pdb(tmp_path / "placed.pdb", placed, placed.positions)
    assert any("CRYST1" in sentence for sentence in left_out) and any("SCALE" in each for each in left_out)
    assert not any(
        line.startswith(("CRYST1", "SCALE", "ANISOU"))
        for line in (tmp_path / "placed.pdb").read_text().splitlines()
    )


def test_a_b_factor_or_occupancy_that_is_none_is_kept(told: Path, tmp_path: Path) -> None:
    lines = told.read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("ATOM"))
    for k, (occupancy, b_factor) in enumerate(
        (("  1.50", "  0.00"), (" -0.20", " -5.00"), ("      ", "      "))
    ):
        row = first + 2 * k
        lines[row] = f"{lines[row][:54]}{occupancy}{b_factor}{lines[row][66:]}"
    model = read_model(written(tmp_path / "odd.pdb", lines))
    told_of = (
        "Occupancies over 1 or below 0, of 2 atoms (",
        "B factors below 0, of 1 atom (",
        "B factors of 0, of ",
    )
    assert all(any(note.startswith(start) for note in model.notes) for start in told_of)
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    after = (tmp_path / "out.pdb").read_text().splitlines()
    assert [line for line in after if line.startswith("ATOM")] == [
        line for line in lines if line.startswith("ATOM")
    ]
    assert sum(line.startswith("ANISOU") for line in after) == sum(
        line.startswith("ANISOU") for line in lines
    )


@pytest.fixture
def deposited(tmp_path: Path) -> Path:
    """Return an mmCIF file whose authors number otherwise than the PDB, with quotes, displacements and categories of its own."""
    document = gemmi.cif.read(str(SMALL_DATA / HAEMOGLOBIN))
    block = document.sole_block()
    table = block.get_mmcif_category("_atom_site.", raw=True)
    rows = [k for k, value in enumerate(table["label_asym_id"]) if value == "B"]
    rows += [k for k, value in enumerate(table["label_comp_id"]) if value == "HEM"][:43]
    table = {name: [values[k] for k in rows] for name, values in table.items()}
    table["auth_seq_id"] = [str(int(value) + 1000) for value in table["auth_seq_id"]]
    table["auth_asym_id"] = ["Heavy" if value == "B" else value for value in table["auth_asym_id"]]
    table["B_iso_or_equiv"] = [f"{20 + k / 1000:.4f}" for k in range(len(rows))]
    block.set_mmcif_category("_atom_site.", table, raw=True)
    count = 10
    block.set_mmcif_category(
        "_atom_site_anisotrop.",
        {"id": table["id"][:count], **{f"U[{k}][{k}]": [f"0.{k}234"] * count for k in (1, 2, 3)}},
        raw=True,
    )
    block.set_mmcif_category("_my_lab.", {"note": ["'it''s \u03b1'"], "who": ['"d\'Alembert"']}, raw=True)
    block.set_mmcif_category("_atom_type.", {"symbol": ["C", "N", "O"]})
    block.set_pair("_my_lab_text.long", ";two\nlines\n;")
    path = tmp_path / "deposited.cif"
    path.write_text(document.as_string(), encoding="utf-8")
    return path


def test_an_mmcif_document_comes_back_with_hydrogens_too(deposited: Path, tmp_path: Path) -> None:
    model = read_model(deposited)
    prepared = prepare(model)
    moved = prepared.positions + 0.5
    header = prepared_header(prepared)
    left_out = write_model_cif(tmp_path / "input.cif", model, prepared.input_positions(moved))
    write_cif(tmp_path / "fitted.cif", prepared.topology, moved, prepared.b_factors, header)
    blocks = [gemmi.cif.read(str(tmp_path / name)).sole_block() for name in ("input.cif", "fitted.cif")]
    before = gemmi.cif.read(str(deposited)).sole_block()
    assert left_out[0].startswith("Anisotropic displacement of 10 atoms is left out")
    for block in blocks:
        assert "_atom_site_anisotrop." not in block.get_mmcif_category_names()
        for name in (
            "_my_lab.",
            "_my_lab_text.",
            "_entity.",
            "_entity_poly.",
            "_pdbx_poly_seq_scheme.",
            "_struct_asym.",
        ):
            assert block.get_mmcif_category(name, raw=True) == before.get_mmcif_category(name, raw=True), name
    old, same, all_atoms = (block.get_mmcif_category("_atom_site.", raw=True) for block in (before, *blocks))
    places = {"Cartn_x", "Cartn_y", "Cartn_z"}
    assert {name for name in old if old[name] != same[name]} == places
    index = {
        key: k
        for k, key in enumerate(
            zip(all_atoms["auth_asym_id"], all_atoms["auth_seq_id"], all_atoms["label_atom_id"])
        )
    }
    assert len(index) == len(prepared.positions)
    for k, key in enumerate(zip(old["auth_asym_id"], old["auth_seq_id"], old["label_atom_id"])):
        row = index[key]
        assert all(all_atoms[name][row] == old[name][k] for name in old if name not in places | {"id"})
    # A hydrogen is in its residue, by all names that this has.
    hydrogens = [k for k, element in enumerate(all_atoms["type_symbol"]) if element == "H"]
    residues = {
        tuple(old[name][k] for name in ("label_asym_id", "label_seq_id", "auth_seq_id", "label_comp_id"))
        for k in range(len(old["id"]))
    }
    assert len(hydrogens) == prepared.report.added_hydrogens > 0
    for k in hydrogens:
        assert (
            tuple(
                all_atoms[name][k]
                for name in ("label_asym_id", "label_seq_id", "auth_seq_id", "label_comp_id")
            )
            in residues
        )
    assert [*blocks[1].find_values("_atom_type.symbol")] == ["C", "N", "O", "H", "S", "FE"]
    assert read_model(tmp_path / "fitted.cif").topology.getNumAtoms() == len(prepared.positions)


def test_displacements_follow_the_numbers_of_atoms_that_stayed(deposited: Path, tmp_path: Path) -> None:
    model = read_model(deposited)
    positions = model.positions.copy()
    positions[4:] += 1.0
    left_out = write_model_cif(tmp_path / "out.cif", model, positions)
    assert left_out[0].startswith("Anisotropic displacement of 6 atoms is left out")
    block = gemmi.cif.read(str(tmp_path / "out.cif")).sole_block()
    assert list(block.find_values("_atom_site_anisotrop.id")) == list(block.find_values("_atom_site.id"))[:4]


def test_links_and_cis_peptides_of_a_document_are_those_of_now(deposited: Path, tmp_path: Path) -> None:
    model = read_model(deposited)
    moved = model.positions + np.random.default_rng(0).normal(scale=0.05, size=model.positions.shape)
    write_model_cif(tmp_path / "out.cif", model, moved)
    structure = gemmi.read_structure(str(tmp_path / "out.cif"))
    near = 0
    for link in structure.connections:
        ends = [structure[0].find_cra(end).atom for end in (link.partner1, link.partner2)]
        if None not in ends:
            near += 1
            assert link.reported_distance == pytest.approx(ends[0].pos.dist(ends[1].pos), abs=2e-3)
    before = gemmi.cif.read(str(deposited)).sole_block().get_mmcif_category("_struct_conn.", raw=True)
    after = (
        gemmi.cif.read(str(tmp_path / "out.cif")).sole_block().get_mmcif_category("_struct_conn.", raw=True)
    )
    assert before.keys() == after.keys()
    # What the file names of atoms that it has not stays; what it does not name is added behind.
    assert all(
        after[name][: len(before["id"])] == before[name] for name in before if name != "pdbx_dist_value"
    )
    assert replace(model).links is model.links and near >= len(model.links)


def test_an_atom_that_is_there_twice_is_refused(told: Path, tmp_path: Path) -> None:
    lines = told.read_text().splitlines()
    alpha = next(k for k, line in enumerate(lines) if line.startswith("ATOM") and line[12:16] == " CA ")
    twice = written(tmp_path / "twice.pdb", [*lines[: alpha + 1], lines[alpha], *lines[alpha + 1 :]])
    with pytest.raises(InputError, match=r"atom A \w+ 1 CA is there twice without labels"):
        read_model(twice)
    # A whole residue is another one of that number.
    residue = [line for line in lines if line.startswith("ATOM") and line[22:27] == "   2 "]
    last = lines.index(residue[-1])
    model = read_model(written(tmp_path / "whole.pdb", [*lines[: last + 1], *residue, *lines[last + 1 :]]))
    assert len(model.records) == len(read_model(told).records) + len(residue)


def test_conformers_that_share_nothing_are_told(told: Path, tmp_path: Path) -> None:
    lines = [line for line in told.read_text().splitlines() if line.startswith("ATOM")]
    for k, altloc in enumerate("AB"):
        for atom in (1, 2, 3):
            line = hetatm(900 + k, f" C{atom + 3 * k}", "LIG", 200, np.array([40 + atom, 0.5 * k, 0]), "C")
            lines.append(f"{line[:16]}{altloc}{line[17:54]}  0.50{line[60:]}")
    notes = read_model(written(tmp_path / "apart.pdb", lines)).notes
    assert notes[-1].startswith("The conformers A and B of A LIG 200 have no atom in common")


@pytest.mark.parametrize("letters", ["A", ""])
def test_a_chain_that_the_authors_leave_without_a_name_keeps_its_cis_peptides(
    small_data: Path, tmp_path: Path, letters: str
) -> None:
    structure = gemmi.read_structure(str(small_data / "emd5925_frag/5925_native.pdb"))
    structure.setup_entities()
    structure.assign_label_seq_id()
    block = structure.make_mmcif_document().sole_block()
    table = block.get_mmcif_category("_atom_site.", raw=True)
    table["auth_asym_id"] = ["."] * len(table["id"])
    table["label_asym_id"] = [letters or "."] * len(table["id"])
    block.set_mmcif_category("_atom_site.", table, raw=True)
    path = tmp_path / "in.cif"
    path.write_text(block.as_string())
    model = read_model(path)
    atoms = {(atom.residue.index, atom.name): atom.index for atom in model.topology.atoms()}
    turned = [atom.index for atom in model.topology.atoms() if atom.residue.index > 10]
    moved = turned_about(model.positions, atoms[10, "C"], atoms[11, "N"], turned, np.pi)
    write_model_cif(tmp_path / "out.cif", model, moved)
    write_cif(tmp_path / "all.cif", model.topology, moved, header=header_of(model))
    for name in ("out.cif", "all.cif"):
        again = read_model(tmp_path / name)
        write_model_cif(tmp_path / "again.cif", again, again.positions + 1.0)
        for out in (name, "again.cif"):
            found = gemmi.cif.read(str(tmp_path / out)).sole_block()
            assert list(found.find_values("_struct_mon_prot_cis.auth_seq_id")) == ["11"], (name, out)


@pytest.mark.parametrize("change", ["lower", "no auth", "crlf", "two blocks"])
def test_mmcif_as_others_write_it(small_data: Path, tmp_path: Path, change: str) -> None:
    structure = gemmi.read_structure(str(small_data / "emd5925_frag/5925_native.pdb"))
    structure.setup_entities()
    structure.assign_label_seq_id()
    block = structure.make_mmcif_document().sole_block()
    table = block.get_mmcif_category("_atom_site.", raw=True)
    absent = ("auth_asym_id", "auth_seq_id") if change == "no auth" else ()
    table = {
        name.lower() if change == "lower" else name: v for name, v in table.items() if name not in absent
    }
    block.set_mmcif_category("_atom_site.", table, raw=True)
    text = block.as_string()
    if change == "two blocks":
        text = f"data_comment\n_a.b 'first'\n\n{text}"
    path = tmp_path / "in.cif"
    path.write_bytes((text.replace("\n", "\r\n") if change == "crlf" else text).encode())
    model = read_model(path)
    write_model_cif(tmp_path / "out.cif", model, model.positions + 1.0)
    write_cif(tmp_path / "all.cif", model.topology, model.positions, header=header_of(model))
    np.testing.assert_allclose(read_model(tmp_path / "out.cif").positions, model.positions + 1.0, atol=6e-4)
    assert [r.describe() for r in read_model(tmp_path / "all.cif").records] == [
        r.describe() for r in model.records
    ]
    assert ("first" in (tmp_path / "out.cif").read_text()) == (change == "two blocks")
