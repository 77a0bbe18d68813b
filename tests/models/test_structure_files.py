from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import gemmi
import mdtraj
import numpy as np
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.fitting.placement import Placement
from openmm_density.models import prepare, read_model
from openmm_density.models.model import Link
from openmm_density.models.structure_files import (
    header_of,
    pdb_limit,
    prepared_header,
    write_cif,
    write_model_cif,
    write_pdb,
)
from openmm_density.models.structures import Model

from ..small_models import ADK_OPEN, FRAGMENT, bonds_between_residues, fragment_lines, written

WRITTEN = (
    "name",
    "residue_name",
    "chain",
    "residue_number",
    "insertion_code",
    "segment",
    "hetero",
    "element",
    "charge",
)


@pytest.mark.parametrize("name", [ADK_OPEN, "xraymap_3pqr_R32/3pqr.pdb"], ids=["kinase", "rhodopsin"])
def test_written_pdb_is_the_input_at_other_positions(small_data: Path, tmp_path: Path, name: str) -> None:
    model = read_model(small_data / name)
    write_pdb(tmp_path / "out.pdb", model, (model.positions + 1.25) * unit.angstrom)
    again = read_model(tmp_path / "out.pdb")
    np.testing.assert_allclose(again.positions, model.positions + 1.25, atol=6e-4)
    np.testing.assert_allclose(again.b_factors, model.b_factors, atol=6e-3)
    for old, new in zip(model.records, again.records, strict=True):
        for part in WRITTEN:
            assert getattr(old, part) == getattr(new, part)
    # An independent reader sees the same atoms.
    trajectory = mdtraj.load(str(tmp_path / "out.pdb"), standard_names=False)
    np.testing.assert_allclose(trajectory.xyz[0] * 10, again.positions, atol=2e-3)
    assert [atom.name for atom in trajectory.topology.atoms] == [record.name for record in model.records]
    assert os.listdir(tmp_path) == ["out.pdb"]


