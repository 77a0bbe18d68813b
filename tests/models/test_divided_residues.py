"""Residues whose hydrogens stand elsewhere in the file than their other atoms, as Coot writes them."""

from __future__ import annotations

from pathlib import Path

import mdtraj
import numpy as np
import pytest
from openmm import app

from openmm_density.models import Prepared, prepare, read_model
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.structure_files import write_pdb
from openmm_density.models.trajectory_files import load_trajectory

from ..small_models import fragment_lines, written


@pytest.fixture(scope="module")
def whole(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return residues with their hydrogens."""
    path = tmp_path_factory.mktemp("whole") / "m.pdb"
    return prepare(read_model(written(path, fragment_lines(small_data, 1, 5))))


def line_of(atom: app.topology.Atom, place: np.ndarray, segment: str) -> str:
    x, y, z = place
    name = atom.name if len(atom.name) == 4 else f" {atom.name:<3s}"
    return (
        f"ATOM  {atom.index + 1:5d} {name} {atom.residue.name:>3s} A{int(atom.residue.id):4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00 20.00      {segment:<4s}{atom.element.symbol:>2s}"
    )


def as_coot(whole: Prepared, layout: str) -> list[str]:
    """Return the lines of the model with hydrogens without a segment, of the last residue or of all behind TER."""
    lines, behind = [], []
    residues = list(whole.topology.residues())
    for residue in residues:
        for hydrogens in (False, True):
            chosen = [
                line_of(atom, whole.positions[atom.index], "" if hydrogens else "A1")
                for atom in residue.atoms()
                if is_hydrogen(atom) == hydrogens
            ]
            late = hydrogens and (
                layout == "all behind TER" or (layout == "last" and residue is residues[-1])
            )
            (behind if late else lines).extend(chosen)
    return [*lines, "TER", *behind]


@pytest.mark.parametrize("layout", ["no segment", "last", "all behind TER"])
def test_hydrogens_belong_to_their_residues(whole: Prepared, tmp_path: Path, layout: str) -> None:
    lines = as_coot(whole, layout)
    model = read_model(written(tmp_path / "coot.pdb", lines))
    assert len(list(model.topology.chains())) == 1
    assert [len(each) for each in model.topology.residues()] == [
        len(each) for each in whole.topology.residues()
    ]
    assert {record.segment for record in model.records if record.element == "H"} == {""}
    prepared = prepare(model)
    assert (prepared.input_index >= 0).all() and (prepared.prepared_index >= 0).all()
    np.testing.assert_array_equal(prepared.input_positions(prepared.positions), model.positions)
    # Every atom is written to its line.
    write_pdb(tmp_path / "moved.pdb", model, model.positions + 1.0)
    moved = (tmp_path / "moved.pdb").read_text().splitlines()
    assert [line[:30] + line[54:] for line in moved] == [x[:30] + x[54:] for x in [*lines, "END"]]
    assert all(
        float(new[30:38]) == pytest.approx(float(old[30:38]) + 1.0, abs=2e-3)
        for old, new in zip(lines, moved)
        if old.startswith("ATOM")
    )


def test_a_trajectory_has_the_order_of_the_file(whole: Prepared, tmp_path: Path) -> None:
    lines = as_coot(whole, "all behind TER")
    path = written(tmp_path / "coot.pdb", lines)
    model = read_model(path)
    places = [[float(x[k : k + 8]) for k in (30, 38, 46)] for x in lines if x.startswith("ATOM")]
    with mdtraj.formats.DCDTrajectoryFile(str(tmp_path / "t.dcd"), "w") as file:
        file.write(np.array([places], dtype=np.float32))
    trajectory = load_trajectory(tmp_path / "t.dcd", path)
    np.testing.assert_allclose(trajectory.xyz[0] * 10, model.positions, atol=1e-4)


def test_a_residue_that_is_cut_in_two_is_one(small_data: Path, tmp_path: Path) -> None:
    """Side chains at the end of the file, under another segment."""
    lines = fragment_lines(small_data, 1, 5)
    expected = read_model(written(tmp_path / "whole.pdb", lines))
    side = [f"{x[:72]}SIDE{x[76:]}" for x in lines if x[12:16].strip() not in ("N", "CA", "C", "O")]
    backbone = [x for x in lines if x[12:16].strip() in ("N", "CA", "C", "O")]
    model = read_model(written(tmp_path / "cut.pdb", [*backbone, *side]))
    assert len(list(model.topology.chains())) == 1
    assert len(list(model.topology.bonds())) == len(list(expected.topology.bonds()))
    assert prepare(model).report.added_heavy_atoms.keys() == prepare(expected).report.added_heavy_atoms.keys()


def test_what_has_one_number_in_two_segments_stays_two(small_data: Path, tmp_path: Path) -> None:
    """As in files whose chains have segments alone; hydrogens go to the nearer of both."""
    lines = [f"{x[:21]} {x[22:]}" for x in fragment_lines(small_data, 2, 3)]
    first = [f"{x[:72]}PROA{x[76:]}" for x in lines]
    second = [f"{x[:30]}{float(x[30:38]) + 20:8.3f}{x[38:72]}PROB{x[76:]}" for x in lines]
    nitrogen = next(x for x in second if x[12:16] == " N  ")
    hydrogen = f"{nitrogen[:12]} H  {nitrogen[16:30]}{float(nitrogen[30:38]) + 1:8.3f}{nitrogen[38:72]}     H"
    model = read_model(written(tmp_path / "two.pdb", [*first, *second, "TER", hydrogen]))
    sizes = [len(each) for each in model.topology.residues()]
    assert len(sizes) == 4 and sizes[2] == sizes[0] + 1 and sizes[3] == sizes[1]
