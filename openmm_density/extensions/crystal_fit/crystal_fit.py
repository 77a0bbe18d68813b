"""`CrystalFit`: the fit of a model to the measured amplitudes of a crystal, which puts the parts together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.errors import InputError, SimulationError, as_argument
from ...base.stopwatch import Stopwatch
from ...base.units import resolution_in_angstrom, takes_units
from ...fitting.interrupts import Interrupted
from ...fitting.locks import FolderLock
from ...fitting.protocols import Protocol, find_protocol
from ...report.results import CRYSTAL_SETTINGS, check_unused, finished_summary
from ..crystals import crystal_structure
from .cycles import Cycle, Listener, cycle_folder, run_cycle
from .models import model_of, phased_model
from .output import Course, remove_crystal, write_crystal
from .protocol import STEPS, check_cycles, cycle_protocol
from .result import CrystalResult, is_over, place_doubts
from .settings import CrystalSettings


class CrystalFit:
    """Fit a model to the measured amplitudes of a crystal, by cycles.

    Each cycle makes a σA-weighted 2mF_o − DF_c map of the whole cell with the phases of the model, bulk solvent and an
    anisotropic scale (`phased`), and fits the model into it with its symmetry mates, positions and B
    factors, which are then refined against the amplitudes themselves; then come new phases, as in xMDFF (McGreevy et al., Acta
    Cryst. 2014, D70, 2344-2355). It ends after so many cycles, or when R-free has not fallen for two. The model of the cycle
    with the lowest R-free is the result. Reflections that are held out have no part in map, scale, σA or likelihood.

    Parameters
    ----------
    model : path
        PDB or mmCIF, already placed in the cell.
    data : path
        An MTZ file with amplitudes or intensities, and free flags.
    output : path
        The folder of the fit; where it holds the same one, unfinished, that goes on.
    resolution : float or Quantity, optional
        To which the data are used, in Å; all of them by default.
    amplitudes : (str, str), optional
        The columns of values and deviations; found when not given.
    free_flags : str, optional
        The column of free flags; found when not given.
    make_free_flags : bool
        Whether flags are made for data that have none; they are written into ``crystal.mtz`` of the folder.
    free_value : int, optional
        The flag of those that are held out; by convention (CCP4 0, Phenix 1, SHELX -1) when not given.
    cycles : int
        At most.
    protocol : Protocol or str, optional
        Of one cycle; by default a short one.
    steps : int, optional
        Of dynamics in one cycle.
    **fit_options
        Passed to `openmm_density.fitting.FlexibleFit` of each cycle, as plain values: ``seed``, ``platform``, ``threads``,
        ``forcefield`` …; ``reference`` and ``restrain_to`` are paths.

    Attributes
    ----------
    folder : Path
    settings : CrystalSettings
    reflections : Reflections

    Raises
    ------
    InputError
        One sentence on what cannot be used.
    """

    @takes_units("resolution")
    def __init__(
        self,
        model: str | os.PathLike[str],
        data: str | os.PathLike[str],
        output: str | os.PathLike[str],
        *,
        resolution: Any = None,
        amplitudes: Sequence[str] | None = None,
        free_flags: str | None = None,
        make_free_flags: bool = False,
        free_value: int | None = None,
        cycles: int = 8,
        protocol: Protocol | str | None = None,
        steps: int | None = None,
        **fit_options: Any,
    ) -> None:
        check_cycles(cycles)
        settings = CrystalSettings(
            str(Path(model).resolve()),
            str(Path(data).resolve()),
            cycle_protocol(),
            None if resolution is None else resolution_in_angstrom(resolution),
            None if amplitudes is None else tuple(amplitudes),
            free_flags,
            make_free_flags,
            cycles,
            free_value,
            fit_options,
        )
        self.folder = Path(output)
        self.reflections = settings.reflections()
        if isinstance(protocol, str):
            protocol = find_protocol(protocol, self.reflections.resolution)
            protocol = protocol if steps is None else protocol.with_steps(steps)
        self.settings = replace(settings, protocol=protocol or cycle_protocol(steps or STEPS))
        self._check_model()

    @classmethod
    def resumed(cls, folder: str | os.PathLike[str], allow_scripts: bool = False) -> CrystalFit:
        """Return the fit that a folder records, to go on with it.

        Parameters
        ----------
        folder : path
        allow_scripts : bool
            As for `FlexibleFit`: no folder may allow it.

        Raises
        ------
        InputError
            If it cannot be read, is complete, or its model or data have changed.
        """
        fit = cls.__new__(cls)
        fit.folder = Path(folder)
        if finished_summary(fit.folder) is not None:
            raise InputError(
                "it holds no unfinished fit (a complete one cannot be resumed)",
                source=folder,
                remedy="give the folder of one that was interrupted",
            )
        settings = CrystalSettings.read(fit.folder)
        fit.settings = replace(settings, fit_options={**settings.fit_options, "allow_scripts": allow_scripts})
        fit.reflections = fit.settings.reflections()
        fit._check_model()
        return fit

    def _check_model(self) -> None:
        crystal_structure(self.settings.model, self.reflections)

    def run(
        self,
        listener: Listener | None = None,
        overwrite: bool = False,
        command: str | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> CrystalResult:
        """Carry out the fit, or go on with it, and write its results.

        Parameters
        ----------
        listener : Listener, optional
            Told of what is done.
        overwrite : bool
            Whether an earlier fit in the folder is replaced.
        command : str, optional
            What a user types to repeat it, for the summary.
        stopwatch : Stopwatch, optional
            With what the program around the fit took before it; the summary's times begin with that.

        Raises
        ------
        InputError
            If the folder holds another fit.
        SimulationError
            If the first cycle becomes unstable again and again. Where a later one does, the fit ends with those before it, and
            a doubt says so.
        KeyboardInterrupt
            After SIGINT or SIGTERM; the cycle that was under way has saved its state, and where one is complete before
            it, the results so far are written.
        """
        listener = listener or Listener()
        with FolderLock(self.folder):
            self._begin(overwrite, command)
            course = Course(command or self.settings.command, stopwatch=stopwatch or Stopwatch())
            cycles = [self._start(course.stopwatch)]
            listener.say(cycles[0].in_words())
            for doubt in place_doubts(cycles[0]):
                listener.say(doubt)
            try:
                failed = self._carry_out(cycles, listener)
            except (Interrupted, KeyboardInterrupt):
                if len(cycles) > 1:
                    course = replace(course, interrupted=len(cycles))
                    write_crystal(self.folder, self.settings, cycles, self.reflections, course)
                raise KeyboardInterrupt from None
            course = replace(course, failed=failed)
            return write_crystal(self.folder, self.settings, cycles, self.reflections, course)

    def _start(self, stopwatch: Stopwatch) -> Cycle:
        """Return what the model that was given explains of the data."""
        with stopwatch.part("phasing"):
            return Cycle.of(0, phased_model(Path(self.settings.model), self.reflections))

    def _carry_out(self, cycles: list[Cycle], listener: Listener) -> list[str]:
        """Append cycle by cycle; return a sentence where one did not finish."""
        path = Path(self.settings.model)
        for number in range(1, self.settings.cycles + 1):
            arguments = self.settings, self.folder, number, path, self.reflections, listener
            try:
                cycles.append(run_cycle(*arguments))
            except SimulationError as error:
                if number == 1:
                    raise
                said = f"cycle {number} did not finish, and the fit ended before it: {error}"
                listener.say(said)
                return [said]
            listener.say(cycles[-1].in_words())
            path = model_of(cycle_folder(self.folder, number))
            if is_over(cycles):
                break
        return []

    def _begin(self, overwrite: bool, command: str | None) -> None:
        """Make the folder this fit's, or find that it is."""
        if overwrite:
            remove_crystal(self.folder)
        path = self.folder / CRYSTAL_SETTINGS
        if not path.exists():
            if not overwrite:
                check_unused(self.folder)
            self.settings = replace(self.settings, command=command)
            self.settings.write(self.folder)
            return
        before = CrystalSettings.read(self.folder)
        mine = replace(self.settings, fit_options=_kept(self.settings.fit_options))
        if replace(before, fit_options=_kept(before.fit_options)) != mine:
            raise InputError(
                "it holds the fit of a crystal with other settings",
                source=self.folder,
                remedy=f"choose another folder, resume it by {as_argument('resume')} {self.folder}, or pass "
                f"{as_argument('overwrite', True)}",
            )


def _kept(options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "allow_scripts"}
