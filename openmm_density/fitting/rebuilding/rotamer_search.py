"""Side chains turned into the rotamers that fit a density best: what heat does not find in the picoseconds of a fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from openmm import app
from scipy import ndimage
from scipy.spatial import cKDTree

from ...maps.density_map import DensityMap
from ...models.elements import is_hydrogen, is_metal
from ...restraints.contacts import HYDROGEN_BOND_ALLOWANCE, contact_radii
from ...restraints.rotamers import LARGEST_DEVIATION, SIDE_CHAINS
from ...restraints.torsions import torsion_angles
from ..interrupts import Stop

LEAST_GAIN = 10.0
"""kJ/mol by which another rotamer has to be better: four times the thermal energy."""
SEEN_PART, SEEN_ATOMS = 0.2, 0.75
"""By how much a rotamer has to be better to count as seen in the map: so much of what a well-seen atom is worth for each atom
that it moves, and at most so many such atoms. Of 917 side chains of deposited models (1.2 to 2.9 Å) in their own maps it turns
three, whose density lies elsewhere, and of 243 that were turned away before it mends 182; with `LEAST_GAIN` alone, 39 and 204."""
BACKBONE = ("N", "CA", "C", "O")

# Degrees. About bonds between tetrahedral atoms torsions are staggered; about a bond to a planar group they take any value, and
# groups that look the same from both sides are turned by half a circle only.
_STAGGERED = (-60.0, 60.0, 180.0)
_ANY = tuple(float(angle) for angle in range(-180, 180, 30))
_HALF = _ANY[3:9]
# Of side chains that end in a planar group the next atom (IUPAC), and the values of the torsion that turns the group.
_PLANAR_ENDS = {
    "ARG": ("CZ", (-90.0, 90.0, 180.0)),
    "ASN": ("OD1", _ANY),
    "ASP": ("OD1", _HALF),
    "GLN": ("OE1", _ANY),
    "GLU": ("OE1", _HALF),
    "HIS": ("ND1", _ANY),
    "PHE": ("CD1", _HALF),
    "TRP": ("CD1", _ANY),
    "TYR": ("CD1", _HALF),
}
# The best of the grid are turned on by steps of these sizes in degrees.
_KEPT, _STEPS = 4, (12.0, 6.0)
_PASSES = 3
# Å by which an atom is elsewhere, and the weight of what is worth one: a carbon.
_MOVED, _ONE_ATOM = 0.7, 6.0
# Å from Cβ: a side chain reaches 7 Å, and what is within 5 Å of it touches it or its density.
_SURROUNDINGS = 12.0
_METAL_BOND = 2.8
# Depth of a contact in kJ/mol, what it costs at most, and the Å by which it may be nearer, as the model gives way.
_DEPTH, _HARDEST, _SOFTNESS = 0.5, 1000.0, 0.1
# Atoms fewer bonds apart than this are not in contact.
_CONTACT_BONDS = 4
# σ √2 is the width of the overlap of two Gaussians; beyond so many σ it is nothing.
_OVERLAP_IN_SIGMA = 7.0


@dataclass(frozen=True)
class _SideChain:
    """What of a residue turns, and about what.

    Attributes
    ----------
    residue : int
    atoms : np.ndarray of int
        N, CA and CB, and behind them all that χ1 turns; of a side chain that does not turn its heavy atoms.
    heavy : np.ndarray of int
        Which of them (places in ``atoms``) count in the energy: those that turn, where it is carried to another place CB too, and
        no hydrogens.
    torsions : list of tuple
        For each χ its four atoms and those that it turns, as places in ``atoms``.
    grid : np.ndarray, shape (K, number of torsions)
        The values that are tried, in degrees.
    """

    residue: int
    atoms: np.ndarray
    heavy: np.ndarray
    torsions: list[tuple[tuple[int, ...], np.ndarray]]
    grid: np.ndarray

    def conformations(self, places: np.ndarray) -> np.ndarray:
        """Return the positions (K, n, 3) of ``atoms`` in each rotamer, by those (n, 3) in one."""
        result = np.repeat(places[None], len(self.grid), axis=0)
        for (quadruple, moved), angles in zip(self.torsions, self.grid.T):
            _turn(result, quadruple, moved, angles)
        return result


class RotamerSearch:
    """Turn side chains, one after the other, where another rotamer has a lower energy.

    The energy is that of the density, k (1 − S) with the cross-correlation S of Gaussians of the atoms' atomic numbers, and of
    contacts with the other heavy atoms. Every combination of staggered torsions is tried, with torsions of planar groups in steps
    of 30°; the best are turned on in smaller steps. Side chains that are bonded to another residue or to a metal, and those with
    atoms that are not fitted, stay.

    Parameters
    ----------
    topology : openmm.app.Topology
        With bonds.
    target : DensityMap
        The map.
    sigma : float
        Width of an atom's Gaussian in Å.
    strength : float
        k in kJ/mol, of all atoms together.
    atoms : np.ndarray of int
        Those that are fitted.

    Attributes
    ----------
    topology : openmm.app.Topology
    atoms : list of openmm.app.topology.Atom
        All of them.
    bonds : np.ndarray of int, shape (B, 2)
        Indices of the atoms that are bonded.
    bonded : dict of int to list of int
        The same by atom.
    residue_of : np.ndarray of int, shape (N,)
        Index of each atom's residue.
    is_heavy, is_metal : np.ndarray of bool, shape (N,)
    sigma : float
    strength_per_atom : float
        k in kJ/mol per fitted heavy atom.
    weights : np.ndarray, shape (N,)
        Atomic numbers of the fitted heavy atoms, else 0.
    radii : np.ndarray, shape (N,)
        Van der Waals radii in Å.
    polar : np.ndarray of bool, shape (N,)
        What may share a hydrogen.
    """

    def __init__(
        self,
        topology: app.Topology,
        target: DensityMap,
        sigma: float,
        strength: float,
        atoms: Sequence[int] | np.ndarray,
    ) -> None:
        self.topology = topology
        self._target, self.sigma, self._strength = target, sigma, strength
        self._mode = "grid-wrap" if target.periodic else "constant"
        blurred = target.gaussian_filter(sigma).data.astype(np.float64)
        # ∫ t g about every point: what an atom there adds to ∫ t ρ.
        self._spline = ndimage.spline_filter(blurred, mode="grid-wrap" if target.periodic else "mirror")
        self._square = float((target.data.astype(np.float64) ** 2).sum()) * target.voxel_volume
        chemical = list(topology.atoms())
        self.atoms = chemical
        self.is_heavy = np.array(
            [atom.element is not None and not is_hydrogen(atom) for atom in chemical], dtype=bool
        )
        self.residue_of = np.array([atom.residue.index for atom in chemical], dtype=np.int64)
        self.is_metal = np.array([is_metal(atom) for atom in chemical], dtype=bool)
        self._metals = np.flatnonzero(self.is_metal)
        self.weights = np.zeros(len(chemical))
        fitted = [index for index in atoms if self.is_heavy[index]]
        self.weights[fitted] = [chemical[index].element.atomic_number for index in fitted]
        self.strength_per_atom = strength / max(np.count_nonzero(self.weights), 1)
        self.radii, self.polar = contact_radii(topology)
        pairs = [(a.index, b.index) for a, b in topology.bonds()]
        self.bonds = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self.bonded: dict[int, list[int]] = {}
        for a, b in pairs:
            self.bonded.setdefault(a, []).append(b)
            self.bonded.setdefault(b, []).append(a)
        residues = list(topology.residues())
        self._names = [residue.name for residue in residues]
        found = [self._side_chain(residue) for residue in residues]
        self._side_chains = [chain for chain in found if chain is not None]
        self._carried = [self._with_beta(*each) for each in zip(residues, found)]

    def improved(
        self,
        positions: np.ndarray,
        residues: np.ndarray | None = None,
        passes: int = _PASSES,
        only_seen: bool = False,
        stop: Stop | None = None,
    ) -> tuple[np.ndarray, list[int]]:
        """Turn what is better turned.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        residues : np.ndarray of int, optional
            Indices of those whose side chains may be turned; all by default.
        passes : int
            Most times that all are gone through.
        only_seen : bool
            Whether side chains stay where the map agrees with them about as well as with any other rotamer, see `SEEN_PART`; by
            default another one has to be better by `LEAST_GAIN` only, as for side chains that were just built.
        stop : StopRequest or Deadline, optional
            Looked at before each side chain.

        Returns
        -------
        positions : np.ndarray, shape (N, 3)
        residues : list of int
            Indices of those whose side chains were turned.
        """
        positions = np.array(positions, dtype=np.float64)
        totals = self._totals(positions)
        turned: set[int] = set()
        wanted = None if residues is None else set(residues.tolist())
        chosen = [chain for chain in self._side_chains if wanted is None or chain.residue in wanted]
        worth = self._worth(positions) if only_seen else 0.0
        for _ in range(passes):
            none = True
            for chain in chosen:
                if stop is not None and stop.requested:
                    return positions, sorted(turned)
                gain, places, change = self._best(chain, positions, totals)
                if gain > max(LEAST_GAIN, worth * self._seen_atoms(chain, positions, places)):
                    positions[chain.atoms] = places
                    totals = totals + change
                    turned.add(chain.residue)
                    none = False
            if none:
                break
        return positions, sorted(turned)

    def torsions(self, positions: np.ndarray, residue: int) -> np.ndarray:
        """Return the torsions of a side chain that turns, χ1 first, in degrees.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
        residue : int
            Its index.
        """
        chain = self._carried[residue]
        atoms = np.array([chain.atoms[list(quadruple)] for quadruple, _ in chain.torsions], dtype=np.int64)
        return np.degrees(torsion_angles(positions, atoms.reshape(-1, 4)))

    def is_other_rotamer(self, before: np.ndarray, after: np.ndarray, residue: int) -> bool:
        """Tell whether a torsion of a side chain differs by more than those of one rotamer do.

        Parameters
        ----------
        before, after : np.ndarray, shape (N, 3)
        residue : int
            Its index.
        """
        apart = self.torsions(after, residue) - self.torsions(before, residue)
        period = np.full(len(apart), 360.0)
        if _PLANAR_ENDS.get(self._names[residue], ("", ()))[1] is _HALF:
            period[-1:] = 180.0
        apart = np.abs((apart + period / 2) % period - period / 2)
        return bool((apart > np.degrees(LARGEST_DEVIATION)).any())

    def similarity(self, positions: np.ndarray) -> float:
        """Return the cross-correlation S that the search takes for the density.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        """
        return float(self._similarity(self._totals(np.asarray(positions, dtype=np.float64))))

    def slopes(self, positions: np.ndarray) -> tuple[float, float]:
        """Return what k S grows by with ∫ t ρ, and falls by with exp(-r²/4σ²) of each pair of atoms and their weights, in kJ/mol.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å, at which k S is made linear.
        """
        with_map, square = self._totals(np.asarray(positions, dtype=np.float64))
        root = np.sqrt(square * self._square)
        per_pair = self._strength * with_map / (root * square)
        return float(self._strength / root), float(per_pair * self._overlap(np.zeros(1))[0])

    def carried_atoms(self, residue: int) -> np.ndarray:
        """Return the indices of the atoms that `lowest_energy` needs the places of: for a side chain that turns, N and CA too."""
        return self._carried[residue].atoms

    def lowest_energy(
        self,
        residue: int,
        places: np.ndarray,
        around: np.ndarray,
        positions: np.ndarray,
        meets: np.ndarray,
        slopes: tuple[float, float],
    ) -> float:
        """Return the lowest energy in kJ/mol of the density and contacts of a side chain in its rotamers.

        Parameters
        ----------
        residue : int
            Its index.
        places : np.ndarray, shape (n, 3)
            Å, of its `carried_atoms`.
        around : np.ndarray of int, shape (M,)
            Indices of the atoms around it, and nothing else is.
        positions : np.ndarray, shape (M, 3)
            Å, of these.
        meets : np.ndarray of bool, shape (M,)
            Those that it must not overlap.
        slopes : tuple of float
            As `slopes` gives them.
        """
        chain = self._carried[residue]
        if not len(chain.heavy):
            return 0.0
        surroundings = _Surroundings(self, chain, around, positions, np.tile(meets, (len(chain.heavy), 1)))
        parts, contacts = surroundings.evaluate(chain.conformations(places))
        per_map, per_pair = slopes
        per_square = 0.5 * per_pair / self._overlap(np.zeros(1))[0]
        return float((contacts - per_map * parts[:, 0] + per_square * parts[:, 1]).min())

    def _side_chain(self, residue: app.topology.Residue) -> _SideChain | None:
        index = {atom.name: atom.index for atom in residue.atoms()}
        path, values = _rotamers(residue.name)
        if not path or any(name not in index for name in path):
            return None
        own = set(index.values())
        torsions = []
        for first in range(len(values)):
            quadruple = tuple(index[name] for name in path[first : first + 4])
            moved = self._behind(quadruple[1], quadruple[2])
            if not moved <= own:
                return None
            torsions.append((quadruple, sorted(moved)))
        atoms = [index[name] for name in path[:3]] + torsions[0][1]
        heavy = [place for place in range(3, len(atoms)) if self.is_heavy[atoms[place]]]
        if not all(self.weights[atoms[place]] > 0 for place in heavy):
            return None
        place = {atom: number for number, atom in enumerate(atoms)}
        return _SideChain(
            residue.index,
            np.array(atoms, dtype=np.int64),
            np.array(heavy, dtype=np.int64),
            [
                (tuple(place[atom] for atom in quadruple), np.array([place[atom] for atom in moved]))
                for quadruple, moved in torsions
            ],
            np.array(list(itertools.product(*values))),
        )

    def _with_beta(self, residue: app.topology.Residue, turning: _SideChain | None) -> _SideChain:
        """Return all of a side chain, of which Cβ stays where it is, as does all of one that does not turn."""
        if turning is not None:
            return replace(turning, heavy=np.concatenate([[2], turning.heavy]))
        backbone = (*BACKBONE, "OXT")
        atoms = [a.index for a in residue.atoms() if a.name not in backbone and self.weights[a.index] > 0]
        own = np.array(atoms, dtype=np.int64)
        return _SideChain(residue.index, own, np.arange(len(own)), [], np.zeros((1, 0)))

    def _behind(self, near: int, far: int) -> set[int]:
        """Return the atoms that turn about a bond."""
        found, front = {far}, [far]
        while front:
            for other in self.bonded[front.pop()]:
                if other not in found and other != near:
                    found.add(other)
                    front.append(other)
        return found - {far}

    def _best(
        self, chain: _SideChain, positions: np.ndarray, totals: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return what the best rotamer gains in kJ/mol, where it puts the atoms, and how it changes the totals."""
        now = positions[chain.atoms][None]
        if len(self._metals):
            apart = positions[self._metals][:, None] - now[0][chain.heavy]
            if np.linalg.norm(apart, axis=-1).min() < _METAL_BOND:
                return 0.0, now[0], np.zeros(2)
        around = self.is_heavy & (
            ((positions - positions[chain.atoms[2]]) ** 2).sum(axis=1) < _SURROUNDINGS**2
        )
        around[chain.atoms[chain.heavy]] = False
        near = np.flatnonzero(around)
        meets = [~np.isin(near, list(self._within_bonds(int(i)))) for i in chain.atoms[chain.heavy]]
        surroundings = _Surroundings(
            self, chain, near, positions[near], np.array(meets).reshape(-1, len(near))
        )
        parts, contacts = surroundings.evaluate(now)
        rest = totals - parts[0]
        before = contacts[0] - self._strength * self._similarity(totals)

        def energies(places: np.ndarray) -> np.ndarray:
            parts, contacts = surroundings.evaluate(places)
            return contacts - self._strength * self._similarity(rest + parts)

        places = chain.conformations(now[0])
        energy = energies(places)
        kept = np.argsort(energy, kind="stable")[:_KEPT]
        places, energy, angles = places[kept], energy[kept], chain.grid[kept]
        for step in _STEPS:
            for number, (quadruple, moved) in enumerate(chain.torsions):
                for turn in (-step, step):
                    trial = places.copy()
                    _turn(trial, quadruple, moved, angles[:, number] + turn)
                    found = energies(trial)
                    better = found < energy
                    places[better], energy[better] = trial[better], found[better]
                    angles[better, number] += turn
        best = int(np.argmin(energy))
        change = surroundings.evaluate(places[best : best + 1])[0][0] - parts[0]
        return float(before - energy[best]), places[best], change

    def _worth(self, positions: np.ndarray) -> float:
        """Return what ∫ t ρ with a carbon as well seen as the backbone usually is adds to k S, in kJ/mol."""
        fitted = self.weights > 0
        backbone = fitted & np.array([atom.name in BACKBONE for atom in self.atoms], dtype=bool)
        seen = np.flatnonzero(backbone if backbone.any() else fitted)
        if not len(seen):
            return 0.0
        return max(
            float(self.slopes(positions)[0] * _ONE_ATOM * np.median(self.in_map(positions[seen]))), 0.0
        )

    def _seen_atoms(self, chain: _SideChain, positions: np.ndarray, places: np.ndarray) -> float:
        """Return how many well-seen atoms another rotamer has to be worth."""
        heavy = chain.atoms[chain.heavy]
        moved = np.linalg.norm(places[chain.heavy] - positions[heavy], axis=1) > _MOVED
        return min(SEEN_PART * float(self.weights[heavy][moved].sum()) / _ONE_ATOM, SEEN_ATOMS)

    def _similarity(self, totals: np.ndarray) -> np.ndarray:
        """Return S from ∫ t ρ and ∫ ρ², shape (…, 2)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = totals[..., 0] / np.sqrt(totals[..., 1] * self._square)
        return np.nan_to_num(found, nan=0.0)

    def _totals(self, positions: np.ndarray) -> np.ndarray:
        """Return ∫ t ρ and ∫ ρ²."""
        fitted = np.flatnonzero(self.weights)
        places, weight = positions[fitted], self.weights[fitted]
        i, j = cKDTree(places).query_pairs(_OVERLAP_IN_SIGMA * self.sigma, output_type="ndarray").T
        among = 2 * (weight[i] * weight[j] * self._overlap(((places[i] - places[j]) ** 2).sum(axis=1))).sum()
        own = (weight**2).sum() * self._overlap(np.zeros(1))[0]
        return np.array([(weight * self.in_map(places)).sum(), among + own])

    def _overlap(self, squares: np.ndarray) -> np.ndarray:
        """∫ g g of two atoms, by their squared distance."""
        width = 4 * self.sigma**2
        return np.exp(-squares / width) * (np.pi * width) ** -1.5

    def in_map(self, points: np.ndarray) -> np.ndarray:
        """Return the integral of the map with the Gaussian of an atom of weight 1 at points (…, 3) in Å."""
        index = self._target.to_index(points.reshape(-1, 3))[:, ::-1].T
        values = ndimage.map_coordinates(self._spline, index, prefilter=False, mode=self._mode)
        return values.reshape(points.shape[:-1])

    def _within_bonds(self, atom: int) -> set[int]:
        found = front = {atom}
        for _ in range(_CONTACT_BONDS - 1):
            front = {other for each in front for other in self.bonded.get(each, ())} - found
            found = found | front
        return found


class _Surroundings:
    """What stays around a side chain: its density, and whom the side chain must not meet."""

    def __init__(
        self,
        search: RotamerSearch,
        chain: _SideChain,
        around: np.ndarray,
        positions: np.ndarray,
        meets: np.ndarray,
    ) -> None:
        self._search, self._heavy = search, chain.heavy
        turning = chain.atoms[chain.heavy]
        self._places, self._meets = positions, meets
        self._own, self._weight = search.weights[turning], search.weights[around]
        self._contact = search.radii[turning][:, None] + search.radii[around]
        hydrogen_bonds = search.polar[turning][:, None] & search.polar[around]
        self._contact = self._contact - HYDROGEN_BOND_ALLOWANCE * hydrogen_bonds

    def evaluate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give, for conformations of a chain's atoms (K, n, 3), their part in the totals (K, 2) and their contacts (K,)."""
        search = self._search
        places = places[:, self._heavy]
        squares = ((places[:, :, None] - self._places) ** 2).sum(axis=-1)
        own = ((places[:, :, None] - places[:, None]) ** 2).sum(axis=-1)
        with_map = search.in_map(places) @ self._own
        with_rest = np.einsum("kij,i,j->k", search._overlap(squares), self._own, self._weight)
        with_own = np.einsum("kij,i,j->k", search._overlap(own), self._own, self._own)
        near = ((self._contact / (np.sqrt(squares) + _SOFTNESS)) ** 6) * self._meets
        contacts = np.minimum(_DEPTH * (near**2 - 2 * near), _HARDEST).sum(axis=(1, 2))
        return np.stack([with_map, 2 * with_rest + with_own], axis=1), contacts


