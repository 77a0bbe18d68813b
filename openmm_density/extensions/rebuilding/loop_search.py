"""Loops of one or two residues turned over, with both or all three of their peptides: neighbours that are wrong together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...models.chemistry.backbone import atoms_by_name
from .density_model import DensityModel
from .molecule import Molecule
from .peptide_search import FLANK, FlipTrial, Peptide, PeptideSearch, turned_about
from .register_search import RegisterSearch, Stretch
from .suspicions import FALLEN

LEAST_GAIN = 50.0
"""kJ/mol by which a loop that was turned over has to be better."""

# Peptides that turn together; those of four gained nothing in any of 21 places where a loop was wrong.
_PEPTIDES = (2, 3)
# Degrees by which loops are turned to begin with.
_TURNS = (120.0, 180.0, 240.0)
# The most loops that are tried, for each residue of the model.
_PART_TRIED = 0.15


class Loop(NamedTuple):
    """Neighbouring peptides that turn as one about the line of the Cα at their ends."""

    peptides: tuple[Peptide, ...]  # In their order along the chain
    inner: np.ndarray  # int, indices of the residues between both Cα
    # int, non-hydrogen atoms that turn: those of these residues, C and O before them, and N behind them
    atoms: np.ndarray

    @property
    def residues(self) -> np.ndarray:
        """Indices of its residues, with both at its ends."""
        first = self.peptides[0]
        return first.chain[first.place : first.place + len(self.peptides) + 1]

    @property
    def stretch(self) -> Stretch:
        """Its residues, with both at its ends."""
        first = self.peptides[0]
        return Stretch(first.chain, first.place, first.place + len(self.peptides), ())

    @property
    def region(self) -> np.ndarray:
        """Indices of the residues that move when it is turned."""
        stretch = self.stretch
        return stretch.chain[max(stretch.first - FLANK, 0) : stretch.last + 1 + FLANK]

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions (n, 3) of its ``atoms`` turned about the line of the Cα at its ends."""
        ends = np.array([self.peptides[0].alphas[0], self.peptides[-1].alphas[1]])
        return turned_about(positions[self.atoms], positions[ends], degrees)


class LoopSearch:
    """Find loops that may fit better turned over.

    Where two neighbouring peptides are flipped, the Cα between them lies on the wrong side, by up to 4 Å, and to flip one of them
    is no better. One or two residues, with the peptides before, between and behind them, are turned as one about the line of the
    Cα at both ends: a crankshaft. As such loops fit badly as they are, those are tried whose residues do.

    `density` of the same atoms; `peptides` of the same topology; `registers` of the same topology. Attributes: `loops`:
    those that can be turned: of peptides that can be flipped, and residues that are bonded to no other but their
    neighbours.
    """

    def __init__(
        self,
        molecule: Molecule,
        density: DensityModel,
        peptides: PeptideSearch,
        registers: RegisterSearch,
    ) -> None:
        names = atoms_by_name(molecule.topology)
        tied = _tied_residues(molecule)
        flipping = {each.residue: each for each in peptides.peptides}
        self.loops: list[Loop] = []
        for first in peptides.peptides:
            for count in _PEPTIDES:
                residues = first.chain[first.place : first.place + count].tolist()
                together = [flipping.get(residue) for residue in residues]
                inner = np.array(residues[1:])
                if len(residues) < count or None in together or tied & {*residues[1:]}:
                    continue
                atoms = [a for a in registers.atoms_of(inner).tolist() if molecule.is_heavy[a]]
                ends = [names[residues[0]]["C"], names[residues[0]]["O"], int(together[-1].atoms[2])]
                every = np.array([*ends[:2], *atoms, ends[2]])
                if density.is_fitted[every].all():
                    self.loops.append(Loop(tuple(together), inner, every))

    def candidates(
        self, falls: np.ndarray, unusual: np.ndarray | None = None, changed: np.ndarray | None = None
    ) -> list[Loop]:
        """Return loops that may be turned over, those first that fit worst; of all, or with some ``unusual`` torsions.

        `falls` (number of residues,): see `openmm_density.extensions.rebuilding.suspicions.falls`.
        """
        known = np.nan_to_num(falls)
        fits = [(-float(known[loop.inner].mean()), number) for number, loop in enumerate(self.loops)]
        bad = [self.loops[number] for fit, number in sorted(fits) if fit < -FALLEN]
        if unusual is not None:
            bad = [loop for loop in bad if unusual[loop.residues].any()]
        if changed is not None:
            bad = [loop for loop in bad if np.isin(loop.region, changed).any()]
        members = np.unique(
            np.concatenate([np.zeros(0, dtype=np.int64), *(loop.inner for loop in self.loops)])
        )
        return bad[: max(int(_PART_TRIED * len(members)), 1)]


def _tied_residues(molecule: Molecule) -> set[int]:
    """Return the indices of residues that are bonded to others by their side chains, or to metals."""
    residues = molecule.residue_of[molecule.bonds]
    between = molecule.bonds[residues[:, 0] != residues[:, 1]]
    tied: set[int] = set()
    for a, b in between.tolist():
        if {molecule.atoms[a].name, molecule.atoms[b].name} != {"C", "N"}:
            tied |= {int(molecule.residue_of[a]), int(molecule.residue_of[b])}
    return tied


class LoopTrial(FlipTrial):
    """Turn a loop over; side chains follow, as those of its residues lead elsewhere then."""

    least_gain = LEAST_GAIN
    _turns_side_chains, _hopeless = True, 100.0

    def __init__(self, molecule: Molecule, positions: np.ndarray, loop: Loop) -> None:
        super().__init__(molecule, positions, loop, loop.peptides, _TURNS)
