"""What a fit gives: rows of its log and progress while it runs, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..models.preparation import Prepared


@dataclass(frozen=True)
class Row:
    """One row of the log: energies in kJ/mol, temperature in K, RMSD and deviation from planarity in Å."""

    step: int
    stage: str
    potential_energy: float
    density_energy: float
    strength: float
    similarity: float
    cc: float
    temperature: float
    planarity_rms: float
    ca_rmsd: float | None = None
    cc_free: float | None = None


Progress = Callable[[int, int, str, Row | None], None]
"""Called with step, number of steps, stage or what is being done before it, and the newest row; see `FlexibleFit.run`."""


@dataclass
class FitResult:
    """What a fit ends with.

    Attributes
    ----------
    prepared : Prepared
        The model as it was simulated.
    initial, relaxed, final : np.ndarray, shape (N, 3)
        Its positions before, at the force field's own minimum nearby, and after, in Å.
    rows : list of Row
        The log.
    stages : list of dict
        Of each stage that was begun: its name, the steps done, its resolution, the strength and whether it converged.
    blow_ups : list of str
        A sentence on each time that the simulation became unstable and was taken back.
    rebuilding : list of dict
        Of each search before a stage: ``stage``, ``step``, what `Changes.as_dict` gives, ``undone`` (whether the model was put
        back, as it did not bear it), ``left_out`` (what the stage asked for and there was no time for), ``work`` (estimated, in
        steps of the whole model) and ``wall_seconds``.
    interrupted : bool
        Whether the fit was stopped before its end.
    steps : int
        Done.
    strength : float
        k at full strength, in kJ/mol per fitted atom.
    cc_initial, cc_final, similarity_initial, similarity_final : float
    cc_reference, ca_rmsd_initial, ca_rmsd_final : float, optional
        With a reference.
    ms_per_step, density_ms_per_step : float
        Wall time of a step, and of its density force.
    wall_seconds : float
        From the construction of the fit, or the start of the program around it, to the end of the run; of all parts of a fit that
        was interrupted, and of one that was killed, up to its last saved state.
    force_backend : str
    """

    prepared: Prepared
    initial: np.ndarray
    relaxed: np.ndarray
    final: np.ndarray
    rows: list[Row]
    stages: list[dict[str, Any]]
    blow_ups: list[str]
    rebuilding: list[dict[str, Any]]
    interrupted: bool
    steps: int
    strength: float
    cc_initial: float
    cc_final: float
    similarity_initial: float
    similarity_final: float
    cc_reference: float | None
    ca_rmsd_initial: float | None
    ca_rmsd_final: float | None
    ms_per_step: float
    density_ms_per_step: float
    wall_seconds: float
    force_backend: str
