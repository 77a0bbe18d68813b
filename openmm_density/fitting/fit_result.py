"""What comes out of a fit: rows of its log and progress while it runs, and its result."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from ..base.errors import InputError
from ..models.preparation import Prepared
from .installed_extensions import function_of_extension

if TYPE_CHECKING:
    from ..energies.atomic_parameters import BFactors, Occupancies
    from .installed_extensions import Unfinished


PICTURE, REPORT = "overview.png", "report.html"

_ROWS = (
    ("CC (mask)", "cc", ".3f"),
    ("Q-score", "q_score", ".3f"),
    ("RMSD to the reference (Å)", "ca_rmsd", ".2f"),
)
_GEOMETRY = (
    ("bond RMSZ", "bond_rmsz", ".2f"),
    ("angle RMSZ", "angle_rmsz", ".2f"),
    ("clashscore", "clashscore", ".1f"),
    ("Ramachandran outliers", "ramachandran_outlier_count", "d"),
    ("rotamer outliers", "rotamer_outlier_count", "d"),
)


def result_html(state: str, figures: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return a table of a fit before and after, and, where it was written, its doubts, its picture and a link to its report."""
    parts = [f"<p>{escape(state)}</p>", _table(figures)]
    if folder is not None:
        parts += [_doubts(figures), _picture(folder), _links(folder)]
    return f"<div>{''.join(parts)}</div>"


def _table(summary: Mapping[str, Any]) -> str:
    """Return the figures that are known, before, after and of the reference."""
    columns = ["before", "after"] if summary.get("simulated") is None else ["before (kept)", "after"]
    rows = [(name, form, *_compared(summary, key)) for name, key, form in _ROWS]
    rows += [(name, form, *_geometry(summary, key)) for name, key, form in _GEOMETRY]
    if any(row[-1] is not None for row in rows):
        columns.append("reference")
    cells = "".join(
        _row(name, form, values[: len(columns)])
        for name, form, *values in rows
        if any(value is not None for value in values)
    )
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{cells}</tbody></table>"


def _compared(summary: Mapping[str, Any], key: str) -> tuple[Any, Any, Any]:
    simulated = summary.get("simulated")
    after = summary.get(f"{key}_final") if simulated is None else simulated.get(key)
    return summary.get(f"{key}_initial"), after, summary.get(f"{key}_reference")


