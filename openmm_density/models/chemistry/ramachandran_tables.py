"""The Ramachandran plot: the residues that have φ and ψ, and how common each φ, ψ is, from pyrama's tables."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from openmm import app

from .backbone import atoms_by_name
from .residues import is_d_amino_acid
from .stereocentres import FLAT, chiral_centres
from .topologies import found_once
from .torsions import peptide_torsions, torsion_angles

FAVOURED = 0.02
"""The fraction of well-ordered residues outside the favoured regions, which hold 98% of them."""
ALLOWED = {"general": 0.0005, "glycine": 0.002, "proline": 0.002, "preproline": 0.002}
"""The same for the allowed regions, by plot: they hold 99.95% and 99.8%."""
CELL = 2.0
"""Degrees. The tables have a value at the centre of each cell, φ slowest, from −179 to 179."""
CENTRES = np.arange(-180.0 + CELL / 2, 180.0, CELL)


class BackboneTorsions(NamedTuple):
    """The residues of a model that have both φ and ψ."""

    residues: np.ndarray  # int (R,), their indices
    # int (R, 5), C of the previous residue, N, CA, C, and N of the next residue: φ is that of the first four, ψ of
    # the last four
    atoms: np.ndarray
    plots: np.ndarray  # (R,), the name of the plot of each, one of `ALLOWED`
    handedness: np.ndarray  # (R,), −1 for D-amino acids, whose plot is inverted, else 1
    centres: np.ndarray  # int (R, 4), Cα and its neighbours as in `chiral_centres`, or −1 without Cβ

    def at(self, positions: np.ndarray) -> BackboneTorsions:
        """Return them with the handedness of the residues at positions (N, 3); where Cα is flat it is unchanged."""
        angles = np.where(self.centres[:, 0] < 0, 0.0, torsion_angles(positions, self.centres))
        return self._replace(handedness=np.where(np.abs(angles) >= FLAT, np.sign(angles), self.handedness))


def backbone_torsions(topology: app.Topology, positions: np.ndarray | None = None) -> BackboneTorsions:
    """Find the residues with φ and ψ, by the bonds to their neighbours.

    `positions` (N, 3) tell L-amino acids from D ones, which may have the name of the L one; without positions or Cβ, or where
    Cα is flat, the name decides.
    """
    found = _backbone_torsions(topology)
    return found if positions is None else found.at(positions)


@found_once
def _backbone_torsions(topology: app.Topology) -> BackboneTorsions:
    names = atoms_by_name(topology)
    kinds = [each.residue.name for each in names]
    residue_of_atom = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for _, carbon, nitrogen, _ in peptide_torsions(topology):
        before[int(residue_of_atom[nitrogen])] = int(carbon)
        after[int(residue_of_atom[carbon])] = int(nitrogen)
    chosen = [i for i in sorted(before.keys() & after.keys()) if {"N", "CA", "C"} <= names[i].keys()]
    atoms = [(before[i], *(names[i][name] for name in ("N", "CA", "C")), after[i]) for i in chosen]
    known = {each[0]: each for each in chiral_centres(topology).tolist()}
    return BackboneTorsions(
        np.array(chosen, dtype=np.int64),
        np.array(atoms, dtype=np.int64).reshape(-1, 5),
        np.array([_plot(kinds[i], kinds[residue_of_atom[after[i]]]) for i in chosen], dtype="<U10"),
        np.array([-1.0 if is_d_amino_acid(kinds[i]) else 1.0 for i in chosen]),
        np.array([known.get(each[2], [-1] * 4) for each in atoms], dtype=np.int64).reshape(-1, 4),
    )


def _plot(kind: str, next_kind: str) -> str:
    """Return the name of a residue's plot."""
    if kind in ("GLY", "PRO"):
        return {"GLY": "glycine", "PRO": "proline"}[kind]
    return "preproline" if next_kind == "PRO" else "general"


def ramachandran_tables() -> dict[str, np.ndarray] | None:
    """Return by plot, at `CENTRES`, the fraction of residues with rarer φ and ψ (Lovell et al. 2003); None without pyrama."""
    # Only its files are needed: importing pyrama would load pyplot and Biopython.
    package = find_spec("pyrama")
    if package is None or not package.submodule_search_locations:
        return None
    return _read_tables(Path(next(iter(package.submodule_search_locations))) / "data")


@lru_cache(maxsize=1)
def _read_tables(folder: Path) -> dict[str, np.ndarray] | None:
    tables = {}
    for plot in ALLOWED:
        try:
            rows = np.loadtxt(folder / f"pref_{plot}.data")
        except (OSError, ValueError):
            return None
        grid = np.stack(np.meshgrid(CENTRES, CENTRES, indexing="ij"), axis=-1).reshape(-1, 2)
        if rows.shape != (len(grid), 3) or not np.array_equal(rows[:, :2], grid):
            return None
        tables[plot] = rows[:, 2].reshape(len(CENTRES), len(CENTRES))
    return tables
