"""Where a fit is between two steps: all that the rest of it follows from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .adaptive_strength import AdaptiveStrength
from .convergence import Plateau
from .fit_result import Row


@dataclass
class RunState:
    """Where a fit is between steps: a new Context and new noise at each saved state, so that resumed fits repeat bits."""

    positions: np.ndarray  # `positions`, `velocities` (N, 3) in nm and nm/ps.
    velocities: np.ndarray
    relaxed: np.ndarray  # (N, 3), the start, minimised without density, in nm
    box: np.ndarray | None = None  # (3, 3), periodic box vectors in nm
    # `replica_positions`, `replica_velocities` (R, N, 3) in nm and nm/ps, while a driver steps several copies.
    replica_positions: np.ndarray | None = None
    replica_velocities: np.ndarray | None = None
    step: int = 0  # `step`, `stage`, `stage_step`: steps done in all, the stage, and steps done in it.
    stage: int = 0
    stage_step: int = 0
    segment: int = 0  # How many states were saved before
    frames: int = 0  # In the trajectory
    strength: float | None = None  # Full k in kJ/mol per fitted atom, once it is known
    # That of the final stages, in kJ/mol per fitted atom, once it is known
    final_strength: float | None = None
    # How it was found, see `openmm_density.fitting.final_strength.StrengthFound.as_dict`
    final_search: dict[str, Any] | None = None
    adaptive: AdaptiveStrength = field(default_factory=AdaptiveStrength)
    plateau: Plateau = field(default_factory=Plateau)  # Of the stage in progress
    ended: list[dict[str, Any]] = field(default_factory=list)  # What became of the stages that are over
    blow_ups: list[str] = field(default_factory=list)  # A sentence on each
    # What is known of ligands with a learned potential, see `openmm_density.fitting.ligand_watch.WatchedLigand`
    ligands: list[dict[str, Any]] = field(default_factory=list)
    # How often the time step was halved for the stage in progress, and from the second time on the strength
    caution: int = 0
    # Whether what came after it blew up, so that the next segment begins with a careful minimisation and small steps
    rolled_back: bool = False
    seconds: float = 0.0  # Spent stepping
    rows: list[Row] = field(default_factory=list)  # The log
    # What extensions noted, by their names: plain numbers, strings, lists and dicts
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def strength_halvings(self) -> int:
        """How often roll-backs have halved the strength: all but the first, as smaller time steps alone mend most of them."""
        return max(self.caution - 1, 0)

    def next_segment(self) -> RunState:
        """Return a state to go on with; this one stays to roll back to, and shares arrays that nothing changes."""
        return replace(
            self,
            segment=self.segment + 1,
            adaptive=replace(self.adaptive),
            plateau=replace(self.plateau, similarities=[*self.plateau.similarities]),
            ended=[*self.ended],
            blow_ups=[*self.blow_ups],
            ligands=[*self.ligands],
            rows=[*self.rows],
            found={**self.found},
        )