def test_written_mmcif_is_read_by_others(small_data: Path, tmp_path: Path) -> None:
    prepared = prepare(read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb"))
    path = tmp_path / "fitted.cif"
    write_cif(path, prepared.topology, prepared.positions, prepared.b_factors)
    again = read_model(path)
    np.testing.assert_allclose(again.positions, prepared.positions, atol=1e-3)
    np.testing.assert_allclose(again.b_factors, prepared.b_factors, atol=1e-2)
    assert bonds_between_residues(again.topology) == bonds_between_residues(prepared.topology)
    other = app.PDBxFile(str(path)).topology
    assert [atom.name for atom in other.atoms()] == [atom.name for atom in prepared.topology.atoms()]
    assert [r.id for r in other.residues()] == [r.id for r in prepared.topology.residues()]
    trajectory = mdtraj.load(str(path))
    np.testing.assert_allclose(trajectory.xyz[0] * 10, prepared.positions, atol=2e-3)


def test_pdb_format_limits_are_told_and_never_written(small_data: Path, tmp_path: Path) -> None:
    model = with_long_chain_names(small_data, tmp_path / "in")
    assert "chain 'Aa'" in pdb_limit(model, model.positions)
    with pytest.raises(InputError, match="PDB format cannot hold"):
        write_pdb(tmp_path / "out.pdb", model, model.positions)
    fragment = read_model(small_data / FRAGMENT)
    assert pdb_limit(fragment, fragment.positions) is None
    assert "coordinate" in pdb_limit(fragment, fragment.positions + 1e4)
    with pytest.raises(InputError, match="one position is needed for each"):
        write_pdb(tmp_path / "out.pdb", fragment, fragment.positions[1:])
    with pytest.raises(InputError, match="not a number"):
        write_cif(tmp_path / "out.cif", fragment.topology, fragment.positions * np.nan)
    with pytest.raises(InputError, match="cannot be written"):
        write_pdb(tmp_path / "nowhere" / "out.pdb", fragment, fragment.positions)
    assert os.listdir(tmp_path) == ["in"]


def with_long_chain_names(small_data: Path, folder: Path) -> Model:
    structure = gemmi.read_structure(str(small_data / "emd3488_5ni1/5ni1_updated.cif"))
    for old, new in zip("ABCD", ("Aa", "Ba", "Ab", "Bb"), strict=True):
        structure.rename_chain(old, new)
    folder.mkdir()
    structure.make_mmcif_document().write_file(str(folder / "long.cif"))
    return read_model(folder / "long.cif")


def _named(model: Model, links: Iterable[Link]) -> set[tuple[frozenset[str], bool]]:
    return {
        (frozenset(model.records[k].describe() for k in (link.first, link.second)), link.symmetry)
        for link in links
    }


def _named_by_gemmi(path: Path) -> set[tuple[frozenset[str], bool]]:
    """Read the links of a file as gemmi does; each must be as long as it says, if it does, with atoms where they are."""
    structure = gemmi.read_structure(str(path))
    found = set()
    for link in structure.connections:
        ends = [structure[0].find_cra(end, ignore_segment=True) for end in (link.partner1, link.partner2)]
        if None in [end.atom for end in ends]:  # a file may name those of atoms that it has not
            continue
        image = structure.cell.find_nearest_image(*(end.atom.pos for end in ends), link.asu)
        if link.reported_distance:
            assert link.reported_distance == pytest.approx(image.dist(), abs=6e-3)
        metal = any(end.atom.element.is_metal for end in ends)
        sulphur = all(end.atom.name == "SG" for end in ends)
        assert link.type.name == ("MetalC" if metal else "Disulf" if sulphur else "Covale")
        atoms = (
            f"{end.chain.name} {end.residue.name} {str(end.residue.seqid).strip()} {end.atom.name}"
            for end in ends
        )
        found.add((frozenset(atoms), link.asu == gemmi.Asu.Different))
    return found


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("emd3488_5ni1/5me2.pdb", 4),  # irons, two of them 2.75 Å away: by distance there would be no bond
        ("emd3488_5ni1/5ni1_updated.cif", 4),
        ("xraymap_3pqr_R32/3pqr.pdb", 8),  # sugars, retinal, palmitate, a disulphide
        ("emd21457_ntd/6vyb_Ndom.pdb", 4),  # of 94, the others among atoms that are not there
    ],
)
def test_links_of_the_input_are_those_of_the_written_files(
    small_data: Path, tmp_path: Path, name: str, count: int
) -> None:
    check_links(read_model(small_data / name), tmp_path, count)


def test_links_that_the_input_does_not_name_are_written(small_data: Path, tmp_path: Path) -> None:
    text = (small_data / "emd21457_ntd/6vyb_Ndom.pdb").read_text()
    first = next(line for line in text.splitlines() if line.startswith("SSBOND"))
    check_links(read_model(_file(tmp_path / "in.pdb", text.replace(first + "\n", ""))), tmp_path, 4)


@pytest.mark.parametrize("alone", [False, True], ids=["loop", "one link as pairs"])
def test_links_are_read_without_numbers_and_names_of_residues(
    small_data: Path, tmp_path: Path, alone: bool
) -> None:
    """As of a file of PDB 8QU4, whose stapled side chains came apart; gemmi reads no bond of such."""
    path = small_data / "emd3488_5ni1/5ni1_updated.cif"
    document = gemmi.cif.read(str(path))
    loop = document[0].find_loop("_struct_conn.id").get_loop()
    for name in (
        "id",
        "ptnr1_label_comp_id",
        "ptnr2_label_comp_id",
        "ptnr1_auth_comp_id",
        "ptnr2_auth_comp_id",
    ):
        loop.remove_column(f"_struct_conn.{name}")
    if alone:
        pairs = dict(zip(loop.tags, loop.values))
        document[0].find(loop.tags).erase()
        for tag, value in pairs.items():
            document[0].set_pair(tag, value)
    document.write_file(str(tmp_path / "few.cif"))
    model = read_model(tmp_path / "few.cif")
    every = read_model(path).links
    assert model.links == (every[:1] if alone else every)
    write_model_cif(tmp_path / "out.cif", model, model.positions + 0.01)
    assert set(model.links) <= set(read_model(tmp_path / "out.cif").links)


