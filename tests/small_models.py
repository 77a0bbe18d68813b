"""Small models that several tests cut out of real ones or write themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mdtraj
import numpy as np
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density.models import Model
from openmm_density.models.chemistry.contacts import ContactAtoms
from openmm_density.models.chemistry.elements import is_hydrogen

from .conftest import PROJECT

ADK_OPEN, ADK_CLOSED = (PROJECT / "examples" / "data" / f"adk_{state}.pdb" for state in ("open", "closed"))
FRAGMENT = "emd5925_frag/5925_native.pdb"


def shaken(model: Model, sigma: float = 0.4, seed: int = 0) -> Model:
    """Return a model with every atom displaced at random, by `sigma` (Å) along each axis: as bad as a poorly built start."""
    steps = np.random.default_rng(seed).normal(scale=sigma, size=model.positions.shape)
    return replace(model, positions=model.positions + steps)


def turned_about(
    positions: np.ndarray, a: int, b: int, moving: np.ndarray | list[int], angle: float
) -> np.ndarray:
    """Return positions with some atoms turned about the axis from atom a to atom b, by an angle in radians."""
    axis = positions[b] - positions[a]
    turned = positions.copy()
    turn = Rotation.from_rotvec(angle * axis / np.linalg.norm(axis))
    turned[moving] = turn.apply(positions[moving] - positions[a]) + positions[a]
    return turned


def moving(trajectory: mdtraj.Trajectory, n_frames: int, step: float = 0.05) -> mdtraj.Trajectory:
    """Return a trajectory that moves away along x by a step in nm."""
    shifts = np.arange(n_frames)[:, None, None] * np.array([step, 0, 0])
    return mdtraj.Trajectory(trajectory.xyz + shifts, trajectory.topology)


def fragment_lines(small_data: Path, first: int = 1, last: int = 12) -> list[str]:
    lines = (small_data / FRAGMENT).read_text().splitlines()
    return [line for line in lines if line.startswith("ATOM") and first <= int(line[22:26]) <= last]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join([*lines, "END", ""]))
    return path


def hetatm(serial: int, name: str, residue: str, number: int, place: np.ndarray, element: str) -> str:
    x, y, z = place
    return (
        f"HETATM{serial:5d} {name:<4s} {residue:>3s} A{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00 20.00          {element:>2s}"
    )


def bonds_between_residues(topology: app.Topology) -> set[frozenset[str]]:
    return {
        frozenset((f"{a.residue.id}.{a.name}", f"{b.residue.id}.{b.name}"))
        for a, b in topology.bonds()
        if a.residue is not b.residue
    }


def heavy_clashes(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Return the pairs of atoms that clash, hydrogens not among them, shape (P, 2)."""
    pairs, _ = ContactAtoms(topology).near(positions)
    light = np.array([is_hydrogen(atom) for atom in topology.atoms()])
    return pairs[~light[pairs].any(axis=1)]
