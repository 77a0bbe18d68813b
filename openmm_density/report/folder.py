"""The folder of a fit: models, trajectory, log, summary, picture and page, each written atomically."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.atomic_files import atomic_write, remove_abandoned, write_text
from ..base.errors import InputError
from ..base.wording import one_line
from ..fitting.agreement import begin_reports, model_agreement
from ..fitting.checkpoints import RunFolder, log_table, remove_leftovers
from ..fitting.fit_result import FitResult, Written
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.half_maps import StrengthScan
from ..fitting.helper_processes import HelperProcesses, HelperResult
from ..fitting.installed_extensions import extensions
from ..fitting.locks import FolderLock
from ..fitting.written_atoms import (
    input_b_factors,
    input_occupancies,
    prepared_occupancies,
    written_alternates,
)
from ..models.structure_files import pdb_limit, prepared_header, write_cif, write_model_cif, write_pdb
from .pictures import OVERVIEW, begin_overview
from .results import AFTER_FILES, REPORT, UNFINISHED, check_unused, check_usable
from .summary import geometry_figures, kept_and_simulated, summarize, times_of, write_summary
from .viewers import write_shown_files, write_viewer_scripts


class OutputFolder:
    """The folder of one fit, kept for it until `discard`; files get their names only when they are complete.

    It is made where it does not exist. `overwrite`: whether an earlier fit in it may be replaced; `resume`: whether an
    unfinished one is to be continued; `spellings`: how the sentences of the summary write arguments, see `InputError.spelled`.
    Attribute `run`: where the fit saves its states. Raises InputError if it holds an earlier fit, or none to continue, or
    cannot be written to, or a fit is running in it.
    """

    def __init__(
        self,
        path: str | Path,
        overwrite: bool = False,
        resume: bool = False,
        spellings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path, self._spellings = Path(path), spellings
        check_usable(self.path, overwrite, resume)
        unfinished = self.path / UNFINISHED
        self._made, self._resumed = not self.path.exists(), resume
        self._pending: list[HelperResult[None]] = []
        try:
            self._lock = FolderLock(self.path)
        except InputError:
            self._unmake()
            raise
        try:
            remove_abandoned(self.path)
            if not resume:
                remove_leftovers(unfinished)
            if not (resume or overwrite):
                check_unused(self.path)
            self.run = RunFolder(unfinished)
            if not resume:
                self.run.remove()
                self.run = RunFolder(unfinished)
            else:
                remove_abandoned(unfinished)
        except InputError:
            self._leave()
            raise

    def _leave(self) -> None:
        self._lock.release()
        self._unmake()

    def _unmake(self) -> None:
        if self._made:
            with suppress(OSError):  # it holds something
                self.path.rmdir()

    def discard(self) -> None:
        """Release the folder; remove the states of a fit that has saved none from which it could go on."""
        if not (self._resumed or self.run.holds_a_state):
            self.run.remove()
        self._leave()

    def write(
        self,
        fit: FlexibleFit,
        result: FitResult,
        model_path: str,
        map_path: str,
        scan: StrengthScan | None = None,
        command: str | None = None,
        crystal: Callable[[], Any] | None = None,
        given: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Write everything, and return the summary; the saved states of a fit that is complete are removed.

        `model_path`, `map_path` as the user gave them; `scan`: what half maps said about the strength; `command`: what a user
        types to repeat the fit; `crystal` is called when the models are written: what measured amplitudes say of them; `given`:
        what the model was placed from. A fit that was interrupted, whose process may soon be ended, has no picture.
        """
        fit.stopwatch.begin("writing")
        begin_reports(fit, result)
        (limit, left_out), simulated = self._write_models(result, fit.beside), result.as_simulated()
        for extension in extensions():
            extension.write(self.path, fit, result)
        self._write_course(fit, result)
        write_shown_files(self.path, fit, result)
        with fit.stopwatch.part("scoring"):
            # Before what is waited for.
            geometry = geometry_figures(fit, result)
            agreement = model_agreement(fit, result)
            simulated_agreement = agreement if result.simulated is None else model_agreement(fit, simulated)
            drawn = (
                None if result.interrupted else begin_overview(self.path, fit, simulated, simulated_agreement)
            )
            summary = kept_and_simulated(fit, result, simulated_agreement) | {
                "command": command,
                "given": list(given) or [model_path],
            }
            summary |= summarize(
                fit, result, agreement, model_path, map_path, scan, limit, self._spellings, geometry
            )
            summary |= {"left_out": left_out, "notes": [*summary["notes"], *left_out]}
            with fit.stopwatch.part("writing"):
                self._finish_models()
            for extension in extensions():
                extension.complete(self.path, fit, result, agreement, summary, crystal)
        write_summary(self.path / "summary.json", summary | times_of(fit.stopwatch, scan))
        write_viewer_scripts(self.path, summary)
        with fit.stopwatch.part("pictures"):
            if drawn is None:
                (self.path / OVERVIEW).unlink(missing_ok=True)  # that of an earlier fit
            else:
                drawn.result()
        summary |= times_of(fit.stopwatch, scan)
        self._write_report(fit, simulated, summary)
        # Once more: it tells all the time but its own.
        summary |= times_of(fit.stopwatch, scan)
        write_summary(self.path / "summary.json", summary)
        self._end(fit, result)
        result.written = Written(self.path, summary)
        return summary

    def _end(self, fit: FlexibleFit, result: FitResult) -> None:
        """Remove the saved states of a fit that is complete."""
        if result.interrupted:
            self.run.save_times(fit.stopwatch)
        else:
            self.run.remove()
        fit.stopwatch.end()
        fit.beside.end()

    def _write_course(self, fit: FlexibleFit, result: FitResult) -> None:
        """Write protocol, trajectory and log."""
        fit.protocol.write(self.path / "protocol.toml")
        write_text(self.path / "log.csv", log_table(result.rows))
        path = self.path / "trajectory.dcd"
        if not self.run.trajectory.exists():
            path.unlink(missing_ok=True)  # that of an earlier fit
            return
        with atomic_write(path) as temporary:
            # Until all is written the fit may yet have to go on, with a trajectory of its own.
            shutil.copyfile(self.run.trajectory, temporary)

    def _write_models(self, result: FitResult, beside: HelperProcesses) -> tuple[str | None, list[str]]:
        """Write the model that was kept, and the other one; return what PDB cannot hold of the former, and what was left out."""
        found = self.write_model("fitted", result, beside)
        if result.simulated is None:
            for name in AFTER_FILES:
                (self.path / name).unlink(missing_ok=True)
        else:
            self.write_model("after", result.as_simulated(), beside)
        return found

    def write_model(
        self, name: str, result: FitResult, beside: HelperProcesses | None = None
    ) -> tuple[str | None, list[str]]:
        """Write the final model of a result in its formats; return what PDB cannot hold, and what of the input is left out."""
        prepared, waits, beside = result.prepared, beside is None, beside or HelperProcesses()
        header = replace(prepared_header(prepared), occupancies=prepared_occupancies(result))
        lasting = beside.shared(prepared.topology)
        of_all = self.path / f"{name}.cif", lasting, result.final, prepared.b_factors, header
        self._pending.append(beside.begin(write_cif, *of_all))
        in_input = prepared.input_positions(result.final)
        limit = pdb_limit(prepared.model, in_input)
        pdb, cif = self.path / f"{name}.pdb", self.path / f"{name}_input.cif"
        left_out = []
        written = (
            *(prepared.model, in_input, input_b_factors(result), input_occupancies(result)),
            written_alternates(result),
        )
        if limit is None:
            left_out = write_pdb(pdb, *written)
        else:
            pdb.unlink(missing_ok=True)
        if limit is None and prepared.model.metadata.is_pdb:
            cif.unlink(missing_ok=True)
        else:
            left_out = write_model_cif(cif, *written)
        if waits:
            self._finish_models()
        return None if limit is None else f"{limit}; {cif.name} holds the input's atoms instead", left_out

    def _finish_models(self) -> None:
        """Wait for the files that are written beside the fit."""
        while self._pending:
            self._pending.pop().result()

    def _write_report(self, fit: FlexibleFit, result: FitResult, summary: dict[str, Any]) -> None:
        """Write the page; where that fails, the other results stay, and a note of the summary says why."""
        path = self.path / REPORT
        try:
            # As with the picture: what it takes is loaded at the end.
            with fit.stopwatch.part("report"):
                from .fit_page import contents_of, fit_page
                from .page import write_page

                write_page(path, fit_page(contents_of(self.path, fit, result, summary)))
        except Exception as error:
            path.unlink(missing_ok=True)  # that of an earlier fit
            summary["notes"].append(
                f"{REPORT} was not written ({one_line(error)}); all other results are there: openmm-density report {self.path} "
                "writes it from them."
            )


def write_result(
    fit: FlexibleFit,
    run: RunFolder,
    result: FitResult,
    path: str | Path,
    overwrite: bool,
    scan: StrengthScan | None,
) -> dict[str, Any]:
    """Write the result of a script's fit, which ran in another folder, and return the summary; see `FitResult.write`."""
    folder = OutputFolder(path, overwrite)
    try:
        if run.trajectory.exists():
            shutil.copyfile(run.trajectory, folder.run.trajectory)
        return folder.write(fit, result, str(fit.prepared.model.path), str(fit.map_path or "map"), scan)
    finally:
        folder.discard()
