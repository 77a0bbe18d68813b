"""Peptides whose plane is turned over, so that C=O points to where N-H does: no dynamics of picoseconds turns them back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from ...models.chemistry.backbone import atoms_by_name
from ...models.chemistry.secondary_structure import HydrogenBonds
from ...models.chemistry.torsions import torsion_angles
from .density_model import DensityEnergySlopes, DensityModel
from .molecule import Molecule
from .register_search import RegisterSearch, Stretch
from .side_chain_energy import SideChainEnergy
from .side_chains import SideChain
from .stretch_trial import Built, StretchTrial, Task

PEPTIDES_SEEN = 3.5
"""Å: up to this resolution a map shows to which side C=O points. Of 12 peptides flipped in adenylate kinase, in maps simulated
with noise, 11 are mended at 3 and 3.5 Å, four at 4 and 4.5 Å, and no other is flipped."""
FLIPPED = 90.0
"""Degrees by which O has turned about the line of both Cα where a peptide counts as flipped."""
LEAST_GAIN = 40.0
"""kJ/mol by which a flipped peptide has to be better: in their own maps, deposited models of EMD-6374 and haemoglobin (822
peptides) then keep all but one, of a glycine."""

FLANK = 2
"""Residues at either side of what is turned, which move with it."""

# Degrees by which a plane is turned as it is, and the Å around O in which atoms have a say.
_TURNS, _REACH = tuple(float(angle) for angle in range(90, 271, 30)), 10.0
# By how much a plane may be worse as it was turned, in the energy of a well-seen atom, and the kJ/mol up to which its contacts
# count; at most this part of the peptides is tried.
_WORSE, _MOST_CONTACT, _PART_TRIED = 0.2, 60.0, 0.2
# Iterations after which a plane that turns back has done so.
_SCREEN = 60
# Atoms so few bonds apart are not in contact.
_BONDS_APART = 3


class Peptide(NamedTuple):
    """A peptide that may be flipped."""

    chain: np.ndarray  # int, indices of all residues of the unbroken chain
    place: int  # In it, of the residue before the bond
    atoms: np.ndarray  # int (3,), C and O, and N of the next residue
    alphas: np.ndarray  # int (2,), Cα of both

    @property
    def residue(self) -> int:
        """Index of the residue before the bond."""
        return int(self.chain[self.place])

    @property
    def stretch(self) -> Stretch:
        """Both residues."""
        return Stretch(self.chain, self.place, self.place + 1, ())

    @property
    def region(self) -> np.ndarray:
        """Indices of the residues that move when it is flipped."""
        return self.chain[max(self.place - FLANK, 0) : self.place + 2 + FLANK]

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions (3, 3) of its ``atoms`` turned about the line of both Cα."""
        return turned_about(positions[self.atoms], positions[self.alphas], degrees)


def turned_about(places: np.ndarray, ends: np.ndarray, degrees: float) -> np.ndarray:
    """Return places (n, 3) turned about the line through two points (2, 3)."""
    first, second = ends
    axis = (second - first) / np.linalg.norm(second - first)
    return Rotation.from_rotvec(np.radians(degrees) * axis).apply(places - first) + first


