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
    """Where a fit is, between two steps.

    On platforms that repeat themselves the rest of the fit follows from it: at every saved state a new Context is made, and the
    noise drawn anew, whether the fit goes on or is resumed.

    Attributes
    ----------
    positions, velocities : np.ndarray, shape (N, 3)
        In nm and nm/ps.
    relaxed : np.ndarray, shape (N, 3)
        The start, minimised without density, in nm.
    box : np.ndarray, shape (3, 3), or None
        Periodic box vectors in nm.
    replica_positions, replica_velocities : np.ndarray, shape (R, N, 3), or None
        Of the replicas on each rung, in nm and nm/ps, while a stage lets replicas exchange.
    step, stage, stage_step : int
        Steps done in all, the stage, and steps done in it.
    segment : int
        How many states were saved before.
    frames : int
        In the trajectory.
    strength : float, optional
        Full k in kJ/mol per fitted atom, once it is known.
    final_strength : float, optional
        That of the final stages, in kJ/mol per fitted atom, once it is known.
    final_search : dict, optional
        How it was found, see `openmm_density.fitting.final_strength.StrengthFound.as_dict`.
    adaptive : AdaptiveStrength
    plateau : Plateau
        Of the stage in progress.
    ended : list of dict
        What became of the stages that are over.
    blow_ups : list of str
        A sentence on each.
    rebuilding : list of dict
        What the searches before stages did.
    exchange : list of dict
        What became of the replicas of each stage that lets them exchange; of the stage in progress, so far.
    ligands : list of dict
        What is known of ligands with a learned potential, see `openmm_density.fitting.ligands.watch.WatchedLigand`.
    caution : int
        How often the time step was halved for the stage in progress, and from the second time on the strength.
    ladder_raises : int
        How often the lowest strength of replicas was raised for it, as one had left its density.
    rolled_back : bool
        Whether what came after it blew up, so that the next segment begins with a careful minimisation and small steps.
    seconds : float
        Spent stepping.
    rows : list of Row
        The log.
    found : dict of str to object
        What extensions noted, by their names: plain numbers, strings, lists and dicts.
    """

    positions: np.ndarray
    velocities: np.ndarray
    relaxed: np.ndarray
    box: np.ndarray | None = None
    replica_positions: np.ndarray | None = None
    replica_velocities: np.ndarray | None = None
    step: int = 0
    stage: int = 0
    stage_step: int = 0
    segment: int = 0
    frames: int = 0
    strength: float | None = None
    final_strength: float | None = None
    final_search: dict[str, Any] | None = None
    adaptive: AdaptiveStrength = field(default_factory=AdaptiveStrength)
    plateau: Plateau = field(default_factory=Plateau)
    ended: list[dict[str, Any]] = field(default_factory=list)
    blow_ups: list[str] = field(default_factory=list)
    rebuilding: list[dict[str, Any]] = field(default_factory=list)
    exchange: list[dict[str, Any]] = field(default_factory=list)
    ligands: list[dict[str, Any]] = field(default_factory=list)
    caution: int = 0
    ladder_raises: int = 0
    rolled_back: bool = False
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def strength_halvings(self) -> int:
        """How often roll-backs have halved the strength: all but the first, as smaller time steps alone mend most of them."""
        return max(self.caution - 1, 0)

    def next_segment(self) -> RunState:
        """Return a state to go on with, while this one stays as it is to roll back to.

        Both share arrays, rows and records, none of which is changed once it is made.
        """
        return replace(
            self,
            segment=self.segment + 1,
            adaptive=replace(self.adaptive),
            plateau=replace(self.plateau, similarities=[*self.plateau.similarities]),
            ended=[*self.ended],
            blow_ups=[*self.blow_ups],
            rebuilding=[*self.rebuilding],
            exchange=[*self.exchange],
            ligands=[*self.ligands],
            rows=[*self.rows],
            found={**self.found},
        )
