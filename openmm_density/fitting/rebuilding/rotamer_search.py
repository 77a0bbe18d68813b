"""Side chains in the rotamers that fit a density best, which dynamics of some picoseconds does not reach."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
# Å: what is within this distance of where the atoms of a side chain come to lie touches it or its density.
_TOUCHED = 5.0
_METAL_BOND = 2.8
# Atoms so few bonds apart are not in contact.
_BONDS_APART = 3


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
    ) -> tuple[np.ndarray, list[int]]:
        """Return positions with side chains in another rotamer where that has a lower energy.

        `positions` (N, 3) in Å. Returns `positions` (N, 3); `residues`: indices of those whose side chains changed.
        """
        improved, changed = self.improved_each(positions[None], residues, passes, only_seen, stop)
        return improved[0], changed[0]

    def improved_each(
        self,
        positions: np.ndarray,
        residues: np.ndarray | None = None,
        passes: int = _PASSES,
        only_seen: bool = False,
        stop: Stop | None = None,
    ) -> tuple[np.ndarray, list[list[int]]]:
        """Return positions of several models with side chains in another rotamer, as `improved` has them in each alone.

        `positions` (S, N, 3) in Å. Returns `positions` (S, N, 3); `residues`: indices of those whose side chains
        changed, of each model.
        """
        positions = np.array(positions, dtype=np.float64)
        integrals = np.array([self._density.integrals(each) for each in positions]).reshape(-1, 2)
        wanted = None if residues is None else set(residues.tolist())
        chosen = [chain for chain in self._turning if wanted is None or chain.residue in wanted]
        per_atom = [
            self._density.energy_of_seen_atom(self._molecule, each) if only_seen else 0.0
            for each in positions
        ]
        changed: list[set[int]] = [set() for _ in positions]
        active = np.arange(len(positions))
        for _ in range(passes):
            moved = np.zeros(len(positions), dtype=bool)
            for chain in chosen:
                if stop is not None and stop.requested:
                    return positions, [sorted(each) for each in changed]
                free = active[~self._binds_metal(chain, positions[active])]
                if not len(free):
                    continue
                gains, conformations, changes = self._best(chain, positions[free], integrals[free])
                for model, gain, conformation, change in zip(free.tolist(), gains, conformations, changes):
                    required = (
                        self._required_atoms(chain, positions[model], conformation) if only_seen else 0.0
                    )
                    if gain > max(LEAST_GAIN, per_atom[model] * required):
                        positions[model, chain.atoms] = conformation
                        integrals[model] += change
                        changed[model].add(chain.residue)
                        moved[model] = True
            active = np.flatnonzero(moved)
            if not len(active):
                break
        return positions, [sorted(each) for each in changed]

    def free_side_chains(self, positions: np.ndarray) -> list[SideChain]:
        """Return the side chains of a model (N, 3) that may change."""
        return [each for each in self._turning if not self._binds_metal(each, positions[None])[0]]

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

        `own` (n, 3) in Å, of the atoms of its `side_chain`; `around` int (M,): indices of the atoms around it, and
        nothing else is; `positions` (M, 3) in Å, of these; `in_contact` bool (M,): those that it must not overlap.
        """
        chain = self._whole[residue]
        if not len(chain.scored):
            return 0.0
        pairs = np.tile(in_contact, (1, len(chain.scored), 1))
        energy = SideChainEnergy(self._molecule, self._density, chain, around, positions[None], pairs)
        integrals, contacts = (each[0] for each in energy.evaluate(chain.conformations(own)[None]))
        return float((contacts + self._density.linear_energy(slopes, integrals)).min())

    def _best(
        self, chain: SideChain, positions: np.ndarray, integrals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each of S models, what the best rotamer gains in kJ/mol, its atoms, and how it changes the integrals."""
        current, density = positions[:, chain.atoms], self._density
        trials = chain.conformations(current)
        surroundings = self.surroundings(chain, positions, trials)
        own, contacts = surroundings.evaluate(current[:, None])
        rest = (integrals - own[:, 0])[:, None]
        before = contacts[:, 0] - density.strength * density.similarity_of(integrals)

        def energies(conformations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            own, contacts = surroundings.evaluate(conformations)
            return contacts - density.strength * density.similarity_of(rest + own), own

        energy, own_of = energies(trials)
        kept = np.argsort(energy, axis=1, kind="stable")[:, :_REFINED]
        models = np.arange(len(positions))[:, None]
        refined, energy, own_of = refine(
            chain,
            trials[models, kept],
            chain.grid[kept],
            (energy[models, kept], own_of[models, kept]),
            energies,
        )
        best = np.argmin(energy, axis=1)
        models = models[:, 0]
        return before - energy[models, best], refined[models, best], own_of[models, best] - own[:, 0]

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
        among: np.ndarray | None = None,
    ) -> SideChainEnergy:
        """Return the energy of a side chain among the heavy atoms that its conformations touch.

        `positions` (S, N, 3) in Å, of S models; `trials` (S, K, n, 3): the conformations.
        """
        molecule, centre = self._molecule, chain.atoms[2]
        beta = positions[:, centre, None]
        reach = np.sqrt(((trials[:, :, chain.scored] - beta[:, :, None]) ** 2).sum(axis=-1).max(axis=(1, 2)))
        there = self._heavy if among is None else among
        others = there[~np.isin(there, chain.scored_atoms)]
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


def refine(
    chain: SideChain,
    conformations: np.ndarray,
    angles: np.ndarray,
    found: tuple[np.ndarray, np.ndarray],
    energies: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return conformations with their torsions turned, in small steps, to where the energy is lower.

    `conformations` (S, K, n, 3) in Å, in each of S models; `angles` (S, K, number of torsions): their torsions in
    degrees; `found` (S, K): their energies, and what else is known of each.
    """
    refined, angles = conformations.copy(), angles.copy()
    energy, known = (each.copy() for each in found)
    for step in _STEPS:
        for number, (quadruple, moved) in enumerate(chain.torsions):
            for turn in (-step, step):
                trial = refined.copy()
                flat = trial.reshape(-1, *trial.shape[2:])
                set_torsion(flat, quadruple, moved, (angles[..., number] + turn).ravel())
                lower, also = energies(trial)
                better = lower < energy
                refined[better], energy[better], known[better] = trial[better], lower[better], also[better]
                angles[better, number] += turn
    return refined, energy, known
