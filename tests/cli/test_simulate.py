"""``openmm-density simulate``."""

import re

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap

from .commands import run


def test_simulate_does_not_overwrite(folder, capsys):
    arguments = ("--resolution", 5, "--voxel-size", 1.2, "--output", folder / "target.mrc")
    before = (folder / "target.mrc").read_bytes()
    assert run("simulate", folder / "target.pdb", *arguments) == 2
    assert "target.mrc" in capsys.readouterr().err
    assert (folder / "target.mrc").read_bytes() == before


def test_a_map_too_coarse_for_its_resolution_is_warned_of(folder, tmp_path, capsys):
    arguments = ("--resolution", 4, "--voxel-size", 2.5, "--output", tmp_path / "coarse.mrc")
    assert run("simulate", folder / "target.pdb", *arguments) == 0
    assert capsys.readouterr().err == (
        "openmm-density: warning: voxels of 2.5 Å hold no detail finer than 5 Å: for a resolution of 4 Å they must be no larger "
        "than 2 Å\n"
    )


def write_conformers(path, occupancies=("0.70", "0.30")):
    """Write a serine with hydrogens, whose side chain has two conformers, and water of half an occupancy."""
    atoms = [
        ("N", " ", "1.00", (0.0, 0.0, 0.0), "N"),
        ("CA", " ", "1.00", (1.46, 0.0, 0.0), "C"),
        ("C", " ", "1.00", (2.0, 1.42, 0.0), "C"),
        ("O", " ", "1.00", (1.3, 2.4, 0.2), "O"),
        ("HA", " ", "1.00", (1.8, -0.5, 0.9), "H"),
        ("CB", "A", occupancies[0], (2.0, -0.8, -1.2), "C"),
        ("CB", "B", occupancies[1], (1.95, -0.75, 1.25), "C"),
        ("OG", "A", occupancies[0], (1.5, -2.1, -1.2), "O"),
        ("OG", "B", occupancies[1], (3.3, -1.1, 1.3), "O"),
        ("HG", "A", occupancies[0], (1.9, -2.6, -1.9), "H"),
        ("HG", "B", occupancies[1], (3.6, -1.6, 2.1), "H"),
    ]
    form = "ATOM  {:5d}  {:<3s}{}SER A   1    {:8.3f}{:8.3f}{:8.3f}  {} 10.00          {:>2s}\n"
    lines = [
        form.format(k, name, label, *place, occupancy, element)
        for k, (name, label, occupancy, place, element) in enumerate(atoms, 1)
    ]
    lines.append("HETATM   12  O   HOH A   2       6.000   3.000   1.000  0.50 10.00           O\n")
    path.write_text("".join([*lines, "END\n"]))


def gemmis(path, density_map, resolution):
    """Return gemmi's own density of a file on the grid of a map, cut at the resolution."""
    structure = gemmi.read_structure(str(path))
    shape = density_map.shape[::-1]
    for each in structure[0].all():
        each.atom.pos -= gemmi.Position(*density_map.origin)
        each.atom.b_iso = 8 * resolution
    calculator = gemmi.DensityCalculatorE()
    calculator.d_min = resolution
    calculator.grid.set_unit_cell(gemmi.UnitCell(*(shape * density_map.voxel_size), 90, 90, 90))
    calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
    calculator.grid.set_size(*shape)
    calculator.add_model_density_to_grid(structure[0])
    squares = [np.fft.fftfreq(n, step) ** 2 for n, step in zip(shape, density_map.voxel_size)]
    kept = squares[0][:, None, None] + squares[1][:, None] + squares[2] <= resolution**-2
    return np.fft.ifftn(np.fft.fftn(np.array(calculator.grid)) * kept).real.T


@pytest.mark.parametrize("option", [[], ["--conformers", "major"]])
def test_all_conformers_are_in_the_density_by_their_occupancies(tmp_path, option):
    model, output = tmp_path / "model.pdb", tmp_path / "map.mrc"
    write_conformers(model)
    arguments = ("--resolution", 2, "--voxel-size", 0.5, "--output", output)
    assert run("simulate", model, *arguments, *option) == 0
    found = DensityMap.from_file(output)
    if option:
        structure = gemmi.read_structure(str(model))
        for residue in structure[0][0]:
            for k in reversed(range(len(residue))):
                residue[k].occ = 1.0
                if residue[k].altloc == "B":
                    del residue[k]
        structure.write_pdb(str(model))
    expected = gemmis(model, found, 2.0)
    assert np.abs(found.data - expected).max() < 0.02 * expected.max()


def test_impossible_occupancies_are_named(tmp_path, capsys):
    model, output = tmp_path / "model.pdb", tmp_path / "map.mrc"
    write_conformers(model, ("1.70", "0.30"))
    arguments = ("--resolution", 2, "--voxel-size", 0.5, "--output", output)
    assert run("simulate", model, *arguments) == 0
    said = "3 atoms with an occupancy below 0 or over 1, counted as 0 or 1"
    assert said in capsys.readouterr().err
    model.write_text(re.sub(r"  \d\.\d\d 10\.00", "  0.00 10.00", model.read_text()))
    assert run("simulate", model, *arguments, "--overwrite") == 2
    assert "no atom has an occupancy above 0" in capsys.readouterr().err