class Turning(Protocol):
    """What is turned about a line: a peptide, or a loop."""

    @property
    def atoms(self) -> np.ndarray:
        """Indices of the atoms that turn."""

    @property
    def stretch(self) -> Stretch:
        """The residues with such atoms."""

    @property
    def region(self) -> np.ndarray:
        """Indices of the residues that move with them."""

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions of `atoms` (n, 3) turned, from those of all (N, 3)."""


class PeptideSearch:
    """Find peptides that may fit better turned over.

    The plane of a peptide is turned about the line of both Cα, which lie in it, as crystallographers flip it by hand: C, O and N
    move, by up to 3.6 Å, and φ and ψ on either side change by 180°. What the density and the contacts of these three atoms then
    are worth, among all others as they are, says where it is worth while to build the flip.

    `density` of the same atoms; `registers` of the same topology. Attributes: `peptides`: those that can be flipped:
    whose three atoms are fitted, and whose N is not part of a ring.
    """

    def __init__(self, molecule: Molecule, density: DensityModel, registers: RegisterSearch) -> None:
        self._molecule, self._density = molecule, density
        self._heavy = np.flatnonzero(molecule.is_heavy)
        names = atoms_by_name(molecule.topology)
        self.peptides = []
        for chain in registers.chains:
            for place, (before, behind) in enumerate(pairwise(chain.tolist())):
                first, second = names[before], names[behind]
                if "O" not in first:
                    continue
                atoms = np.array([first["C"], first["O"], second["N"]])
                joined = [k for k in molecule.bonded[second["N"]] if molecule.is_heavy[k]]
                if len(joined) == 2 and density.weights[atoms].all():
                    alphas = np.array([first["CA"], second["CA"]])
                    self.peptides.append(Peptide(chain, place, atoms, alphas))
        self._bonded = [
            np.array(
                [
                    (row, other)
                    for row in range(3)
                    for other in molecule.within_bonds(int(peptide.atoms[row]), _BONDS_APART)
                ]
            )
            for peptide in self.peptides
        ]

    def candidates(
        self, positions: np.ndarray, changed: np.ndarray | None = None
    ) -> list[tuple[Peptide, float]]:
        """Return peptides that may be flipped, and by how many degrees, those first that promise most.

        `positions` (N, 3) in Å.
        """
        if not self.peptides:
            return []
        found = []
        worse = _WORSE * self._density.energy_of_seen_atom(self._molecule, positions)
        slopes = self._density.slopes(positions)
        for number in self._trans(positions):
            peptide = self.peptides[number]
            if changed is not None and not np.isin(peptide.region, changed).any():
                continue
            energy, degrees = self._best_turn(number, positions, slopes)
            if energy < worse:
                found.append((energy, number, degrees))
        most = max(int(_PART_TRIED * len(self.peptides)), 1)
        return [(self.peptides[number], degrees) for _, number, degrees in sorted(found)[:most]]

    def flipped(
        self, before: np.ndarray, after: np.ndarray, residues: np.ndarray | None = None
    ) -> list[Peptide]:
        """Return the peptides that are flipped in one of two models (N, 3); with ``residues``, of those before their bonds."""
        chosen = [each for each in self.peptides if residues is None or each.residue in residues]
        return [each for each in chosen if is_flipped(each, before, after)]

    def _trans(self, positions: np.ndarray) -> list[int]:
        """Return the numbers of the peptides that are not cis."""
        quadruples = np.array(
            [[p.alphas[0], p.atoms[0], p.atoms[2], p.alphas[1]] for p in self.peptides], dtype=np.int64
        )
        return np.flatnonzero(
            np.abs(torsion_angles(positions, quadruples.reshape(-1, 4))) > np.pi / 2
        ).tolist()

    def _best_turn(
        self, number: int, positions: np.ndarray, slopes: DensityEnergySlopes
    ) -> tuple[float, float]:
        """Return what a peptide's best turn adds to the energy, in kJ/mol, and its degrees."""
        peptide, density = self.peptides[number], self._density
        others = self._heavy[~np.isin(self._heavy, peptide.atoms)]
        near = others[((positions[others] - positions[peptide.atoms[1]]) ** 2).sum(axis=1) < _REACH**2]
        pairs = np.ones((1, 3, len(near)), dtype=bool)
        rows, bonded = self._bonded[number].T
        for row in range(3):
            pairs[0, row] = ~np.isin(near, bonded[rows == row])
        plane = SideChain(peptide.residue, "", peptide.atoms, np.arange(3), [], np.zeros((1, 0)))
        energy = SideChainEnergy(self._molecule, density, plane, near, positions[None, near], pairs)
        conformations = [positions[peptide.atoms], *(peptide.turned(positions, angle) for angle in _TURNS)]
        integrals, contacts = (each[0] for each in energy.evaluate(np.array(conformations)[None]))
        fit = density.linear_energy(slopes, integrals)
        total = fit[1:] - fit[0] + np.minimum(contacts[1:] - contacts[0], _MOST_CONTACT)
        return float(total.min()), _TURNS[int(total.argmin())]