def _geometry(summary: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    return tuple((figures or {}).get(key) for figures in _compared(summary, "geometry"))


def _row(name: str, form: str, values: list[Any]) -> str:
    shown = "".join(f"<td>{'–' if value is None else format(value, form)}</td>" for value in values)
    return f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>'


def _doubts(summary: Mapping[str, Any]) -> str:
    if not summary["doubts"]:
        return "<p>No doubts.</p>"
    return f"<p>Doubts:</p><ul>{''.join(f'<li>{escape(doubt)}</li>' for doubt in summary['doubts'])}</ul>"


def _picture(folder: Path) -> str:
    """Return the picture within the page, so that a saved notebook keeps it; nothing where it was left out."""
    path = folder / PICTURE
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    said = "the backbone before and after the fit over the density"
    return f'<img src="data:image/png;base64,{data}" alt="{said}" style="max-width: 100%">'


def _links(folder: Path) -> str:
    """Return links to what there is in the folder, from the folder that the notebook runs in."""
    links = [_link(folder / name, name) for name in _linked(folder)]
    return f"<p>In {escape(str(folder))}: {', '.join(links)}</p>" if links else ""


def _linked(folder: Path) -> Iterator[str]:
    for name in (REPORT, "fitted.pdb", "fitted_input.cif", "summary.json"):
        if (folder / name).is_file():
            yield name


def _link(path: Path, label: str) -> str:
    target = quote(os.path.relpath(path).replace(os.sep, "/"))
    return f'<a href="{escape(target)}" target="_blank" rel="noopener">{escape(label)}</a>'


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


_OF_ATOMS = ("b_factors", "occupancies", "conformers")
"""Of what extensions find, that which is so where the atoms are in the end alone."""

Progress = Callable[[int, int, str, Row | None], None]
"""Called with step, number of steps, stage or what is being done before it, and the newest row; see `FlexibleFit.run`."""


@dataclass(frozen=True)
class Simulated:
    """What the simulation made of a model that was better before."""

    final: np.ndarray  # (N, 3), positions in Å
    cc: float
    similarity: float
    ca_rmsd: float | None  # With a reference
    because: str  # A few words on why the model was better before
    # What extensions found of its atoms where the simulation left it
    found: Mapping[str, Any] = field(default_factory=dict)
    prepared: Prepared | None = None  # The model with the B factors that were refined there, where some were


@dataclass(frozen=True)
class Written:
    """Where the results of a fit are, once they were written."""

    folder: Path
    summary: dict[str, Any]  # What ``summary.json`` holds


@dataclass(repr=False)
class FitResult:
    """What a fit ends with: the better of the model before and after it.

    Attributes
    ----------
    prepared : Prepared
        The model as it was simulated.
    initial, relaxed, final : np.ndarray, shape (N, 3)
        Its positions before, at the force field's own minimum nearby, and after, in Å. Where the model was better before,
        ``final`` is ``initial``, as are all figures of that name.
    rows : list of Row
        The log.
    stages : list of dict
        Of each stage that was started: its name, the steps done, its resolution, how much wider than that its Gaussians were
        (``blur``), by which width its map was sharpened (else 1), the strength and whether it converged.
    blow_ups : list of str
        A sentence on each time that the simulation became unstable and was rolled back.
    interrupted : bool
        Whether the fit was stopped before its end.
    steps : int
        Done.
    strength : float
        k at full strength, in kJ/mol per fitted atom.
    final_strength : float
        k of the last minimisation.
    final_search : dict, optional
        How it was found, where it was: ``chosen``, ``most``, ``trials``, ``bounds`` and ``limited_by``, see
        `openmm_density.fitting.final_strength.StrengthFound`.
    cc_initial, cc_final, similarity_initial, similarity_final : float
    cc_reference, ca_rmsd_initial, ca_rmsd_final : float, optional
        With a reference.
    ms_per_step, density_ms_per_step : float
        Wall time of a step, and of its density force.
    wall_seconds : float
        From the construction of the fit, or the start of the program around it, to the end of the run; of all parts of a fit that
        was interrupted, and of one that was killed, up to its last saved state.
    force_backend : str
    simulated : Simulated, optional
        What the simulation made of the model, where that was better before.
    ligands : list of dict
        Of each ligand with a learned potential how well that knew it, see
        `openmm_density.fitting.ligand_watch.WatchedLigand`.
    ms_by_force : dict of str to float, optional
        Milliseconds that an evaluation of each kind of force takes, where these were asked for; see `step_times`.
    unfinished : Unfinished, optional
        What an extension was interrupted in, after the fit of one model was complete.
    found : mapping of str to object
        What extensions found, by name.
    amplitude_weight : float, optional
        The weight of the logarithm of the likelihood of measured amplitudes beside the energy in kT, where the model was
        refined against them in the end.
    written : Written, optional
        Where `write` has written it. A notebook then shows doubts and the picture beside the figures.
    ran : tuple, optional
        The `FlexibleFit` and the folder in which it ran, of which `write` needs more than the result.
    """

    prepared: Prepared
    initial: np.ndarray
    relaxed: np.ndarray
    final: np.ndarray
    rows: list[Row]
    stages: list[dict[str, Any]]
    blow_ups: list[str]
    interrupted: bool
    steps: int
    strength: float
    final_strength: float
    final_search: dict[str, Any] | None
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
    simulated: Simulated | None = None
    ligands: list[dict[str, Any]] = field(default_factory=list)
    ms_by_force: dict[str, float] | None = None
    written: Written | None = None
    unfinished: Unfinished | None = None
    found: Mapping[str, Any] = field(default_factory=dict)
    amplitude_weight: float | None = None
    ran: tuple[Any, Any] | None = None

    def __repr__(self) -> str:
        ended = ", interrupted" if self.interrupted else ""
        return f"FitResult(CC {self.cc_initial:.3f} to {self.cc_final:.3f}, {self.steps} steps{ended}, kept: {self.kept})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "ran": None}

    def write(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False, scan: Any = None
    ) -> dict[str, Any]:
        """Write the files that ``openmm-density fit`` writes: models, trajectory, log, report, summary, scripts of viewers.

        Parameters
        ----------
        folder : path
            Made where it does not exist.
        overwrite : bool
            Whether an earlier fit in it may be replaced.
        scan : StrengthScan, optional
            What half maps said about the strength, from `openmm_density.fitting.half_maps.scan_strengths`.

        Returns
        -------
        dict
            What ``summary.json`` holds.

        Raises
        ------
        InputError
            If the folder holds an earlier fit or cannot be written to, or the result was loaded from a pickle.
        """
        if self.ran is None:
            raise InputError(
                "a result can be written where its fit has run, and this one was loaded",
                remedy="call write before it is pickled",
            )
        return function_of_extension("write_result")(*self.ran, self, folder, overwrite, scan)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        state = "interrupted" if self.interrupted else "complete"
        if self.simulated is not None:
            state = f"not kept: {self.simulated.because}"
        state = (
            f"Fit, {state}: {self.steps} steps, k = {self.strength:.1f} kJ/mol per fitted atom ({self.final_strength:.1f} at the "
            f"end), {self.wall_seconds:.0f} s."
        )
        if self.written is not None:
            return result_html(state, self.written.summary, self.written.folder)
        names = ("cc_initial", "cc_final", "cc_reference", "ca_rmsd_initial", "ca_rmsd_final")
        figures = {name: getattr(self, name) for name in names}
        simulated = self.simulated
        figures["simulated"] = simulated and {"cc": simulated.cc, "ca_rmsd": simulated.ca_rmsd}
        return result_html(state, figures)

    def with_found(self, **found: Any) -> FitResult:
        """Return the result with what an extension found, by name."""
        return replace(self, found={**self.found, **found})

    @property
    def b_factors(self) -> BFactors | None:
        """The B factors that were refined in the end, where the protocol asks for it: ``prepared`` then has them."""
        return self.found.get("b_factors")

    @property
    def occupancies(self) -> Occupancies | None:
        """The same of occupancies."""
        return self.found.get("occupancies")

    @property
    def not_refined(self) -> str | None:
        """A sentence on why these could not be refined."""
        return self.found.get("not_refined")

    @property
    def conformers(self) -> Any:
        """Alternate conformers that were fitted with the model, where there are any."""
        return self.found.get("conformers")

    @property
    def kept(self) -> str:
        """Which model ``final`` is: "before" or "after"."""
        return "after" if self.simulated is None else "before"

    def keeping_before(self, because: str, prepared: Prepared | None = None) -> FitResult:
        """Return the result with the model as it was before, and what the simulation made of it beside it.

        Parameters
        ----------
        because : str
        prepared : Prepared, optional
            The model with the B factors that it had, where some were refined since.
        """
        figures = self.final, self.cc_final, self.similarity_final, self.ca_rmsd_final
        of_atoms = {name: value for name, value in self.found.items() if name in _OF_ATOMS}
        simulated = Simulated(*figures, because, of_atoms, None if prepared is None else self.prepared)
        return replace(
            self,
            prepared=self.prepared if prepared is None else prepared,
            final=self.initial,
            cc_final=self.cc_initial,
            similarity_final=self.similarity_initial,
            ca_rmsd_final=self.ca_rmsd_initial,
            simulated=simulated,
            found={name: value for name, value in self.found.items() if name not in of_atoms},
        )

    def as_simulated(self) -> FitResult:
        """Return the result with what the simulation made of the model, better or not."""
        if self.simulated is None:
            return self
        return replace(
            self,
            prepared=self.simulated.prepared or self.prepared,
            final=self.simulated.final,
            cc_final=self.simulated.cc,
            similarity_final=self.simulated.similarity,
            ca_rmsd_final=self.simulated.ca_rmsd,
            simulated=None,
            found={**self.found, "conformers": None, **self.simulated.found},
        )
