"""Sugars in the other pucker, and bases turned from anti to syn or back, where the phosphates or the map speak for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from ...models.chemistry.base_pairs import Bases
from ...models.chemistry.sugar_puckers import C2_ENDO, C3_ENDO, Sugars, find_sugars, ring_phases
from ...models.chemistry.torsions import torsion_angles
from .density_model import DensityModel
from .molecule import Molecule
from .peptide_search import FlipTrial, TurnEnergies, turned_about
from .register_search import axes_of_planes
from .stretch_trial import Built, TrialPlace

LEAST_GAIN = 40.0
"""kJ/mol by which a sugar in the other pucker, or a turned base, has to be better: turned bases of 4P5J gain 55 to 168 kJ/mol by
being turned back, and none that is right comes within 30."""

# Degrees by which bases are turned as they are, and a trial begins: the best of them, and these.
_TURNS, _HALF = tuple(float(angle) for angle in range(90, 271, 30)), 180.0
# By how much the correlation of a doubted nucleotide has fallen, and in the energy of a well-seen atom, by how much what is as
# it is turned has to be better elsewhere; at most this part is tried. In maps of 4P5J of 2.5 and 3.5 Å a turned base is down by
# 0.021 and more, others by at most 0.002, and no base of it is better turned by more than -0.17.
_FALLEN, _CLEARLY, _PART_TRIED = 0.02, -0.1, 0.2
# Å around the middle of a base in which others have a say, and kJ/mol of a whole hydrogen bond of a pair, which falls to none
# between these Å.
_REACH, _BOND, _WHOLE, _BROKEN = 16.0, 10.0, 3.2, 4.0
# Å: the height of a ring's atoms over its mean plane, of a pucker with an amplitude of 38°.
_PUCKERED = 0.38 * np.sqrt(0.4)
# Turned by more, in pseudorotation and about the glycosidic bond, a sugar or a base counts as flipped: degrees.
_OTHER_PUCKER, _OTHER_SIDE = 60.0, 90.0


@dataclass(frozen=True)
class PuckerFlip:
    """A sugar that goes into the other pucker: its ring and what is bonded to C2' and C3' move."""

    residue: int
    region: np.ndarray  # int, indices of the residues that move
    ring: np.ndarray  # int (5,): C1', C2', C3', C4', O4'
    carried: np.ndarray  # int (n, 4): O2' and O3', each with the atoms of the ring that carry it

    @property
    def atoms(self) -> np.ndarray:
        """Indices of the atoms that are moved to begin with."""
        return np.concatenate([self.ring, self.carried[:, 0]])

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions of `atoms` with another phase of pseudorotation, the rest as it is."""
        after = positions.copy()
        places = positions[self.ring]
        centre = places.mean(axis=0)
        angles = 2 * np.pi * ((np.arange(5) + 1) % 5) / 5  # from O4' on
        normal = np.cross(*(wave @ (places - centre) for wave in (np.sin(angles), np.cos(angles))))
        normal /= np.linalg.norm(normal)
        heights = _PUCKERED * np.cos(np.radians(degrees) - np.pi / 2 + 2 * angles)
        after[self.ring] = places + np.outer(heights - (places - centre) @ normal, normal)
        atoms, *frame = self.carried.T
        local = np.einsum(
            "nij,nj->ni", axes_of_planes(positions, *frame), positions[atoms] - positions[frame[0]]
        )
        after[atoms] = after[frame[0]] + np.einsum("nij,ni->nj", axes_of_planes(after, *frame), local)
        return after[self.atoms]

    def angle(self, positions: np.ndarray) -> float:
        """Return the phase of pseudorotation in degrees."""
        return float(np.degrees(ring_phases(self.ring[None], positions)[0]))

    def is_flipped(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether it has another pucker."""
        return _apart(self.angle(after), self.angle(before)) > _OTHER_PUCKER


@dataclass(frozen=True)
class BaseFlip:
    """A base that turns about its glycosidic bond."""

    residue: int
    region: np.ndarray  # int, indices of the residues that move
    chi: np.ndarray  # int (4,), atoms of χ
    atoms: np.ndarray  # int, heavy atoms of the base that turn

    def turned(self, positions: np.ndarray, degrees: float) -> np.ndarray:
        """Return the positions of `atoms` turned."""
        return turned_about(positions[self.atoms], positions[self.chi[1:3]], degrees)

    def angle(self, positions: np.ndarray) -> float:
        """Return χ in degrees."""
        return float(np.degrees(torsion_angles(positions, self.chi[None])[0]))

    def is_flipped(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether it has turned."""
        return _apart(self.angle(after), self.angle(before)) > _OTHER_SIDE


def _apart(first: float, second: float) -> float:
    return abs((first - second + 180.0) % 360.0 - 180.0)


SugarFlip = PuckerFlip | BaseFlip


class SugarSearch:
    """Find sugars that may fit better in the other pucker, and bases that may fit better turned over.

    In RNA the distance of the phosphate behind a sugar from the glycosidic bond tells the pucker, also where the map does not
    show the ring: where these contradict each other the other pucker is tried. Else sugar and base are tried where the nucleotide
    fits badly, or where they are better as they are turned.

    `topology` of the model, without mates; `density` of the molecule's atoms. Attributes: `sugars` of the model.
    """

    def __init__(self, molecule: Molecule, density: DensityModel, topology: app.Topology) -> None:
        self._molecule, self._density = molecule, density
        self.sugars: Sugars = find_sugars(topology)
        self.all_bases = Bases(topology)
        self._energies = TurnEnergies(molecule, density)
        names = {
            (int(molecule.residue_of[a.index]), a.name.replace("*", "'")): a.index for a in topology.atoms()
        }
        self.puckers: list[PuckerFlip | None] = []
        self.bases: list[BaseFlip | None] = []
        for row, residue in enumerate(self.sugars.residues.tolist()):
            region = self._region(row)
            ring = self.sugars.rings[row]
            frames = (("O2'", 1, 0, 2), ("O3'", 2, 1, 3))
            carried = [
                (names[residue, name], *ring[list(places)])
                for name, *places in frames
                if (residue, name) in names
            ]
            pucker = PuckerFlip(residue, region, ring, np.array(carried, dtype=np.int64).reshape(-1, 4))
            self.puckers.append(pucker if density.is_fitted[pucker.atoms].all() else None)
            self.bases.append(self._base(row, region))

    def _region(self, row: int) -> np.ndarray:
        """Return the residue of a sugar and those that it is bonded to in its chain."""
        residue = int(self.sugars.residues[row])
        molecule = self._molecule
        own = np.flatnonzero(molecule.residue_of == residue)
        near = {
            int(molecule.residue_of[other])
            for atom in own.tolist()
            for other in molecule.bonded.get(atom, ())
        }
        return np.array(sorted(near | {residue}))

    def _base(self, row: int, region: np.ndarray) -> BaseFlip | None:
        chi = self.sugars.chi[row]
        if (chi < 0).any():
            return None
        residue = int(self.sugars.residues[row])
        turning = self._molecule.beyond_bond(int(chi[1]), int(chi[2])) | {int(chi[2])}
        heavy = np.array(sorted(atom for atom in turning if self._molecule.is_heavy[atom]))
        own = (self._molecule.residue_of[heavy] == residue).all()  # not bonded to another residue
        if not own or chi[0] in turning or not self._density.is_fitted[heavy].all():
            return None
        return BaseFlip(residue, region, chi, heavy)

    def candidates(
        self,
        positions: np.ndarray,
        falls: np.ndarray,
        by_density: bool = True,
        changed: np.ndarray | None = None,
    ) -> list[tuple[SugarFlip, float]]:
        """Return what may be flipped, and by how many degrees, or to which phase, those first that are doubted most.

        `positions` (N, 3) in Å; `falls`: see `openmm_density.extensions.rebuilding.suspicions.falls`; `by_density`: whether
        the map shows puckers and bases; else only phosphates tell; `changed`: only near these residues.
        """
        found: list[tuple[float, int, SugarFlip, float]] = []
        seen = self._density.energy_of_seen_atom(self._molecule, positions)
        if not len(self.sugars.residues) or not seen:
            return []
        contradicted, told = self.sugars.contradicted(positions)
        others = np.where(np.abs(self.sugars.phases(positions)) > np.pi / 2, C3_ENDO, C2_ENDO)
        phases = np.degrees(np.where(contradicted, told, others)).tolist()
        known = np.nan_to_num(falls)
        for row, flips in enumerate(zip(self.puckers, self.bases)):
            for flip, turns, certain in zip(flips, ((phases[row],), _TURNS), (contradicted[row], False)):
                near = changed is None or (flip is not None and np.isin(flip.region, changed).any())
                if flip is None or not near or not (certain or by_density):
                    continue
                fallen = float(known[flip.residue])
                energy, degrees = self._energies.best_turn(flip, positions, turns, _REACH)
                if certain or fallen > _FALLEN or energy < _CLEARLY * seen:
                    # What phosphates tell comes first.
                    found.append((-np.inf if certain else -fallen, len(found), flip, degrees))
        most = max(int(_PART_TRIED * len(self.sugars.residues)), 1)
        return [(flip, degrees) for _, _, flip, degrees in sorted(found, key=lambda each: each[:2])[:most]]


class SugarTrial(FlipTrial):
    """Flip a sugar or a base, and tell what it gains."""

    least_gain = LEAST_GAIN

    def __init__(
        self, molecule: Molecule, positions: np.ndarray, search: SugarSearch, flip: SugarFlip, degrees: float
    ) -> None:
        turns = [degrees] if isinstance(flip, PuckerFlip) else sorted({degrees, _HALF})
        super().__init__(molecule, positions, flip, (), turns)
        self.flip = flip
        bases = search.all_bases
        apart = positions[bases.atoms["C1'"]] - positions[flip.atoms].mean(axis=0)
        self._bases = bases.among((apart**2).sum(axis=1) < _REACH**2)

    def _hydrogen_bonds(self, place: TrialPlace, positions: np.ndarray) -> float:
        lengths = self._bases.pairs(positions).lengths
        return -_BOND * float(np.clip((_BROKEN - lengths) / (_BROKEN - _WHOLE), 0.0, 1.0).sum())

    def _is_flipped(self, place: TrialPlace, built: Built) -> bool:
        return self.flip.is_flipped(place.positions, place.whole(built.places))
