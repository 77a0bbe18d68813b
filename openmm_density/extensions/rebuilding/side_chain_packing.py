"""Side chains in each other's places: several change at once, as each is in the way of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from ...models.chemistry.contacts import HYDROGEN_BOND_ALLOWANCE
from .density_model import DensityModel
from .molecule import Molecule
from .register_search import RegisterSearch
from .rotamer_search import SEEN_ATOMS, RotamerSearch, refine
from .side_chain_energy import contact_energies
from .side_chains import SideChain
from .stretch_trial import Trial, TrialPlace, TrialResult

LEAST_GAIN = 25.0
"""kJ/mol by which side chains that change together have to be better, for each: ten times the thermal energy."""
LEAST_GAIN_OF_WAYS = 50.0
"""The same where many ways were tried: in their own map, those of the deposited haemoglobin then stay (35), and three rings in
each other's places, which gain 450 each, do not."""

# Mean density at the atoms of a side chain, in that of the median atom of the backbone, below which it fits badly.
_BADLY = 0.6
# Å between Cβ, up to which side chains may be in each other's way.
_REACH = 14.0
# Rotamers of each besides its own, which differ by so many Å at an atom; and the kJ/mol up to which a contact of two side chains
# counts, or that of one with what does not move, as neither gives way.
_ROTAMERS, _DIFFERENT, _MOST_CONTACT = 8, 1.5, 60.0
# Side chains that change together; rotamers tried of the first and of each that has to give way; the kJ/mol by which it is
# disturbed then.
_MOST_TOGETHER, _TRIED_FIRST, _TRIED, _DISTURBED = 4, 6, 3, 15.0
# kJ/mol that a change has to promise as it is built, on a backbone that does not give way: three rings and a lysine in each
# other's places promised -27, and gained 1393.
_PROMISED = -150.0
# Changes that are built, of all side chains; iterations before contacts are hard.
_PART_TRIED, _SCREEN = 0.1, 60
# Two or three side chains are built in each other's places, whatever that promises, where their residues fit worse than is usual
# there by so much (`suspicions.falls`), and their Cβ are so near (Å). The fewest atoms of one; the most groups, and the ways of
# each.
_FALL, _NEAR, _FEWEST_ATOMS, _GROUPS, _WAYS = 0.1, 11.0, 3, 3, 20
# Side chains that a process looks at, at once, and the most parts of all.
_FEWEST_AT_ONCE, _MOST_PARTS = 4, 64

_Weighed = tuple[np.ndarray, np.ndarray]


class PackingChange(NamedTuple):
    """Side chains that change together."""

    chains: list[SideChain]
    places: list[np.ndarray]  # (n, 3), Å, of the atoms of each
    gain: float  # kJ/mol, as they were built
    least_gain: float  # kJ/mol by which they have to be better in the end

    @property
    def residues(self) -> list[int]:
        """Their indices, sorted."""
        return sorted(chain.residue for chain in self.chains)


class SideChainPacking:
    """Find side chains that fit better in other rotamers if others make room for them.

    All side chains are taken away, and the rotamers of each weighed among what is left; of the best ones and its own, each pair
    of neighbours has an energy of density and contacts. From each side chain that fits badly a chain of changes is followed: it
    takes another rotamer, the side chain that is disturbed most by this another one, and so on, up to four. Where neighbouring
    residues fit far worse than most, their backbone gave way to what is wrong, and no change promises anything: all of two or
    three of them are put into other rotamers, in the best of all ways.

    `density` of the same atoms; `rotamers` of the same molecule.
    """

    def __init__(self, molecule: Molecule, density: DensityModel, rotamers: RotamerSearch) -> None:
        self._molecule, self._density, self._search = molecule, density, rotamers

    def candidates(
        self,
        positions: np.ndarray,
        falls: np.ndarray | None = None,
        run: Callable[[Sequence[Trial]], bool] | None = None,
    ) -> list[PackingChange]:
        """Return changes that do not overlap, those first that promise most, and then the ways of each group.

        `positions` (N, 3) in Å; `falls` (number of residues,): see `openmm_density.extensions.rebuilding.suspicions.falls`;
        `run`: runs trials, and returns whether there was time.
        """
        chains = self._search.free_side_chains(positions)
        if len(chains) < 2:
            return []
        table = _EnergyTable(self._molecule, self._density, self._search, chains, positions)
        badly = self._fitting_badly(chains, positions)
        groups = [] if falls is None else _groups(chains, falls, positions)
        if run is not None:
            needed = table.around([*badly, *(number for group in groups for number in group)])
            residues = [chains[number].residue for number in needed]
            trials = [WeighingTrial(self._molecule, positions, each) for each in shared_out(residues)]
            if not run(trials):
                return []
            table.know({residue: found for trial in trials for residue, found in trial.found.items()})
        changes = self._followed(table, badly)
        return changes + [change for group in groups for change in _ways(table, group)]

    def _followed(self, table: _EnergyTable, badly: list[int]) -> list[PackingChange]:
        """Return changes that follow from each side chain that fits badly, and do not overlap."""
        found = []
        for first in badly:
            gain, rotamers = _ChangesFrom(table, first).best()
            if gain > _PROMISED:
                found.append(table.change(rotamers, gain, LEAST_GAIN))
        chosen: list[PackingChange] = []
        for change in sorted(found, key=lambda each: (-each.gain, each.residues)):
            taken = {residue for other in chosen for residue in other.residues}
            if not taken & {*change.residues} and len(chosen) < _PART_TRIED * len(table.neighbours):
                chosen.append(change)
        return chosen

    def _fitting_badly(self, chains: list[SideChain], positions: np.ndarray) -> list[int]:
        """Return the numbers of side chains with little density where they are, and more elsewhere."""
        seen = self._density.density_of_backbone(self._molecule, positions)
        least = SEEN_ATOMS * self._density.energy_of_seen_atom(self._molecule, positions)
        promised = self._search.promising(positions)
        return [
            number
            for number, each in enumerate(chains)
            if promised.get(each.residue, 0.0) > least
            and self._density.map_integral(positions[each.scored_atoms]).mean() < _BADLY * seen
        ]


