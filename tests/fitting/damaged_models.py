"""A fragment of adenylate kinase damaged on purpose, and what a fit has to make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.fitting import FitResult, FlexibleFit
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.pierced_rings import pierced_rings
from openmm_density.models.chemistry.stereocentres import chiral_centres
from openmm_density.models.chemistry.torsions import torsion_angles
from openmm_density.validation.geometry import geometry_report

from ..fragments import RESOLUTION, write_fragment
from ..small_models import heavy_clashes

# LYS GLY THR GLN ALA GLN PHE ILE MET GLU LYS TYR
FIRST, LAST = 13, 24


def native(folder: Path) -> Model:
    return read_model(_written(folder / "native.pdb"))


def _written(path: Path, pierced: bool = False) -> Path:
    """Write residues 13 to 24; and 13 to 15 once more, the bond CD - CE of Lys 13 through the ring of Phe 19, if asked for."""
    write_fragment(path, residues=LAST)
    structure = gemmi.read_structure(str(path))
    chain = structure[0][0]
    del chain[: FIRST - 1]
    if pierced:
        ring = np.array([chain[6][name][0].pos.tolist() for name in ("CG", "CD1", "CE1", "CZ", "CE2", "CD2")])
        normal = np.cross(ring[2] - ring[0], ring[4] - ring[0])
        ends = np.array([chain[0][name][0].pos.tolist() for name in ("CD", "CE")])
        turn, _ = Rotation.align_vectors([normal / np.linalg.norm(normal)], [ends[1] - ends[0]])
        other = gemmi.Chain("B")
        for residue in [each.clone() for each in chain][:3]:
            for atom in residue:
                moved = turn.apply(np.array(atom.pos.tolist()) - ends.mean(axis=0)) + ring.mean(axis=0)
                atom.pos = gemmi.Position(*moved)
            other.add_residue(residue)
        structure[0].add_chain(other)
    structure.setup_entities()
    structure.write_pdb(str(path))
    return path


def _index(model: Model, residue: int, name: str) -> int:
    return next(a.index for a in model.topology.atoms() if a.residue.id == str(residue) and a.name == name)


def _atoms_in_one_place(model: Model) -> np.ndarray:
    positions = model.positions.copy()
    positions[_index(model, 15, "CG2")] = positions[_index(model, 22, "CD")] + [0.1, 0, 0]
    positions[_index(model, 21, "CE")] = positions[_index(model, 17, "CB")] + [0, 0.1, 0]
    positions[_index(model, 16, "CG")] = positions[_index(model, 16, "CB")] + [0, 0, 0.1]
    return positions


def _torn_bonds(model: Model) -> np.ndarray:
    positions = model.positions.copy()
    for residue, fixed, moved in ((21, "SD", "CE"), (18, "C", "O"), (20, "CG1", "CD1"), (19, "CE1", "CZ")):
        start, end = positions[_index(model, residue, fixed)], positions[_index(model, residue, moved)]
        positions[_index(model, residue, moved)] = start + 4.0 * (end - start) / np.linalg.norm(end - start)
    return positions


def _inverted_centres(model: Model) -> np.ndarray:
    positions = model.positions.copy()
    for residue, pair in ((20, ("CG1", "CG2")), (15, ("OG1", "CG2"))):
        one, other = (_index(model, residue, name) for name in pair)
        positions[[one, other]] = positions[[other, one]]
    return positions


def _d_amino_acids(model: Model) -> np.ndarray:
    positions = model.positions.copy()
    backbone = {"N", "CA", "C", "O"}
    for residue in model.topology.residues():
        if residue.id not in ("17", "19", "22"):
            continue
        n, ca, c = (positions[_index(model, int(residue.id), name)] for name in ("N", "CA", "C"))
        normal = np.cross(n - ca, c - ca)
        normal /= np.linalg.norm(normal)
        side = [atom.index for atom in residue.atoms() if atom.name not in backbone]
        positions[side] -= 2 * ((positions[side] - ca) @ normal)[:, None] * normal
    return positions


DAMAGES = {
    "atoms at 0.1 Å": _atoms_in_one_place,
    "bonds of 4 Å": _torn_bonds,
    "inverted centres": _inverted_centres,
    "D-amino acids": _d_amino_acids,
    "a pierced ring": None,
}


def damaged(folder: Path, damage: str) -> Model:
    if damage == "a pierced ring":
        return read_model(_written(folder / "pierced.pdb", pierced=True))
    model = native(folder)
    return replace(model, positions=DAMAGES[damage](model))


def fit_of(model: Model, folder: Path, platform: str, **options: object) -> FlexibleFit:
    whole = native(folder)
    density_map = DensityMap.simulate(whole.topology, whole.positions, RESOLUTION, 1.5, margin=8.0)
    protocol = Protocol(
        (Stage("draw", 40, (0.5, 1.0)),), strength="auto", minimize_first=100, minimize_last=20
    )
    threads = {} if platform == "CUDA" else {"threads": 1}
    options = {"report_interval": 40, "save_interval": 40, "place": "off", **threads, **options}
    return FlexibleFit(model, density_map, RESOLUTION, protocol, platform=platform, **options)


def assert_sane(fit: FlexibleFit, result: FitResult) -> None:
    """Bonds, angles and contacts are those of a model, no ring is pierced, and atoms and the chirality of centres are kept.

    Of what was simulated, also where the start, with its damage, has the better correlation and is kept.
    """
    topology = fit.prepared.topology
    if result.simulated is not None:
        result = replace(result, final=result.simulated.final)
    assert (
        np.isfinite(result.final).all() and np.isfinite([row.potential_energy for row in result.rows]).all()
    )
    report = geometry_report(topology, result.final)
    assert report.bond_rmsd < 0.04 and report.angle_rmsd < 5.0
    assert len(heavy_clashes(topology, result.final)) == 0
    assert pierced_rings(topology, result.final) == []
    centres = chiral_centres(topology)
    before, after = (torsion_angles(positions, centres) for positions in (result.initial, result.final))
    held = np.abs(before) > np.radians(10)
    assert np.array_equal(np.sign(before[held]), np.sign(after[held]))
