"""Whether topology, System and positions belong together, and the System is one that a model can be fitted in."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import openmm
from openmm.app import Topology

from ..base.errors import InputError, level_outside
from ..base.units import positions_in_angstrom
from ..base.wording import named_atoms
from .measures import Measure

# No two bonded atoms are nearer than the 0.74 Å of H–H; lengths in nm are all below 0.3.
_SHORTEST_BONDS = 0.5
# As many tell as well as all of a box of water.
_ENOUGH_BONDS = 1000


def positions_of_all(topology: Topology, positions: Any) -> np.ndarray:
    """Return the positions of all atoms of a topology in Å, shape (N, 3), float64. `positions` (N, 3) in Å without a unit."""
    positions = positions_in_angstrom(positions, topology.getNumAtoms())
    lost = np.flatnonzero(~np.isfinite(positions).all(axis=1))
    if len(lost):
        raise InputError(
            f"of {named_atoms(topology, lost)} are not numbers",
            argument="positions",
            remedy="correct them, or leave these atoms out",
        )
    return positions


def warn_of_incompatible_forces(system: openmm.System, assumed_finite: bool = False) -> None:
    """Warn of forces of a System that keep a model from a map; `assumed_finite`: by a density that did not know it."""
    names = [
        "CMMotionRemover" if isinstance(force, openmm.CMMotionRemover) else force.getName()
        for force in system.getForces()
    ]
    warn_of_forces_named(assumed_finite, system.usesPeriodicBoundaryConditions(), names)


def warn_of_forces_named(assumed_finite: bool, periodic: bool, names: Iterable[str]) -> None:
    """Warn as `warn_of_incompatible_forces`, for what is known of a System: whether it is periodic, and its forces' names."""
    if assumed_finite and periodic:
        warnings.warn(
            "the System is periodic (as with PME), and the DensityFit was made without it: molecules that OpenMM wraps leave "
            "their density, so give DensityFit system= and positions=",
            stacklevel=level_outside(),
        )
    for name in names:
        if name == "CMMotionRemover":
            warnings.warn(
                "the System has a CMMotionRemover, which stops the model from travelling into its density: "
                "create it with removeCMMotion=False",
                stacklevel=level_outside(),
            )
        elif "Barostat" in name:
            warnings.warn(
                f"the System has a {name}, which moves the model against the fixed map: fit at constant volume",
                stacklevel=level_outside(),
            )


def check_system(topology: Topology, system: openmm.System | None) -> None:
    """Refuse a topology that has more or fewer atoms than a System has particles."""
    if system is None or system.getNumParticles() == topology.getNumAtoms():
        return
    raise InputError(
        f"has {topology.getNumAtoms()} atoms but system has {system.getNumParticles()} particles",
        argument="topology",
        remedy="give the topology of the Simulation, such as modeller.topology",
    )


def first_bonds(topology: Topology) -> np.ndarray:
    """Return bonded atoms, those of the first bonds of a large topology, shape (B, 2)."""
    pairs = [(bond[0].index, bond[1].index) for bond in islice(topology.bonds(), _ENOUGH_BONDS)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def check_unit(bonds: np.ndarray, positions: np.ndarray) -> None:
    """Refuse positions (N, 3) in nm that were taken for Å, by the lengths of bonds (B, 2); without any nothing is refused."""
    if not len(bonds):
        return
    median = float(np.median(np.linalg.norm(positions[bonds[:, 0]] - positions[bonds[:, 1]], axis=1)))
    # Atoms that are all at one point are in no unit.
    if 0 < median < _SHORTEST_BONDS:
        raise InputError(
            f"look like nm, as half of the bonds are shorter than {median:.2f} Å",
            argument="positions",
            remedy="give them in Å, or as a Quantity",
        )


def why_no_force(measure: Measure, correlation: float) -> tuple[str, str]:
    """Return why a measure has no force, and what to do, for the correlation about the mean of model and map."""
    if measure.is_potential:
        why = "no fitted atom is where the map rises above the threshold"
        return why, "put the model into the map first, or lower the threshold"
    remedy = "put the model into the map first"
    if correlation < 0:
        why = f"the model's density and the map correlate by {correlation:.2g}, so that the best scale of the one is 0"
        return why, f"{remedy}, check whether the map's sign is right, or take another similarity"
    return "the model has no density in the map", remedy
