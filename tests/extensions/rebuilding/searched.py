"""What tests of searches share: fits of fragments to simulated maps, their `Rebuilding`, and what is wrong in a model."""

from __future__ import annotations

import numpy as np

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding, TrialWorkers
from openmm_density.extensions.rebuilding.bonded_terms import BondedTerms
from openmm_density.extensions.rebuilding.peptide_search import Turning
from openmm_density.extensions.rebuilding.register_search import ChainShift
from openmm_density.extensions.rebuilding.stretch_trial import Built, Trial, TrialPlace, TrialTools
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.models import Model

RESOLUTION = 2.8


class StillPlace:
    """In place of a `TrialPlace`: conformations stay as they are built, with the energies that a test says, moved and not.

    What is asked for is noted.
    """

    def __init__(
        self, tools: TrialTools, positions: np.ndarray, trial: Trial, energies: tuple[float, float]
    ) -> None:
        self.tools, self.positions, self._moving = tools, positions, trial.moving
        self.own = positions[trial.moving]
        self._energies, self.asked = energies, list[str]()

    def whole(self, places: np.ndarray) -> np.ndarray:
        result = self.positions.copy()
        result[self._moving] = places
        return result

    def shifted(self, shift: ChainShift) -> np.ndarray:
        self.asked.append("shift")
        return self.tools.registers.displaced(self.positions, shift)[self._moving]

    def minimized(self, places: np.ndarray, *_: object, soft: bool = False) -> Built:
        return self._built("soft" if soft else "hard", places)

    def turned(self, conformations: list[np.ndarray]) -> list[Built]:
        return [self._built("turn", each) for each in conformations]

    def annealed(self, places: np.ndarray, *_: object) -> Built:
        return self._built("anneal", places)

    def each_annealed(self, starts: list[tuple[np.ndarray, int]], steps: int) -> list[Built]:
        return [self.annealed(places, steps, seed) for places, seed in starts]

    def _built(self, what: str, places: np.ndarray) -> Built:
        self.asked.append(what)
        moved, own = self._energies
        return Built(own if np.array_equal(places, self.own) else moved, places)


class Weighed:
    """A density that all atoms have a part in."""

    def __init__(self, count: int) -> None:
        self.weights = np.ones(count)


class Going:
    """A request to stop that never comes."""

    requested = False


def simulated(model: Model) -> DensityMap:
    """Return a map of a model, with noise."""
    return DensityMap.simulate(model.topology, model.positions, RESOLUTION, 0.9, noise=0.05, seed=3)


def fit_of(model: Model, density_map: DensityMap, stage: Stage, **options: object) -> FlexibleFit:
    """Return a fit of one short stage."""
    protocol = Protocol((stage,), strength=60.0, minimize_first=20, minimize_last=10)
    # So few steps would leave no time for searches.
    own = {"threads": 1, "report_interval": 20, "save_interval": 20, "place": "off", "search": "full"}
    options = {**own, **options}
    return FlexibleFit(model, density_map, RESOLUTION, protocol, **options)


def rebuilding_of(model: Model, density_map: DensityMap, threads: int = 1) -> Rebuilding:
    """Return the searches of such a fit."""
    fit = fit_of(model, density_map, Stage("hold", 20))
    return Rebuilding(
        fit.prepared,
        BondedTerms(fit._systems.without_density),
        fit.fit_map.correlation(fit.prepared.topology, fit.density.resolution),
        fit.density,
        60.0 * fit.density.n_fitted_atoms,
        TrialWorkers(threads),
    )


def turned_over(rebuilding: Rebuilding, positions: np.ndarray, turning: Turning) -> np.ndarray:
    """Return a model in which a peptide or a loop was turned over, and its neighbours came to rest about it."""
    place = TrialPlace(rebuilding._tools, positions, turning.region)
    molecule = rebuilding._molecule
    moving = np.flatnonzero(molecule.is_heavy & np.isin(molecule.residue_of, turning.region))
    wrong = positions.copy()
    wrong[turning.atoms] = turning.turned(positions, 180.0)
    soft = place.minimized(wrong[moving], soft=True)
    wrong[moving] = place.minimized(soft.places).places
    return wrong