def _rotamers(name: str) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Return the atoms along a side chain, and the values in degrees of its χ1, χ2 …; empty for other residues."""
    path = SIDE_CHAINS.get(name, ())
    values = (_STAGGERED,) * (len(path) - 3)
    if name in _PLANAR_ENDS:
        end, turns = _PLANAR_ENDS[name]
        path, values = (*path, end), (*values, turns)
    return path, values


def _turn(places: np.ndarray, quadruple: tuple[int, ...], moved: np.ndarray, degrees: np.ndarray) -> None:
    """Set a torsion of each of K conformations (K, n, 3) to an angle each, in place."""
    a, b, c, d = (places[:, place] for place in quadruple)
    axis = c - b
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    first, second = np.cross(b - a, axis), np.cross(axis, d - c)
    now = np.arctan2((np.cross(first, second) * axis).sum(axis=1), (first * second).sum(axis=1))
    by = (np.radians(degrees) - now)[:, None, None]
    along = axis[:, None]
    out = places[:, moved] - c[:, None]
    # Rodrigues' formula.
    places[:, moved] = (
        c[:, None]
        + out * np.cos(by)
        + np.cross(along, out) * np.sin(by)
        + along * (out * along).sum(axis=-1, keepdims=True) * (1 - np.cos(by))
    )