def is_flipped(peptide: Peptide, before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether O of a peptide has turned by more than `FLIPPED` from one model (N, 3) to another."""
    return _turn(peptide, before, after) > FLIPPED


def _turn(peptide: Peptide, before: np.ndarray, after: np.ndarray) -> float:
    """Return the degrees by which O turned about the line of both Cα, between 0 and 180."""
    across = []
    for positions in (before, after):
        first, second = positions[peptide.alphas]
        axis = (second - first) / np.linalg.norm(second - first)
        from_axis = positions[peptide.atoms[1]] - first
        from_axis = from_axis - (from_axis @ axis) * axis
        across.append(from_axis / np.linalg.norm(from_axis))
    return float(np.degrees(np.arccos(np.clip(across[0] @ across[1], -1.0, 1.0))))


class FlipTrial(StretchTrial):
    """Turn something over, and tell what it gains: minimised, and annealed, by the residues around it flipped and as they were.

    `bonds` of its backbone: a `LocalSystem` has no charges; `positions` (N, 3) in Å; `turning`: what is turned;
    `peptides` of these one has to be flipped in the end; `turns`: degrees by which it is turned to begin with.
    Attributes: `peptides` as given.
    """

    # What is done to what was built, and the kJ/mol by which it may then be worse and is still annealed.
    _settled_by, _hopeless = "hard", 30.0

    def __init__(
        self,
        molecule: Molecule,
        bonds: HydrogenBonds,
        positions: np.ndarray,
        turning: Turning,
        peptides: Sequence[Peptide],
        turns: Sequence[float],
    ) -> None:
        super().__init__(molecule, positions, [turning.stretch], turning.region)
        self.peptides = peptides
        self._turning, self._bonds, self._turns = turning, bonds, turns

    @property
    def size(self) -> int:
        """Conformations times atoms."""
        return len(self._turns) * len(self.moving)

    def course(self) -> Generator[list[Task], list[list[Built]], None]:
        """Yield tasks, see `StretchTrial.course`, until `gain` is known."""
        (turned,) = yield [Task("soft", _SCREEN, places=tuple(map(self._built, self._turns)))]
        turned = [each.places for each in turned if self._is_flipped(each)]
        if not turned:
            return
        ((own,),) = yield [Task("soft", _SCREEN, places=(self._positions[self.moving],))]
        ((own, *turned),) = yield [Task(self._settled_by, places=(own.places, *turned))]
        best = min((each for each in turned if self._is_flipped(each)), key=self._energy, default=None)
        if best is None or not self._energy(best) < self._energy(own) + self._hopeless:
            return
        (annealed,), (again,) = yield [Task("anneal", places=(each.places,)) for each in (best, own)]
        every = [own, best, annealed, again]
        flipped = [each for each in every if self._is_flipped(each)]
        other = [each for each in every if not self._is_flipped(each)]
        best = min(flipped, key=self._energy)
        before = min(other, key=self._energy) if other else own
        if np.isfinite([best.energy, before.energy]).all():
            self.gain, self._best = self._energy(before) - self._energy(best), best.places

    def _built(self, degrees: float) -> np.ndarray:
        positions = self._positions.copy()
        positions[self._turning.atoms] = self._turning.turned(positions, degrees)
        return positions[self.moving]

    def _whole(self, built: Built) -> np.ndarray:
        positions = self._positions.copy()
        positions[self.moving] = built.places
        return positions

    def _is_flipped(self, built: Built) -> bool:
        after = self._whole(built)
        return any(is_flipped(each, self._positions, after) for each in self.peptides)

    def _energy(self, built: Built) -> float:
        """Return the energy in kJ/mol, with that of the backbone's hydrogen bonds."""
        if not np.isfinite(built.energy):
            return np.inf
        return built.energy + self._bonds.energy(self._whole(built), self.moving)


class PeptideTrial(FlipTrial):
    """Turn the plane of a peptide over.

    `molecule`, `bonds`, `positions` as for `FlipTrial`. `degrees` by which its plane is turned to begin with; by 180°
    as well.
    """

    def __init__(
        self,
        molecule: Molecule,
        bonds: HydrogenBonds,
        positions: np.ndarray,
        peptide: Peptide,
        degrees: float,
    ) -> None:
        super().__init__(molecule, bonds, positions, peptide, [peptide], sorted({degrees, 180.0}))