class _EnergyTable:
    """Energies of rotamers of side chains, and of pairs of them; the rotamer that each has comes first."""

    def __init__(
        self,
        molecule: Molecule,
        density: DensityModel,
        search: RotamerSearch,
        chains: list[SideChain],
        positions: np.ndarray,
    ) -> None:
        self._molecule, self._density, self._search, self._chains = molecule, density, search, chains
        self._positions = positions
        self._slopes = density.slopes(positions)
        changing = np.concatenate([chain.scored_atoms for chain in chains])
        self._rest = np.setdiff1d(np.flatnonzero(molecule.is_heavy), changing)
        self._rotamers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._pairs: dict[tuple[int, int], np.ndarray] = {}
        betas = positions[[chain.atoms[2] for chain in chains]]
        near = cKDTree(betas).query_ball_point(betas, _REACH)
        self.neighbours = [sorted({*found} - {number}) for number, found in enumerate(near)]

    def around(self, numbers: Sequence[int]) -> list[int]:
        """Return side chains and their neighbours, and the neighbours of these, with which changes of them begin."""
        found = {*numbers}
        for _ in range(2):
            found |= {other for number in found for other in self.neighbours[number]}
        return sorted(found)

    def know(self, found: Mapping[int, _Weighed]) -> None:
        """Note what `weighed` returned, of the same model."""
        for number, chain in enumerate(self._chains):
            if chain.residue in found:
                self._rotamers[number] = found[chain.residue]

    def weighed(self, residues: Sequence[int]) -> dict[int, _Weighed]:
        """Return the rotamers (K, n, 3) of some residues, by their indices, their own first, and their energies (K,)."""
        asked = {*residues}
        chains = [chain for chain in self._chains if chain.residue in asked]
        around = self._search.atoms_near(chains, self._positions[None], self._rest)
        return {chain.residue: self._of_chain(chain, near) for chain, near in zip(chains, around)}

    def places(self, number: int) -> np.ndarray:
        """Return the positions (K, n, 3) of the rotamers of a side chain."""
        return self._of(number)[0]

    def own(self, number: int) -> np.ndarray:
        """Return the energies (K,) of the rotamers of a side chain among what does not change."""
        return self._of(number)[1]

    def pair(self, one: int, other: int) -> np.ndarray:
        """Return the energies (K, L) of the rotamers of two side chains with each other."""
        if (one, other) not in self._pairs:
            energies = self._between(one, other)
            self._pairs[one, other], self._pairs[other, one] = energies, energies.T
        return self._pairs[one, other]

    def change(self, rotamers: dict[int, int], gain: float, least: float) -> PackingChange:
        """Return the change of side chains, by their numbers, to some of their rotamers, with the least gain for each."""
        members = sorted(rotamers)
        places = [self.places(member)[rotamers[member]] for member in members]
        chains = [self._chains[member] for member in members]
        return PackingChange(chains, places, gain, least * len(chains))

    def _of(self, number: int) -> _Weighed:
        if number not in self._rotamers:
            self.know(self.weighed([self._chains[number].residue]))
        return self._rotamers[number]

    def _of_chain(self, chain: SideChain, near: np.ndarray) -> _Weighed:
        own = self._positions[chain.atoms]
        grid = chain.conformations(own)
        around = self._search.surroundings(chain, self._positions[None], grid[None], near)

        def energies(conformations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            integrals, contacts = around.evaluate(conformations)
            found = self._density.linear_energy(self._slopes, integrals)
            return found + np.minimum(contacts, _MOST_CONTACT), contacts

        found = tuple(each[0] for each in energies(grid[None]))
        kept = _different(grid[:, chain.scored], found[0])
        before = tuple(each[None, kept] for each in found)
        refined, energy, _ = refine(chain, grid[None, kept], before, energies)
        now, _ = energies(own[None, None])
        return np.concatenate([own[None], refined[0]]), np.concatenate([now[0], energy[0]])

    def _between(self, one: int, other: int) -> np.ndarray:
        molecule, density = self._molecule, self._density
        first, second = self._chains[one], self._chains[other]
        a, b = (self._of(number)[0][:, self._chains[number].scored] for number in (one, other))
        apart = cdist(a.reshape(-1, 3), b.reshape(-1, 3)).reshape(*a.shape[:2], *b.shape[:2])
        i, j = first.scored_atoms, second.scored_atoms
        overlaps = density.pair_integral(apart**2) * density.weights[i][:, None, None] * density.weights[j]
        integrals = np.zeros((len(a), len(b), 2))
        integrals[..., 1] = 2 * overlaps.sum(axis=(1, 3))
        bonds = molecule.polar[i][:, None, None] & molecule.polar[j]
        radii = molecule.radii[i][:, None, None] + molecule.radii[j] - HYDROGEN_BOND_ALLOWANCE * bonds
        contacts = contact_energies(apart, radii).sum(axis=(1, 3))
        return density.linear_energy(self._slopes, integrals) + np.minimum(contacts, _MOST_CONTACT)


def _different(places: np.ndarray, energies: np.ndarray) -> list[int]:
    """Return those of some conformations (K, n, 3) of lowest energy that differ from each other."""
    kept: list[int] = []
    for number in np.argsort(energies, kind="stable").tolist():
        apart = np.linalg.norm(places[kept] - places[number], axis=-1).max(axis=1)
        if not kept or apart.min() > _DIFFERENT:
            kept.append(number)
        if len(kept) == _ROTAMERS:
            break
    return kept


class _ChangesFrom:
    """Follow changes of side chains from one that fits badly."""

    def __init__(self, table: _EnergyTable, first: int) -> None:
        self._table, self._first = table, first

    def best(self) -> tuple[float, dict[int, int]]:
        """Return the largest gain in kJ/mol, and the rotamer of each side chain that changes."""
        return self._with(self._first, {}, 0.0, _TRIED_FIRST)

    def _with(
        self, number: int, changed: dict[int, int], gain: float, most: int
    ) -> tuple[float, dict[int, int]]:
        """Return the best that follows if a side chain changes, too."""
        among_changed, among_all = self._energies(number, changed)
        options = np.argsort(among_changed, kind="stable").tolist()
        best = (-np.inf, {})
        for option in [each for each in options if each][:most]:
            now = {**changed, number: option}
            gained = gain + float(among_all[0] - among_all[option])
            if len(now) > 1:  # what one gains alone is found by itself
                best = max(best, (gained, now), key=lambda each: each[0])
            following = self._most_disturbed(now) if len(now) < _MOST_TOGETHER else None
            if following is not None:
                best = max(best, self._with(following, now, gained, _TRIED), key=lambda each: each[0])
        return best

    def _energies(self, number: int, changed: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the energies (K,) of a side chain's rotamers with those that changed, and with all others as well."""
        table = self._table
        with_changed = table.own(number).copy()
        for other, option in changed.items():
            if other in table.neighbours[number]:
                with_changed += table.pair(number, other)[:, option]
        with_all = with_changed.copy()
        for other in table.neighbours[number]:
            if other not in changed:
                with_all += table.pair(number, other)[:, 0]
        return with_changed, with_all

    def _most_disturbed(self, changed: dict[int, int]) -> int | None:
        """Return the side chain to which what changed costs most."""
        costs: dict[int, float] = {}
        for number, option in changed.items():
            for other in self._table.neighbours[number]:
                if other not in changed:
                    pair = self._table.pair(number, other)
                    costs[other] = costs.get(other, 0.0) + float(pair[option, 0] - pair[0, 0])
        worst = max(sorted(costs), key=lambda each: costs[each], default=None)
        return worst if worst is not None and costs[worst] > _DISTURBED else None


def _groups(chains: list[SideChain], falls: np.ndarray, positions: np.ndarray) -> list[list[int]]:
    """Return the numbers of neighbouring side chains, two or three, whose residues fit far worse than most, the worst first."""
    fits = -falls[[chain.residue for chain in chains]]
    badly = {
        number
        for number, (chain, fit) in enumerate(zip(chains, fits.tolist()))
        if fit < -_FALL and len(chain.scored) >= _FEWEST_ATOMS
    }
    betas = positions[[chain.atoms[2] for chain in chains]]
    found = set()
    for first in badly:
        apart = np.linalg.norm(betas - betas[first], axis=1)
        near = sorted(
            (each for each in badly if each != first and apart[each] < _NEAR), key=lambda each: apart[each]
        )[:2]
        found |= {tuple(sorted([first, *near[:count]])) for count in range(1, len(near) + 1)}
    ranked = sorted(found, key=lambda group: (float(fits[[*group]].mean()), group))
    return [[*group] for group in ranked[:_GROUPS]]


def _moves(places: np.ndarray) -> np.ndarray:
    """Return by how many Å an atom moves at most, in each of some conformations (K, n, 3), from the first."""
    return np.linalg.norm(places - places[0], axis=-1).max(axis=1)


def _ways(table: _EnergyTable, group: list[int]) -> list[PackingChange]:
    """Return the ways of lowest energy to put all side chains of a group into other rotamers."""
    shape = tuple(len(table.own(number)) for number in group)
    energy = np.zeros(shape)
    for axis, number in enumerate(group):
        own = table.own(number).copy()
        for other in table.neighbours[number]:
            if other not in group:
                own += table.pair(number, other)[:, 0]
        energy += own.reshape([-1 if each == axis else 1 for each in range(len(group))])
        for behind in range(axis + 1, len(group)):
            if group[behind] in table.neighbours[number]:
                of_both = [size if each in (axis, behind) else 1 for each, size in enumerate(shape)]
                energy += table.pair(number, group[behind]).reshape(of_both)
    before = float(energy.ravel()[0])
    order = (
        np.unravel_index(place, shape) for place in np.argsort(energy, axis=None, kind="stable").tolist()
    )
    # What lies where the side chain does comes back to it.
    elsewhere = [_moves(table.places(number)) > _DIFFERENT for number in group]
    changed = (each for each in order if all(moves[option] for moves, option in zip(elsewhere, each)))
    return [
        table.change(
            dict(zip(group, map(int, rotamers))), before - float(energy[rotamers]), LEAST_GAIN_OF_WAYS
        )
        for rotamers in islice(changed, _WAYS)
    ]


def shared_out(residues: Sequence[int]) -> list[np.ndarray]:
    """Return residues in parts for as many processes as may be, none of few."""
    count = min(max(len(residues) // _FEWEST_AT_ONCE, 1), _MOST_PARTS)
    return [part for part in np.array_split(np.array(residues, dtype=np.int64), count) if len(part)]


class RotamerTrial(Trial):
    """Find the best rotamer of each of some residues, where all others are as they are."""

    def __init__(self, molecule: Molecule, positions: np.ndarray, residues: np.ndarray) -> None:
        super().__init__(molecule, positions, residues)
        self.found: dict[int, Any] = {}

    @property
    def size(self) -> int:
        """Twice the residues: to try one takes as long as two atoms in a conformation."""
        return 2 * len(self.region)

    def run(self, place: TrialPlace) -> dict[int, Any]:
        """Return what was found, by residue."""
        return place.tools.rotamers.best_of(place.positions, self.region)

    def take(self, found: dict[int, Any]) -> None:
        """Note what `run` returned."""
        self.found = found


class WeighingTrial(RotamerTrial):
    """Weigh the rotamers of each of some residues among what does not change."""

    def run(self, place: TrialPlace) -> dict[int, Any]:
        """Return them and their energies, by residue."""
        tools, positions = place.tools, place.positions
        chains = tools.rotamers.free_side_chains(positions)
        table = _EnergyTable(tools.molecule, tools.density, tools.rotamers, chains, positions)
        return table.weighed(self.region.tolist())


class PackingTrial(Trial):
    """Build side chains in other rotamers, and tell what they gain, in kJ/mol: minimised, as they are too."""

    def __init__(
        self,
        molecule: Molecule,
        registers: RegisterSearch,
        positions: np.ndarray,
        change: PackingChange,
    ) -> None:
        region = np.unique(
            np.concatenate([registers.with_neighbours(residue) for residue in change.residues])
        )
        super().__init__(molecule, positions, region)
        self.change = change

    def run(self, place: TrialPlace) -> TrialResult | None:
        """Minimise both, softly and then in full."""
        changed = place.positions.copy()
        for chain, places in zip(self.change.chains, self.change.places):
            changed[chain.atoms] = places
        soft = [place.minimized(each, _SCREEN, soft=True) for each in (place.own, changed[self.moving])]
        own, other = (place.minimized(each.places) for each in soft)
        if not np.isfinite([own.energy, other.energy]).all():
            return None
        return TrialResult(own.energy - other.energy, other.places)
