"""A short chain with two conformers of a phenylalanine and a lysine, and a map that gemmi makes of both."""

from __future__ import annotations

from types import SimpleNamespace

import gemmi
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.fitting import FlexibleFit
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.models import read_model
from openmm_density.report import OutputFolder

from ...fragments import write_fragment

RESOLUTION = 1.8
SHARES = {"A": 0.6, "B": 0.4}
TURNED = {19: 120.0, 13: 120.0}
"""Degrees about CA-CB, of residues."""
ABSENT = {22: 120.0}
"""Those whose second conformer the model has, and the map has not."""


def turned(residue, position, degrees):
    alpha, beta = (np.array(residue[name][0].pos.tolist()) for name in ("CA", "CB"))
    axis = (beta - alpha) / np.linalg.norm(beta - alpha)
    return Rotation.from_rotvec(np.radians(degrees) * axis).apply(position - beta) + beta


def write_conformers(path, structure, starts=False):
    """Write a chain with both conformers; those of a start are turned by 20°, with occupancies of 0.5, and one too many."""
    structure = structure.clone()
    angles = TURNED | ABSENT if starts else TURNED
    for residue in structure[0][0]:
        angle = angles.get(residue.seqid.num)
        if angle is None:
            continue
        made = []
        for label, degrees in (("A", 0.0), ("B", angle)):
            for atom in residue:
                if atom.name in ("N", "CA", "C", "O", "CB"):
                    continue
                other = atom.clone()
                place = turned(residue, np.array(atom.pos.tolist()), degrees + 20.0 * starts)
                other.pos = gemmi.Position(*place)
                other.altloc, other.occ = label, 0.5 if starts else SHARES[label]
                made.append(other)
        for name in {atom.name for atom in made}:
            residue.remove_atom(name, "\0", residue[name][0].element)
        for atom in made:
            residue.add_atom(atom)
    structure.write_pdb(str(path))
    return structure


def map_of(structure, spacing=0.55):
    """Return gemmi's density of a structure, cut at the resolution, with B factors of 15 Å²."""
    places = np.array([each.atom.pos.tolist() for each in structure[0].all()])
    low, high = places.min(axis=0) - 8, places.max(axis=0) + 8
    shape = [int(n) + int(n) % 2 for n in np.ceil((high - low) / spacing)]
    cell = gemmi.UnitCell(*(n * spacing for n in shape), 90, 90, 90)
    for each in structure[0].all():
        each.atom.pos -= gemmi.Position(*low)
        each.atom.b_iso = 15.0
    calculator = gemmi.DensityCalculatorE()
    calculator.d_min = RESOLUTION
    calculator.grid.set_unit_cell(cell)
    calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
    calculator.grid.set_size(*shape)
    calculator.add_model_density_to_grid(structure[0])
    spectrum = np.fft.fftn(np.array(calculator.grid))
    squares = [np.fft.fftfreq(n, spacing) ** 2 for n in shape]
    s2 = squares[0][:, None, None] + squares[1][:, None] + squares[2]
    data = np.fft.ifftn(spectrum * (s2 <= RESOLUTION**-2)).real
    return DensityMap(data.T.astype(np.float32), np.eye(3) * spacing, low)


@pytest.fixture(scope="session")
def two_conformers(tmp_path_factory):
    """The result of a short fit in its folder, with the truth."""
    folder = tmp_path_factory.mktemp("conformers")
    structure = gemmi.read_structure(str(write_fragment(folder / "chain.pdb", residues=22)))
    for _ in range(9):
        del structure[0][0][0]
    structure.remove_hydrogens()
    truth = write_conformers(folder / "truth.pdb", structure)
    write_conformers(folder / "start.pdb", structure, starts=True)
    density_map = map_of(truth.clone())
    # Cold, so that each side chain stays in the density beside it whatever the random numbers are.
    protocol = Protocol(
        (Stage("hold", 100, temperature=(10.0, 10.0)),),
        strength=60.0,
        minimize_first=100,
        minimize_last=300,
        search="off",
        conformers="auto",
        b_factors="residue",
    )
    fit = FlexibleFit(
        read_model(folder / "start.pdb"), density_map, RESOLUTION, protocol, threads=1, place="off"
    )
    output = OutputFolder(folder / "run")
    result = fit.run(output.run)
    return SimpleNamespace(
        folder=folder, map=density_map, fit=fit, result=result, output=output, protocol=protocol
    )
