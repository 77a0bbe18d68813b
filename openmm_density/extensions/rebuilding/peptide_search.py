"""Peptides whose plane is turned over, so that C=O points to where N-H does: no dynamics of picoseconds turns them back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ...models.chemistry.backbone import atoms_by_name
from ...models.chemistry.torsions import torsion_angles
from .density_model import DensityEnergySlopes, DensityModel
from .molecule import Molecule
from .register_search import RegisterSearch
from .side_chain_energy import SideChainEnergy
from .side_chains import SideChain
from .stretch_trial import Built, Trial, TrialPlace, TrialResult

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

# Degrees by which a plane is turned as it is, and the Å around O in which others have a say.
_TURNS, _REACH = tuple(float(angle) for angle in range(90, 271, 30)), 10.0
# How many times as much the density alone may be worse; and the whole has to be better, where nothing else is suspicious.
_SHOWN, _CLEARLY = 4.0, -2.0
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
    def region(self) -> np.ndarray:
        """Indices of the residues that move with them."""

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions of `atoms` (n, 3) turned, from those of all (N, 3)."""


class TurnEnergies:
    """What it adds to the energy to turn something as it is: the density, and the contacts, of the atoms that turn."""

    def __init__(self, molecule: Molecule, density: DensityModel) -> None:
        self._molecule, self._density = molecule, density
        self._heavy = np.flatnonzero(molecule.is_heavy)
        self._known: tuple[np.ndarray, cKDTree] | None = None

    def _heavy_around(self, positions: np.ndarray, place: np.ndarray, reach: float) -> np.ndarray:
        # All that is tried of a model asks for the same array.
        if self._known is None or self._known[0] is not positions:
            self._known = positions, cKDTree(positions[self._heavy])
        return self._heavy[self._known[1].query_ball_point(place, reach, return_sorted=True)]

    def best_turn(
        self, turning: Turning, positions: np.ndarray, turns: Sequence[float], reach: float = _REACH
    ) -> tuple[float, float]:
        """Return what the best turn adds to the energy, in kJ/mol, and its degrees.

        `positions` (N, 3) in Å; `reach`: Å around the middle one of its atoms in which others have a say.
        """
        molecule, density, atoms = self._molecule, self._density, turning.atoms
        slopes = density.slopes(positions)
        near = self._heavy_around(positions, positions[atoms[len(atoms) // 2]], reach)
        near = near[~np.isin(near, atoms)]
        in_contact = [
            ~np.isin(near, list(molecule.within_bonds(atom, _BONDS_APART))) for atom in atoms.tolist()
        ]
        part = SideChain(-1, "", atoms, np.arange(len(atoms)), [], np.zeros((1, 0)))
        energy = SideChainEnergy(molecule, density, part, near, positions[None, near], np.array([in_contact]))
        conformations = [positions[atoms], *(turning.turned(positions, angle) for angle in turns)]
        integrals, contacts = (each[0] for each in energy.evaluate(np.array(conformations)[None]))
        fit = density.linear_energy(slopes, integrals)
        total = fit[1:] - fit[0] + np.minimum(contacts[1:] - contacts[0], _MOST_CONTACT)
        return float(total.min()), float(turns[int(total.argmin())])


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
        self._energies = TurnEnergies(molecule, density)
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

    def candidates(
        self,
        positions: np.ndarray,
        suspicious: np.ndarray | None = None,
        changed: np.ndarray | None = None,
    ) -> list[tuple[Peptide, float]]:
        """Return peptides that may be flipped, and by how many degrees, those first that promise most.

        `positions` (N, 3) in Å.
        """
        if not self.peptides:
            return []
        found = []
        worse = _WORSE * self._density.energy_of_seen_atom(self._molecule, positions)
        slopes = self._density.slopes(positions)
        for number in self._shown(positions, slopes, _SHOWN * worse).tolist():
            peptide = self.peptides[number]
            if changed is not None and not np.isin(peptide.region, changed).any():
                continue
            energy, degrees = self._energies.best_turn(peptide, positions, _TURNS)
            both = peptide.chain[peptide.place : peptide.place + 2]
            doubted = suspicious is None or suspicious[both].any()
            if energy < (worse if doubted else _CLEARLY * worse):
                found.append((energy, number, degrees))
        most = max(int(_PART_TRIED * len(self.peptides)), 1)
        return [(self.peptides[number], degrees) for _, number, degrees in sorted(found)[:most]]

    def _shown(self, positions: np.ndarray, slopes: DensityEnergySlopes, worse: float) -> np.ndarray:
        """Return the numbers of the peptides, trans, whose density is worse by less than so many kJ/mol in some other turn."""
        atoms, alphas = (np.array([getattr(p, name) for p in self.peptides]) for name in ("atoms", "alphas"))
        quadruples = np.stack([alphas[:, 0], atoms[:, 0], atoms[:, 2], alphas[:, 1]], axis=1)
        trans = np.abs(torsion_angles(positions, quadruples)) > np.pi / 2
        first, second = positions[alphas].transpose(1, 0, 2)
        axes = (second - first) / np.linalg.norm(second - first, axis=1, keepdims=True)
        own = positions[atoms] - first[:, None]
        along = np.einsum("pai,pi->pa", own, axes)[..., None] * axes[:, None]
        across, aside = own - along, np.cross(axes[:, None], own)
        angles = np.radians((0.0, *_TURNS))[:, None, None, None]
        turned = first[:, None] + along + np.cos(angles) * across + np.sin(angles) * aside
        seen = (self._density.map_integral(turned) * self._density.weights[atoms]).sum(axis=-1)
        return np.flatnonzero(trans & (slopes.per_map * (seen[0] - seen[1:].max(axis=0)) < worse))


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


class FlipTrial(Trial):
    """Turn something over, and tell what it gains: minimised, and annealed, by the residues around it flipped and as they were.

    It is turned by so many degrees to begin with, and of its peptides one has to be flipped in the end.
    """

    least_gain = LEAST_GAIN
    # Whether side chains follow, and the kJ/mol by which what was built may be worse and is still annealed.
    _turns_side_chains, _hopeless = False, 30.0

    def __init__(
        self,
        molecule: Molecule,
        positions: np.ndarray,
        turning: Turning,
        peptides: Sequence[Peptide],
        turns: Sequence[float],
    ) -> None:
        super().__init__(molecule, positions, turning.region)
        self.peptides = peptides
        self._turning, self._turns = turning, turns

    @property
    def n_turns(self) -> int:
        """Ways in which it is turned to begin with."""
        return len(self._turns)

    @property
    def size(self) -> int:
        """Conformations times atoms."""
        return self.n_turns * len(self.moving)

    def run(self, place: TrialPlace) -> TrialResult | None:
        """Build what is turned, anneal the best and what was there, and return what it gains."""
        turned = [place.minimized(self._built(place, each), _SCREEN, soft=True) for each in self._turns]
        turned = [each for each in turned if self._is_flipped(place, each)]
        if not turned:
            return None
        own = place.minimized(place.own, _SCREEN, soft=True)
        soft = [each.places for each in (own, *turned)]
        own, *turned = place.turned(soft) if self._turns_side_chains else map(place.minimized, soft)

        def energy(built: Built) -> float:
            """Return the energy in kJ/mol, with that of hydrogen bonds."""
            if not np.isfinite(built.energy):
                return np.inf
            return built.energy + self._hydrogen_bonds(place, place.whole(built.places))

        best = min((each for each in turned if self._is_flipped(place, each)), key=energy, default=None)
        if best is None or not energy(best) < energy(own) + self._hopeless:
            return None
        every = [
            own,
            best,
            *(place.annealed(each.places, self.annealing_steps) for each in (best, own)),
        ]
        flipped = [each for each in every if self._is_flipped(place, each)]
        other = [each for each in every if not self._is_flipped(place, each)]
        best = min(flipped, key=energy)
        before = min(other, key=energy) if other else own
        if not np.isfinite([best.energy, before.energy]).all():
            return None
        return TrialResult(energy(before) - energy(best), best.places)

    def _hydrogen_bonds(self, place: TrialPlace, positions: np.ndarray) -> float:
        """Return the energy of hydrogen bonds in kJ/mol, which a `LocalSystem` does not have: of the backbone."""
        return place.tools.hydrogen_bonds.energy(positions, self.moving)

    def _built(self, place: TrialPlace, degrees: float) -> np.ndarray:
        positions = place.positions.copy()
        positions[self._turning.atoms] = self._turning.turned(positions, degrees)
        return positions[self.moving]

    def _is_flipped(self, place: TrialPlace, built: Built) -> bool:
        after = place.whole(built.places)
        return any(is_flipped(each, place.positions, after) for each in self.peptides)


class PeptideTrial(FlipTrial):
    """Turn the plane of a peptide over, by so many degrees to begin with, and by 180° as well."""

    def __init__(self, molecule: Molecule, positions: np.ndarray, peptide: Peptide, degrees: float) -> None:
        super().__init__(molecule, positions, peptide, [peptide], sorted({degrees, 180.0}))