def check_links(model: Model, tmp_path: Path, count: int) -> None:
    moved = model.positions + np.random.default_rng(0).normal(scale=0.03, size=model.positions.shape)
    write_pdb(tmp_path / "out.pdb", model, moved)
    write_model_cif(tmp_path / "out.cif", model, moved)
    links = _named(model, header_of(model).links)
    assert len(links) == count and _named(model, model.links) <= links
    for path in (tmp_path / "out.pdb", tmp_path / "out.cif"):
        again = read_model(path)
        assert _named(again, again.links) == links == _named_by_gemmi(path)
        assert bonds_between_residues(again.topology) == bonds_between_residues(model.topology)


def test_a_second_fit_holds_the_metal_that_the_first_held(small_data: Path, tmp_path: Path) -> None:
    lines = (small_data / "emd3488_5ni1/5me2.pdb").read_text().splitlines()
    chain = [line for line in lines if line.startswith(("ATOM", "HETATM", "LINK")) and line[21] == "B"]
    near = [line for line in chain if int(line[22:26]) in {*range(86, 99), 201}]
    prepared = prepare(read_model(written(tmp_path / "in.pdb", near)))
    write_pdb(tmp_path / "fitted.pdb", prepared.model, prepared.input_positions(prepared.positions))
    write_cif(
        tmp_path / "fitted.cif", prepared.topology, prepared.positions, header=prepared_header(prepared)
    )
    iron = (frozenset(("B HIS 92 NE2", "B HEM 201 FE")), False)
    for path in (tmp_path / "fitted.pdb", tmp_path / "fitted.cif"):
        assert _named_by_gemmi(path) == {iron}
    [held] = prepare(read_model(tmp_path / "fitted.pdb")).report.links
    assert held.startswith("B HIS 92 NE2 - B HEM 201 FE (2.7")


@pytest.fixture
def rhodopsin(small_data: Path) -> str:
    return (small_data / "xraymap_3pqr_R32/3pqr.pdb").read_text()


def test_links_to_copies_by_symmetry_are_never_written_as_within_the_model(
    rhodopsin: str, tmp_path: Path
) -> None:
    pair = "SG  CYS A 323                 C1  PLM A 701     1555  "
    model = read_model(_file(tmp_path / "in.pdb", rhodopsin.replace(f"{pair} 1555", f"{pair} 5556")))
    [link] = [link for link in model.links if link.symmetry]
    assert model.records[link.second].describe() == "A PLM 701 C1"
    alone = replace(model, links=(link,))
    for suffix, write in ((".pdb", write_pdb), (".cif", write_model_cif)):
        path = tmp_path / f"out{suffix}"
        write(path, alone, alone.positions)
        assert _named(alone, alone.links) <= _named_by_gemmi(path)
        assert link in read_model(path).links
        # Without its crystal it has no such copies.
        write(path, replace(alone, cell=None, space_group=""), alone.positions)
        assert not any(symmetry for _, symmetry in _named_by_gemmi(path))


def test_a_link_that_names_cannot_tell_is_not_written(small_data: Path, tmp_path: Path) -> None:
    lines = fragment_lines(small_data)
    twins = [f"{line[:72]}{segment:<4}{line[76:]}" for segment in ("ONE", "TWO") for line in lines]
    model = read_model(written(tmp_path / "in.pdb", twins))
    half = len(lines)
    model.links = (Link(1, 9), Link(half + 1, half + 9), Link(1, half + 9))
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    assert len(_named_by_gemmi(tmp_path / "out.pdb")) == 1
    assert read_model(tmp_path / "out.pdb").links == (Link(1, 9),)


