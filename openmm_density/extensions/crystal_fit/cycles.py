"""One cycle: the map that the model's phases make of the data, and a fit into it, in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.atomic_files import write_text
from ...base.stopwatch import Stopwatch
from ...base.wording import listing
from ...fitting.fit_result import FitResult, Row
from ...fitting.flexible_fit import FlexibleFit
from ...fitting.installed_extensions import extended
from ...fitting.interrupts import Interrupted
from ...fitting.locks import wait_until_free
from ...models.model import Model
from ...models.structures import read_model
from ...models.symmetry_operators import SymmetryOperators
from ...report import OutputFolder
from ...report.results import UNFINISHED, finished_summary
from ...validation.map_checks import MapChecks
from ..crystals import Phased, Reflections
from ..deposition import crystal_of_data
from .amplitude_refinement import AmplitudeRefinement
from .inverted_centres import with_mended_centres
from .models import kept_model_of, model_of, phased_model
from .protocol import fitted_selection
from .settings import CrystalSettings

RECORD = "cycle.json"


@dataclass(frozen=True)
class Listener:
    """What is reported of a fit while it runs."""

    say: Callable[[str], None] = lambda _: None  # Called with a sentence that stays
    begun: Callable[[FlexibleFit], None] = lambda _: None  # Called with the `FlexibleFit` of a cycle
    progress: Callable[[int, int, str, Row | None], None] | bool = False  # As for `FlexibleFit.run`


@dataclass(frozen=True)
class Cycle:
    """What a model explains of the data, at the start (number 0) or after the fit of a cycle.

    Attributes
    ----------
    number : int
    r_work, r_free : float
    r_work_finest, r_free_finest : float, optional
        Of the finest shell of resolution.
    solvent_density, solvent_b : float
        Of the bulk solvent, electrons per Å³ and Å².
    figure_of_merit : float
        Mean of the reflections that the map shows.
    cc_map : float, optional
        CC (mask) of the fitted model with the map it was fitted to; None of the start.
    steps : int
        Of dynamics.
    seconds : float
        Wall time of phases, fit and writing; of all runs that it took.
    """

    number: int
    r_work: float
    r_free: float
    r_work_finest: float | None
    r_free_finest: float | None
    solvent_density: float
    solvent_b: float
    figure_of_merit: float
    cc_map: float | None = None
    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def of(
        cls, number: int, found: Phased, summary: dict[str, Any] | None = None, seconds: float = 0.0
    ) -> Cycle:
        """Return that of a phased model."""
        finest = found.r_factors.shells[-1]
        figures = {} if summary is None else summary["simulated"] or {"cc": summary["cc_final"]}
        return cls(
            number,
            found.r_factors.r_work,
            found.r_factors.r_free or 0.0,
            finest.r_work,
            finest.r_free,
            found.scaled.solvent_density,
            found.scaled.solvent_b,
            float(found.figures_of_merit[found.shown].mean()),
            figures.get("cc"),
            0 if summary is None else summary["steps"],
            round(seconds, 3),
        )

    def in_words(self) -> str:
        """Return a line for the terminal."""
        factors = f"R-work {self.r_work:.4f}, R-free {self.r_free:.4f}"
        return (
            f"start: {factors}"
            if self.number == 0
            else f"cycle {self.number}: {factors}, {self.seconds:.0f} s"
        )


def cycle_folder(folder: Path, number: int) -> Path:
    """Return where the fit of a cycle is."""
    return folder / f"cycle_{number:02d}"


def finished_cycle(folder: Path, number: int) -> Cycle | None:
    """Return a cycle that is complete; None where it is not."""
    path = cycle_folder(folder, number)
    if finished_summary(path) is None:
        return None
    try:
        return Cycle(**json.loads((path / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def run_cycle(
    settings: CrystalSettings,
    folder: Path,
    number: int,
    model_path: Path,
    reflections: Reflections,
    listener: Listener,
) -> Cycle:
    """Return a cycle: carried out, continued, or read where it is complete."""
    done = finished_cycle(folder, number)
    if done is not None:
        return done
    path = cycle_folder(folder, number)
    summary = finished_summary(path)
    if summary is None:
        summary = _fitted(settings, path, model_path, reflections, listener, number == 1)
    phases = Stopwatch()
    with phases.part("phasing"):
        found = phased_model(model_of(path), reflections)
    cycle = Cycle.of(number, found, summary, summary["wall_seconds"] + phases.seconds)
    write_text(path / RECORD, json.dumps(asdict(cycle), indent=2) + "\n")
    return cycle


def _fitted(
    settings: CrystalSettings,
    path: Path,
    model_path: Path,
    reflections: Reflections,
    listener: Listener,
    may_keep: bool,
) -> dict[str, Any]:
    """Carry out a cycle's fit, or go on with it; return its summary. `may_keep` its start where R-free did not fall."""
    wait_until_free(path, lambda holder: listener.say(f"waiting for the end of an earlier fit ({holder})"))
    resumed = (path / UNFINISHED).is_dir()
    output = OutputFolder(path, overwrite=not resumed, resume=resumed)
    fit, stopwatch = None, Stopwatch()
    # Whatever is done between the parts of a fit counts.
    stopwatch.begin("preparation")
    try:
        model, mended = with_mended_centres(read_model(model_path))
        given = settings.fit_arguments()
        with stopwatch.part("phasing"):
            before = phased_model(model_path, reflections)
            density_map = before.density_map(before.atom_coefficients())
        fit = FlexibleFit(
            model,
            density_map,
            reflections.resolution,
            settings.protocol,
            place="off",
            map_checks=MapChecks(),
            operators=SymmetryOperators.crystal(reflections.cell, reflections.space_group),
            stopwatch=stopwatch,
            **(given | fitted_selection(given)),
        )
        fit.fit_map.has_solvent = False
        fit.notes += _notes_on_start(model, reflections, mended)
        listener.begun(fit)
        result = fit.run(output.run, listener.progress)
        if result.interrupted:
            raise Interrupted
        with stopwatch.part("refinement"):
            result = _refined(result, fit, output, reflections)
        if may_keep:
            with stopwatch.part("phasing"):
                result = _better(result, fit, output, before, reflections)
        return output.write(
            fit,
            result,
            str(model_path),
            settings.data,
            crystal=lambda: crystal_of_data(phased_model(kept_model_of(path), reflections)),
        )
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        if fit is not None:
            fit.beside.end()
        output.discard()
        stopwatch.end()


