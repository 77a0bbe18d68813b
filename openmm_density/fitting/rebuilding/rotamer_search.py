"""Side chains in the rotamers that fit a density best, which dynamics of some picoseconds does not reach."""

from __future__ import annotations

import numpy as np

from ...chemistry.backbone import BACKBONE
from ..interrupts import Stop
from .density_model import DensityEnergySlopes, DensityModel
from .molecule import Molecule
from .side_chain_energy import SideChainEnergy
from .side_chains import SideChain, set_torsion, turning_side_chain, whole_side_chain

LEAST_GAIN = 10.0
"""kJ/mol by which another rotamer has to be better: four times the thermal energy."""
SEEN_PART, SEEN_ATOMS = 0.2, 0.75
"""By how much a rotamer has to be better to count as seen in the map: so much of the energy of a well-seen atom for each atom
that it moves, and at most that of so many atoms. Of 917 side chains of deposited models (1.2 to 2.9 Å) in their own maps three
change, whose density lies elsewhere, and of 243 put into wrong rotamers, 182 are mended; with `LEAST_GAIN` alone, 39 and 204."""

# So many conformations of the grid are refined, by steps of these sizes in degrees.
_REFINED, _STEPS = 4, (12.0, 6.0)
_PASSES = 3
# Å by which an atom has moved.
_MOVED = 0.7
# Å from Cβ: a side chain reaches 7 Å, and what is within 5 Å of it touches it or its density.
_SURROUNDINGS = 12.0
_METAL_BOND = 2.8
# Atoms so few bonds apart are not in contact.
_BONDS_APART = 3


