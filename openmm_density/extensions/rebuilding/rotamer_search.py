"""Side chains in the rotamers that fit a density best, which dynamics of some picoseconds does not reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from ...fitting.interrupts import Stop
from ...models.chemistry.contacts import HYDROGEN_BOND_ALLOWANCE
from .density_model import DensityEnergySlopes, DensityModel
from .molecule import Molecule
from .side_chain_energy import SideChainEnergy, contact_energies
from .side_chains import SideChain, turn_torsion, turning_side_chain, whole_side_chain

LEAST_GAIN = 10.0
"""kJ/mol by which another rotamer has to be better: four times the thermal energy."""
SEEN_PART, SEEN_ATOMS = 0.2, 0.75
"""By how much a rotamer has to be better to count as seen in the map: so much of the energy of a well-seen atom for each atom
that it moves, and at most that of so many atoms. Of 917 side chains of deposited models (1.2 to 2.9 Å) in their own maps three
change, whose density lies elsewhere, and of 243 put into wrong rotamers, 182 are mended; with `LEAST_GAIN` alone, 39 and 204."""

# So many conformations of the grid are refined, by steps of these sizes in degrees.
_REFINED, _STEPS = 4, (12.0, 6.0)
_PASSES = 3
# Å: pairs that touch; and how far the atoms of a side chain are from Cβ: so much, and so much more for each torsion.
_CONTACT, _FARTHEST_ATOM, _ATOM_PER_TORSION = 4.0, 4.0, 1.3
# Å by which an atom has moved.
_MOVED = 0.7
# Å: what is within this distance of where the atoms of a side chain come to lie touches it or its density.
_TOUCHED = 5.0
_METAL_BOND = 2.8
# Atoms so few bonds apart are not in contact.
_BONDS_APART = 3


class BestRotamer(NamedTuple):
    """The best rotamer of a side chain in each of S models."""

    gains: np.ndarray  # (S,), kJ/mol
    conformations: np.ndarray  # (S, n, 3), Å
    reaches: np.ndarray  # (S,): how far from Cβ any rotamer leads, Å


class RotamerSearch:
    """Put side chains, one after the other, into another rotamer where it has a lower energy.

    The energy is that of a `DensityModel`, and of contacts with the other heavy atoms. Every combination of staggered torsions is
    tried, with torsions of planar groups in steps of 30°; the best are refined in smaller steps. Side chains that are bonded to
    another residue or to a metal, and those with atoms that are not fitted, stay.

    `density` of the same atoms.
    """

    def __init__(self, molecule: Molecule, density: DensityModel) -> None:
        self._molecule, self._density = molecule, density
        self._bonded: dict[int, tuple[np.ndarray, ...]] = {}
        self._metals, self._heavy = np.flatnonzero(molecule.is_metal), np.flatnonzero(molecule.is_heavy)
        residues = list(molecule.topology.residues())
        turning = [turning_side_chain(molecule, residue, density.is_fitted) for residue in residues]
        # Where all weights are 0 the map says nothing.
        seen = (chain for chain in turning if chain is not None and density.weights[chain.scored_atoms].any())
        self._turning = list(seen)
        self._whole = [whole_side_chain(*each, density.is_fitted) for each in zip(residues, turning)]
        self._atom_weight = density.weight_of_an_atom(molecule)

    def improved(
        self,
        positions: np.ndarray,
        residues: np.ndarray | None = None,
        passes: int = _PASSES,
        only_seen: bool = False,
        stop: Stop | None = None,
        known: Mapping[int, BestRotamer] | None = None,
    ) -> tuple[np.ndarray, list[int]]:
        """Return positions with side chains in another rotamer where that has a lower energy.

        `positions` (N, 3) in Å; `known`: what `best_of` returned of them. Returns `positions` (N, 3); `residues`: indices of
        those whose side chains changed.
        """
        improved, changed = self.improved_each(
            positions[None], residues, passes, only_seen, stop, known=known
        )
        return improved[0], changed[0]

    def improved_each(
        self,
        positions: np.ndarray,
        residues: np.ndarray | None = None,
        passes: int = _PASSES,
        only_seen: bool = False,
        stop: Stop | None = None,
        slopes: DensityEnergySlopes | None = None,
        known: Mapping[int, BestRotamer] | None = None,
    ) -> tuple[np.ndarray, list[list[int]]]:
        """Return positions of several models with side chains in another rotamer, as `improved` has them in each alone.

        `positions` (S, N, 3) in Å; `slopes` of the density energy about all of them; by default about the first, in each pass
        anew; `known`, of one model, by `best_of`. Returned, too, are the residues of each model whose side chains changed.
        """
        positions = np.array(positions, dtype=np.float64)
        chosen = self._of_residues(residues)
        if only_seen:
            promising = self.promising(positions[0])
            chosen = [chain for chain in chosen if chain.residue in promising]
        around = self.atoms_near(chosen, positions)
        per_atom = [
            self._density.energy_of_seen_atom(self._molecule, each) if only_seen else 0.0
            for each in positions
        ]
        changed: list[set[int]] = [set() for _ in positions]
        betas = positions[:, np.array([chain.atoms[2] for chain in chosen], dtype=np.int64)].swapaxes(0, 1)
        # How far each reaches, and when it was tried, and what it touches changed, by numbers of trials, in each model.
        reaches = np.full(betas.shape[:2], np.inf)
        for index, chain in enumerate(chosen if known else ()):
            reaches[index] = known[chain.residue].reaches if chain.residue in known else np.inf
        tried, touched = np.full(betas.shape[:2], -1), np.zeros(betas.shape[:2], dtype=np.int64)
        for number in range(1, passes * len(chosen) + 1):
            index = (number - 1) % len(chosen)
            if not index:
                about = self._density.slopes(positions[0]) if slopes is None else slopes
            if stop is not None and stop.requested:
                break
            chain = chosen[index]
            free = np.flatnonzero(touched[index] > tried[index])
            free = free[~self._binds_metal(chain, positions[free])]
            if not len(free):
                continue
            # Nothing around it has changed so far.
            if known and chain.residue in known and tried[index, 0] < 0 == touched[index, 0]:
                gains, conformations, _ = known[chain.residue]
            else:
                gains, conformations, reaches[index, free] = self._best(
                    chain, positions[free], about, around[index]
                )
            tried[index, free] = number
            for model, gain, conformation in zip(free.tolist(), gains, conformations):
                required = self._required_atoms(chain, positions[model], conformation) if only_seen else 0.0
                if gain > max(LEAST_GAIN, per_atom[model] * required):
                    moved = np.concatenate([positions[model, chain.scored_atoms], conformation[chain.scored]])
                    apart = cdist(betas[:, model], moved).min(axis=1) - reaches[:, model]
                    touched[apart < _TOUCHED, model] = number
                    positions[model, chain.atoms] = conformation
                    changed[model].add(chain.residue)
        return positions, [sorted(each) for each in changed]

    def _of_residues(self, residues: np.ndarray | None) -> list[SideChain]:
        asked = None if residues is None else set(residues.tolist())
        return [chain for chain in self._turning if asked is None or chain.residue in asked]

    def best_of(self, positions: np.ndarray, residues: np.ndarray) -> dict[int, BestRotamer]:
        """Return the best rotamers that some residues have in a model (N, 3), each where the others are."""
        chains = self._of_residues(residues)
        around = self.atoms_near(chains, positions[None])
        slopes = self._density.slopes(positions)
        return {
            chain.residue: self._best(chain, positions[None], slopes, near)
            for chain, near in zip(chains, around)
        }

    def promising(self, positions: np.ndarray) -> dict[int, float]:
        """Return the residues whose side chains may fit better in another rotamer, and the kJ/mol that promises.

        That is what the map has at the best of all conformations more than at the one that it has, and what the latter's contacts
        cost: of a side chain that lies in its density nothing.

        `positions` (N, 3) in Å.
        """
        per_map = self._density.slopes(positions).per_map
        strained = self._contact_energies(positions)
        found: dict[int, float] = {}
        alike: dict[tuple[str, int, bytes], list[SideChain]] = {}
        for chain in self._turning:
            alike.setdefault((chain.name, len(chain.atoms), chain.scored.tobytes()), []).append(chain)
        for chains in alike.values():
            own = positions[np.array([chain.atoms for chain in chains])]
            scored = chains[0].scored
            weights = np.array([self._density.weights[chain.scored_atoms] for chain in chains])
            now = (self._density.map_integral(own[:, scored]) * weights).sum(axis=-1)
            grid = np.concatenate([each.conformations(at)[None] for each, at in zip(chains, own)])
            best = (
                (self._density.map_integral(grid[:, :, scored]) * weights[:, None]).sum(axis=-1).max(axis=1)
            )
            gains = per_map * (best - now) + strained[[chain.residue for chain in chains]]
            # By less than it takes in the end, as conformations between those of the grid fit better.
            found |= {chain.residue: gain for chain, gain in zip(chains, gains.tolist()) if gain > 0}
        return found

    def _contact_energies(self, positions: np.ndarray) -> np.ndarray:
        """Return what the contacts of the side chains of each residue cost, in kJ/mol, shape (number of residues,)."""
        molecule, heavy = self._molecule, self._heavy
        pairs = heavy[cKDTree(positions[heavy]).query_pairs(_CONTACT, output_type="ndarray")]
        first, second = pairs.T
        apart = np.linalg.norm(positions[first] - positions[second], axis=1)
        bonds = molecule.polar[first] & molecule.polar[second]
        radii = molecule.radii[first] + molecule.radii[second] - HYDROGEN_BOND_ALLOWANCE * bonds
        # What is bonded is of one residue or of neighbours.
        residues = molecule.residue_of[pairs]
        costs = np.where(np.abs(np.diff(residues, axis=1)[:, 0]) > 1, contact_energies(apart, radii), 0.0)
        costs = np.maximum(costs, 0.0)
        total = np.zeros(int(molecule.residue_of.max(initial=-1)) + 1)
        for column in range(2):
            np.add.at(total, residues[:, column], costs)
        return total

    def atoms_near(
        self, chains: list[SideChain], positions: np.ndarray, among: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Return the heavy atoms that some side chains may come to touch in one of several models (S, N, 3).

        Others around them may take other rotamers meanwhile.
        """
        there = self._heavy if among is None else among
        found: list[set[int]] = [set() for _ in chains]
        if not chains or not len(there):
            return [np.zeros(0, dtype=np.int64) for _ in chains]
        reaches = [
            _TOUCHED + 2 * (_FARTHEST_ATOM + _ATOM_PER_TORSION * len(chain.torsions)) for chain in chains
        ]
        for model in positions:
            near = cKDTree(model[there]).query_ball_point(
                model[[chain.atoms[2] for chain in chains]], reaches
            )
            for known, more in zip(found, near):
                known.update(more)
        return [there[np.array(sorted(each), dtype=np.int64)] for each in found]

    def free_side_chains(self, positions: np.ndarray) -> list[SideChain]:
        """Return the side chains of a model (N, 3) that may change."""
        return [each for each in self._turning if not self._binds_metal(each, positions[None])[0]]

    def side_chain(self, residue: int) -> SideChain:
        """Return the side chain of a residue, by its index, with Cβ; its torsions are empty where it does not turn."""
        return self._whole[residue]

    def _best(
        self, chain: SideChain, positions: np.ndarray, slopes: DensityEnergySlopes, near: np.ndarray
    ) -> BestRotamer:
        """Return the best rotamer in each of S models."""
        current = positions[:, chain.atoms]
        trials = chain.conformations(current)
        surroundings = self.surroundings(chain, positions, trials, near)

        def energies(conformations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            integrals, contacts = surroundings.evaluate(conformations)
            return contacts + self._density.linear_energy(slopes, integrals), contacts

        before = energies(current[:, None])[0][:, 0]
        energy, contacts = energies(trials)
        kept = np.argsort(energy, axis=1, kind="stable")[:, :_REFINED]
        models = np.arange(len(positions))[:, None]
        refined, energy, _ = refine(
            chain,
            trials[models, kept],
            (energy[models, kept], contacts[models, kept]),
            energies,
        )
        best = np.argmin(energy, axis=1)
        models = models[:, 0]
        reaches = _reaches(chain, positions, trials)
        return BestRotamer(before - energy[models, best], refined[models, best], reaches)

    def _binds_metal(self, chain: SideChain, positions: np.ndarray) -> np.ndarray:
        """Return in which of the models a side chain is bonded to a metal."""
        if not len(self._metals):
            return np.zeros(len(positions), dtype=bool)
        apart = positions[:, self._metals, None] - positions[:, None, chain.scored_atoms]
        return (apart**2).sum(axis=-1).min(axis=(1, 2)) < _METAL_BOND**2

    def surroundings(
        self,
        chain: SideChain,
        positions: np.ndarray,
        trials: np.ndarray,
        near: np.ndarray,
    ) -> SideChainEnergy:
        """Return the energy of a side chain among those of some atoms, as of `atoms_near`, that its conformations touch.

        `positions` (S, N, 3) in Å, of S models; `trials` (S, K, n, 3): the conformations.
        """
        molecule, centre = self._molecule, chain.atoms[2]
        beta = positions[:, centre, None]
        reach = _reaches(chain, positions, trials)
        others = near[~np.isin(near, chain.scored_atoms)]
        present = ((positions[:, others] - beta) ** 2).sum(axis=-1) < ((reach + _TOUCHED) ** 2)[:, None]
        touched = present.any(axis=0)
        near = others[touched]
        pairs = np.ones((1, len(chain.scored), len(near)), dtype=bool)
        rows, bonded = self._bonded_pairs(chain)
        columns = np.searchsorted(near, bonded)
        found = columns < len(near)
        found[found] = near[columns[found]] == bonded[found]
        pairs[0, rows[found], columns[found]] = False
        return SideChainEnergy(
            molecule, self._density, chain, near, positions[:, near], pairs, present[:, touched]
        )

    def _bonded_pairs(self, chain: SideChain) -> tuple[np.ndarray, np.ndarray]:
        """Return places among the scored atoms and the indices of atoms too few bonds from them for a contact."""
        if chain.residue not in self._bonded:
            pairs = [
                (row, other)
                for row, atom in enumerate(chain.scored_atoms.tolist())
                for other in self._molecule.within_bonds(atom, _BONDS_APART)
            ]
            self._bonded[chain.residue] = tuple(np.array(pairs, dtype=np.int64).T)
        return self._bonded[chain.residue]

    def _required_atoms(self, chain: SideChain, positions: np.ndarray, conformation: np.ndarray) -> float:
        """Return the number of well-seen atoms whose energy another rotamer has to gain."""
        scored = chain.scored_atoms
        moved = np.linalg.norm(conformation[chain.scored] - positions[scored], axis=1) > _MOVED
        weight = float(np.abs(self._density.weights[scored][moved]).sum())
        return min(SEEN_PART * weight / self._atom_weight, SEEN_ATOMS)


def _reaches(chain: SideChain, positions: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """Return how far conformations (S, K, n, 3) of a side chain reach from its Cβ in models (S, N, 3), in Å."""
    apart = trials[:, :, chain.scored] - positions[:, None, chain.atoms[2], None]
    return np.sqrt((apart**2).sum(axis=-1).max(axis=(1, 2)))


def refine(
    chain: SideChain,
    conformations: np.ndarray,
    found: tuple[np.ndarray, np.ndarray],
    energies: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return conformations with their torsions turned, in small steps, to where the energy is lower.

    `conformations` (S, K, n, 3) in Å, in each of S models; `found` (S, K): their energies, and what else is known of each.
    """
    refined = conformations.copy()
    energy, known = (each.copy() for each in found)
    n_models, count = energy.shape
    models, rows = np.indices(energy.shape)
    for step in _STEPS:
        turns = np.tile(np.radians(np.repeat([-step, step], count)), n_models)
        for quadruple, moved in chain.torsions:
            trial = np.concatenate([refined, refined], axis=1)
            turn_torsion(trial.reshape(-1, *trial.shape[2:]), quadruple, moved, turns)
            both = [each.reshape(n_models, 2, count) for each in energies(trial)]
            lower = np.argmin(both[0], axis=1)
            better = both[0][models, lower, rows] < energy
            model, row, which = models[better], rows[better], lower[better]
            refined[better] = trial[model, which * count + row]
            energy[better], known[better] = (each[model, which, row] for each in both)
    return refined, energy, known