def _refined(
    result: FitResult, fit: FlexibleFit, output: OutputFolder, reflections: Reflections
) -> FitResult:
    """Return what the simulation made of the model, refined against the amplitudes."""
    if result.simulated is not None:
        # Not the correlation with this cycle's map says which model is better, but R-free of all cycles.
        result = extended(fit, result.as_simulated())
    return AmplitudeRefinement(fit, output, reflections).refine(result)


def _notes_on_start(model: Model, reflections: Reflections, mended: list[str]) -> list[str]:
    notes = []
    if model.cell is None:
        cell = " ".join(f"{each:.2f}" for each in reflections.cell.parameters)
        notes.append(
            f"The model's file names no cell: it is taken to lie in that of the data ({cell}, "
            f"{reflections.space_group.xhm()}), and what is written names none either."
        )
    if mended:
        notes.append(f"Inverted in the start of this cycle, and so mirrored: {listing(mended, 10)}.")
    return notes


def _better(
    result: FitResult, fit: FlexibleFit, output: OutputFolder, before: Phased, reflections: Reflections
) -> FitResult:
    """Return the result of a fit, or that of keeping the model as it was where R-free has not fallen."""
    output.write_model("after", result)
    r_free = phased_model(model_of(output.path), reflections).r_factors.r_free
    if r_free < before.r_factors.r_free:
        return result
    because = f"R-free {before.r_factors.r_free:.4f} to {r_free:.4f}"
    return extended(fit, result.keeping_before(because, fit.prepared))