@pytest.mark.parametrize(
    ("name", "cell", "space_group"),
    [
        ("xray_1g8a_P21/1G8A_refined.pdb", (46.376, 41.098, 54.168, 90, 98.26, 90), "P 1 21 1"),
        ("xraymap_3pqr_R32/3pqr.pdb", (241.55, 241.55, 109.87, 90, 90, 120), "H 3 2"),
        (ADK_OPEN, (80.017, 80.017, 80.017, 60, 60, 90), "P 1"),
        ("emd3488_5ni1/5me2.pdb", None, ""),  # a dummy of 1 Å
        ("emd5925_frag/5925_native.pdb", None, ""),
    ],
)
def test_a_crystal_stays_one(
    small_data: Path, tmp_path: Path, name: str, cell: tuple[float, ...] | None, space_group: str
) -> None:
    path = small_data / name
    if name == ADK_OPEN:  # as its box stood in the file that it was made of
        crystal = "CRYST1   80.017   80.017   80.017  60.00  60.00  90.00 P 1           1\n"
        path = _file(tmp_path / "in.pdb", crystal + path.read_text())
    model = read_model(path)
    assert (model.cell, model.space_group) == (cell, space_group)
    write_pdb(tmp_path / "out.pdb", model, model.positions)
    write_model_cif(tmp_path / "out.cif", model, model.positions)
    write_cif(tmp_path / "all.cif", model.topology, model.positions, header=header_of(model))
    for path in tmp_path.iterdir():
        again = read_model(path)
        assert (again.cell, again.space_group) == (cell, space_group)
    # A dummy as well stays as the file has it.
    before, after = (
        [line for line in each.read_text().splitlines() if line.startswith("CRYST1")]
        for each in (model.path, tmp_path / "out.pdb")
    )
    assert before == after and (cell is None or before)
    assert ("_cell." in (tmp_path / "all.cif").read_text()) == (cell is not None)


def test_a_model_that_was_placed_or_bathed_has_no_crystal(small_data: Path) -> None:
    model = read_model(small_data / "xray_1g8a_P21/1G8A_refined.pdb")
    placement = Placement(np.eye(3)[[1, 2, 0]].tolist(), [1.0, 2.0, 3.0], 9.0, 0.0, 0.5, 0.0, 1.0)
    moved = header_of(placement.apply(model))
    assert (moved.cell, moved.space_group) == (None, "") and moved.links == header_of(model).links
    prepared = prepare(model)
    dry, wet = prepared_header(prepared), prepared_header(replace(prepared, solvent="water"))
    assert (dry.cell, dry.space_group) == (model.cell, "P 1 21 1")
    assert wet.cell is None and wet.links == dry.links


def test_a_model_that_pdb_cannot_hold_is_written_as_it_came(small_data: Path, tmp_path: Path) -> None:
    model = with_long_chain_names(small_data, tmp_path / "in")
    write_model_cif(tmp_path / "out.cif", model, (model.positions + 0.5) * unit.angstrom)
    again = read_model(tmp_path / "out.cif")
    np.testing.assert_allclose(again.positions, model.positions + 0.5, atol=6e-4)
    np.testing.assert_allclose(again.b_factors, model.b_factors, atol=6e-3)
    np.testing.assert_allclose(again.occupancies, model.occupancies, atol=6e-3)
    for old, new in zip(model.records, again.records, strict=True):
        assert all(getattr(old, part) == getattr(new, part) for part in WRITTEN)
    assert again.topology.getNumBonds() == model.topology.getNumBonds()
    trajectory = mdtraj.load(str(tmp_path / "out.cif"))
    assert [atom.name for atom in trajectory.topology.atoms] == [record.name for record in model.records]
    with pytest.raises(InputError, match="one position is needed for each"):
        write_model_cif(tmp_path / "out.cif", model, model.positions[1:])


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