class RotamerSearch:
    """Put side chains, one after the other, into another rotamer where it has a lower energy.

    The energy is that of a `DensityModel`, and of contacts with the other heavy atoms. Every combination of staggered torsions is
    tried, with torsions of planar groups in steps of 30°; the best are refined in smaller steps. Side chains that are bonded to
    another residue or to a metal, and those with atoms that are not fitted, stay.

    Parameters
    ----------
    molecule : Molecule
    density : DensityModel
        Of the same atoms.
    """

    def __init__(self, molecule: Molecule, density: DensityModel) -> None:
        self._molecule, self._density = molecule, density
        self._metals = np.flatnonzero(molecule.is_metal)
        residues = list(molecule.topology.residues())
        turning = [turning_side_chain(molecule, residue, density.is_fitted) for residue in residues]
        # Where all weights are 0 the map says nothing.
        seen = (chain for chain in turning if chain is not None and density.weights[chain.scored_atoms].any())
        self._turning = list(seen)
        self._whole = [whole_side_chain(*each, density.is_fitted) for each in zip(residues, turning)]
        self._atom_weight = _weight_of_an_atom(molecule, density)

    def improved(
        self,
        positions: np.ndarray,
        residues: np.ndarray | None = None,
        passes: int = _PASSES,
        only_seen: bool = False,
        stop: Stop | None = None,
    ) -> tuple[np.ndarray, list[int]]:
        """Return positions with side chains in another rotamer where that has a lower energy.

        Parameters
        ----------
        positions : np.ndarray, shape (N, 3)
            Å.
        residues : np.ndarray of int, optional
            Indices of those whose side chains may change; all by default.
        passes : int
            How many times the side chains are gone through at most.
        only_seen : bool
            Whether side chains stay where the map agrees with them about as well as with any other rotamer, see `SEEN_PART`; by
            default another one has to be better by `LEAST_GAIN` only, as for side chains that were just built.
        stop : StopRequest or Deadline, optional
            Looked at before each side chain.

        Returns
        -------
        positions : np.ndarray, shape (N, 3)
        residues : list of int
            Indices of those whose side chains changed.
        """
        positions = np.array(positions, dtype=np.float64)
        integrals = self._density.integrals(positions)
        changed: set[int] = set()
        wanted = None if residues is None else set(residues.tolist())
        chosen = [chain for chain in self._turning if wanted is None or chain.residue in wanted]
        per_atom = self._energy_of_seen_atom(positions) if only_seen else 0.0
        for _ in range(passes):
            unchanged = True
            for chain in chosen:
                if stop is not None and stop.requested:
                    return positions, sorted(changed)
                gain, conformation, change = self._best(chain, positions, integrals)
                if gain > max(LEAST_GAIN, per_atom * self._required_atoms(chain, positions, conformation)):
                    positions[chain.atoms] = conformation
                    integrals = integrals + change
                    changed.add(chain.residue)
                    unchanged = False
            if unchanged:
                break
        return positions, sorted(changed)

    def side_chain(self, residue: int) -> SideChain:
        """Return the side chain of a residue, by its index, with Cβ; its torsions are empty where it does not turn."""
        return self._whole[residue]

    def lowest_energy(
        self,
        residue: int,
        own: np.ndarray,
        around: np.ndarray,
        positions: np.ndarray,
        in_contact: np.ndarray,
        slopes: DensityEnergySlopes,
    ) -> float:
        """Return the lowest energy in kJ/mol of the density and contacts of a side chain in its rotamers.

        Parameters
        ----------
        residue : int
            Its index.
        own : np.ndarray, shape (n, 3)
            Å, of the atoms of its `side_chain`.
        around : np.ndarray of int, shape (M,)
            Indices of the atoms around it, and nothing else is.
        positions : np.ndarray, shape (M, 3)
            Å, of these.
        in_contact : np.ndarray of bool, shape (M,)
            Those that it must not overlap.
        slopes : DensityEnergySlopes
        """
        chain = self._whole[residue]
        if not len(chain.scored):
            return 0.0
        pairs = np.tile(in_contact, (len(chain.scored), 1))
        energy = SideChainEnergy(self._molecule, self._density, chain, around, positions, pairs)
        integrals, contacts = energy.evaluate(chain.conformations(own))
        per_square = 0.5 * slopes.per_pair / self._density.pair_integral(np.zeros(1))[0]
        return float((contacts - slopes.per_map * integrals[:, 0] + per_square * integrals[:, 1]).min())

    def _best(
        self, chain: SideChain, positions: np.ndarray, integrals: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return what the best rotamer gains in kJ/mol, where it puts the atoms, and how it changes the integrals."""
        current = positions[chain.atoms]
        if self._binds_metal(positions, current[chain.scored]):
            return 0.0, current, np.zeros(2)
        density = self._density
        surroundings = self._surroundings(chain, positions)
        own, contacts = surroundings.evaluate(current[None])
        rest = integrals - own[0]
        before = contacts[0] - density.strength * density.similarity_of(integrals)

        def energies(conformations: np.ndarray) -> np.ndarray:
            own, contacts = surroundings.evaluate(conformations)
            return contacts - density.strength * density.similarity_of(rest + own)

        trials = chain.conformations(current)
        energy = energies(trials)
        kept = np.argsort(energy, kind="stable")[:_REFINED]
        refined, energy, angles = trials[kept], energy[kept], chain.grid[kept]
        for step in _STEPS:
            for number, (quadruple, moved) in enumerate(chain.torsions):
                for turn in (-step, step):
                    trial = refined.copy()
                    set_torsion(trial, quadruple, moved, angles[:, number] + turn)
                    found = energies(trial)
                    better = found < energy
                    refined[better], energy[better] = trial[better], found[better]
                    angles[better, number] += turn
        best = int(np.argmin(energy))
        change = surroundings.evaluate(refined[best : best + 1])[0][0] - own[0]
        return float(before - energy[best]), refined[best], change

    def _binds_metal(self, positions: np.ndarray, scored: np.ndarray) -> bool:
        if not len(self._metals):
            return False
        distances = np.linalg.norm(positions[self._metals][:, None] - scored, axis=-1)
        return bool(distances.min() < _METAL_BOND)

    def _surroundings(self, chain: SideChain, positions: np.ndarray) -> SideChainEnergy:
        """Return the energy of a side chain among the heavy atoms around it."""
        molecule = self._molecule
        squares = ((positions - positions[chain.atoms[2]]) ** 2).sum(axis=1)
        around = molecule.is_heavy & (squares < _SURROUNDINGS**2)
        around[chain.scored_atoms] = False
        near = np.flatnonzero(around)
        in_contact = [
            ~np.isin(near, list(molecule.within_bonds(atom, _BONDS_APART)))
            for atom in chain.scored_atoms.tolist()
        ]
        pairs = np.array(in_contact).reshape(-1, len(near))
        return SideChainEnergy(molecule, self._density, chain, near, positions[near], pairs)

    def _energy_of_seen_atom(self, positions: np.ndarray) -> float:
        """Return what ∫ t ρ with a carbon as well seen as the median atom of the backbone adds to k S, in kJ/mol."""
        density = self._density
        fitted = density.weights != 0
        backbone = fitted & np.array([atom.name in BACKBONE for atom in self._molecule.atoms], dtype=bool)
        seen = np.flatnonzero(backbone if backbone.any() else fitted)
        if not len(seen):
            return 0.0
        median = np.median(density.map_integral(positions[seen]))
        return max(float(density.slopes(positions).per_map * self._atom_weight * median), 0.0)

    def _required_atoms(self, chain: SideChain, positions: np.ndarray, conformation: np.ndarray) -> float:
        """Return the number of well-seen atoms whose energy another rotamer has to gain."""
        scored = chain.scored_atoms
        moved = np.linalg.norm(conformation[chain.scored] - positions[scored], axis=1) > _MOVED
        weight = float(np.abs(self._density.weights[scored][moved]).sum())
        return min(SEEN_PART * weight / self._atom_weight, SEEN_ATOMS)


def _weight_of_an_atom(molecule: Molecule, density: DensityModel) -> float:
    """Return the magnitude of the weight of a carbon, or of any fitted atom where there is no carbon."""
    carbon = np.array([a.element is not None and a.element.symbol == "C" for a in molecule.atoms], dtype=bool)
    weighed = density.weights != 0
    weights = density.weights[weighed & carbon if (weighed & carbon).any() else weighed]
    return float(np.median(np.abs(weights))) if len(weights) else 1.0
