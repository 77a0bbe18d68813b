"""Which backbone torsions are usual: where a model's residues lie in the Ramachandran plot, by the tables of pyrama."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from openmm import app

from openmm_density.models.structures import is_d_amino_acid
from openmm_density.restraints import peptide_torsions, torsion_angles

FAVOURED = 0.02
"""Part of well-ordered residues that lie in less usual places than a favoured one: favoured regions hold 98% of them."""
ALLOWED = {"general": 0.0005, "glycine": 0.002, "proline": 0.002, "preproline": 0.002}
"""The same of the allowed regions, by plot: they hold 99.95% and 99.8%."""
TABLES_MISSING = (
    "The Ramachandran plot was left out, because the tables of pyrama were not found or not readable; to have them: "
    "pip install pyrama"
)
"""What to tell a user for whom `Ramachandran.regions` is None."""

# Degrees. The tables have a value at the centre of each cell, φ slowest, from −179 to 179.
_CELL = 2.0
_CENTRES = np.arange(-180.0 + _CELL / 2, 180.0, _CELL)


@dataclass(frozen=True)
class Ramachandran:
    """The backbone torsions of a model's residues, and the regions that they lie in.

    Attributes
    ----------
    residues : np.ndarray of int, shape (R,)
        Indices of the residues that have both torsions.
    phi, psi : np.ndarray, shape (R,)
        Radians; of D-amino acids with the opposite sign.
    regions : np.ndarray of str, shape (R,), or None
        "F" for favoured, "a" for allowed, "." for neither; None without the tables, see `TABLES_MISSING`.
    """

    residues: np.ndarray
    phi: np.ndarray
    psi: np.ndarray
    regions: np.ndarray | None


def ramachandran(topology: app.Topology, positions: np.ndarray) -> Ramachandran:
    """Find where the residues of a model lie in the Ramachandran plot.

    The regions are those of Lovell et al., Proteins 50, 437 (2003), from the Top500 structures, for glycine, proline, residues
    before proline and all others. Their tables, in cells of 2°, come with the optional package ``pyrama``. MolProbity now has
    newer ones, from 8000 structures, and interpolates: near a border a residue can come out otherwise there.

    Parameters
    ----------
    topology : openmm.app.Topology
        With bonds, by which neighbours in the chain are found.
    positions : np.ndarray, shape (N, 3)
        Å.
    """
    names = [{atom.name: atom.index for atom in residue.atoms()} for residue in topology.residues()]
    kinds = [residue.name for residue in topology.residues()]
    residue_of_atom = np.array([atom.residue.index for atom in topology.atoms()], dtype=np.int64)
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for _, carbon, nitrogen, _ in peptide_torsions(topology):
        before[int(residue_of_atom[nitrogen])] = int(carbon)
        after[int(residue_of_atom[carbon])] = int(nitrogen)
    chosen = [i for i in sorted(before.keys() & after.keys()) if {"N", "CA", "C"} <= names[i].keys()]
    backbone = np.array(
        [[names[i][name] for name in ("N", "CA", "C")] for i in chosen], dtype=np.int64
    ).reshape(-1, 3)
    previous = np.array([before[i] for i in chosen], dtype=np.int64)
    following = np.array([after[i] for i in chosen], dtype=np.int64)
    hand = np.array([-1.0 if is_d_amino_acid(kinds[i]) else 1.0 for i in chosen])
    phi = hand * torsion_angles(positions, np.column_stack([previous, backbone]))
    psi = hand * torsion_angles(positions, np.column_stack([backbone, following]))
    plots = np.array(
        [_plot(kinds[i], kinds[residue_of_atom[k]]) for i, k in zip(chosen, following)], dtype="<U10"
    )
    return Ramachandran(np.array(chosen, dtype=np.int64), phi, psi, _regions(plots, phi, psi))


def _plot(kind: str, next_kind: str) -> str:
    """Name the plot that is for a residue."""
    if kind in ("GLY", "PRO"):
        return {"GLY": "glycine", "PRO": "proline"}[kind]
    return "preproline" if next_kind == "PRO" else "general"


def _regions(plots: np.ndarray, phi: np.ndarray, psi: np.ndarray) -> np.ndarray | None:
    tables = _tables()
    if tables is None:
        return None
    phi_cells, psi_cells = (
        np.floor((np.degrees(angle) + 180.0) / _CELL).astype(np.int64) % len(_CENTRES) for angle in (phi, psi)
    )
    regions = np.full(len(plots), ".", dtype="<U1")
    for plot, allowed in ALLOWED.items():
        members = np.flatnonzero(plots == plot)
        usual = tables[plot][phi_cells[members], psi_cells[members]]
        regions[members[usual >= allowed]] = "a"
        regions[members[usual >= FAVOURED]] = "F"
    return regions


def _tables() -> dict[str, np.ndarray] | None:
    """Give the tables by plot, each by φ and ψ; None where pyrama does not provide them."""
    # Only its files are wanted: importing pyrama would load pyplot and Biopython.
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
        grid = np.stack(np.meshgrid(_CENTRES, _CENTRES, indexing="ij"), axis=-1).reshape(-1, 2)
        if rows.shape != (len(grid), 3) or not np.array_equal(rows[:, :2], grid):
            return None
        tables[plot] = rows[:, 2].reshape(len(_CENTRES), len(_CENTRES))
    return tables
