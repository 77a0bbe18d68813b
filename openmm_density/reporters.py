"""`DensityReporter`: how a simulation follows its density, written while it runs."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import openmm
from openmm import app, unit

from .base.errors import InputError, as_argument
from .base.wording import one_line, residue_label
from .energies.context_parameters import as_made, parameter_names
from .energies.density_fit import DensityFit
from .maps.density_map import DensityMap
from .validation.correlation import MapCorrelation


class DensityReporter:
    """Write the similarity of model and map, the density energy and its strength, in the manner of OpenMM's StateDataReporter.

    Append it to the reporters of any ``openmm.app.Simulation`` whose System has the force of a `DensityFit`. The similarity is
    calculated from the force's own energy, or from its derivative with respect to k: one evaluation of that force per row.

    Columns are ``step``, ``time`` (ps), ``similarity`` (the measure of the `DensityFit`), ``density_energy`` (kJ/mol) and
    ``strength`` (kJ/mol per fitted atom); with ``density_map`` also ``cc_mask`` and one for each residue.

    Parameters
    ----------
    file : path or text file object
        Where the table goes, as comma-separated values. Rows are flushed as they come.
    interval : int
        Steps between rows.
    density_fit : DensityFit
        The fit whose force is in the System.
    step, time, similarity, density_energy, strength : bool
        Which columns are written.
    density_map : DensityMap, optional
        The map as it was read. With it the reported correlation (`validation.correlation`) and that of every residue are
        written; these compute the model's density again, some tens of milliseconds per row.
    append : bool
        Continue a table of the same columns; where there is none, begin it.

    Raises
    ------
    InputError
        If the interval is no positive number of steps, no column is on, the file cannot be written, or a table to continue
        has other columns. At the first row: if the System has no force of the `DensityFit`, or one without a
        parameter derivative that shares its force group with other forces.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | TextIO,
        interval: int,
        density_fit: DensityFit,
        *,
        step: bool = True,
        time: bool = True,
        similarity: bool = True,
        density_energy: bool = True,
        strength: bool = True,
        density_map: DensityMap | None = None,
        append: bool = False,
    ) -> None:
        if int(interval) != interval or interval < 1:
            raise InputError(
                "must be a whole number of steps, 1 or more",
                argument="interval",
                found=interval,
                remedy="give the steps between rows",
            )
        self._interval = int(interval)
        self._fit = density_fit
        wanted = {
            "step": step,
            "time": time,
            "similarity": similarity,
            "density_energy": density_energy,
            "strength": strength,
        }
        self._columns = [name for name, is_wanted in wanted.items() if is_wanted]
        self._correlation: MapCorrelation | None = None
        header = list(self._columns)
        if density_map is not None:
            self._correlation = MapCorrelation(density_map, density_fit.topology, density_fit.resolution)
            header += ["cc_mask", *(residue_label(residue) for residue in density_fit.topology.residues())]
        if not header:
            raise InputError(
                "the table would have no column",
                remedy=f"leave {as_argument('similarity')} or another one on",
            )
        self._force: _DensityForce | None = None
        self._opened = isinstance(file, (str, os.PathLike))
        continued = self._opened and append and _has_header(Path(file), header)
        try:
            self._file: TextIO = (
                open(file, "a" if append else "w", encoding="utf-8", newline="") if self._opened else file  # noqa: SIM115
            )
        except OSError as error:
            raise InputError(
                f"it cannot be written ({error.strerror or error})", source=file, remedy="check the folder"
            ) from error
        self._writer = csv.writer(self._file, lineterminator="\n")
        if not continued and (self._opened or not append):
            self._write(header)

    def describeNextReport(self, simulation: app.Simulation) -> dict[str, Any]:
        """Tell OpenMM when the next row is due and what it takes."""
        steps = self._interval - simulation.currentStep % self._interval
        include = [] if self._correlation is None else ["positions"]
        return {"steps": steps, "periodic": False, "include": include}

    def report(self, simulation: app.Simulation, state: openmm.State) -> None:
        """Write a row."""
        context = simulation.context
        if self._force is None:
            self._force = _density_force(simulation.system, self._fit)
            self._fit.warn_of_forces(simulation.system)
        total = context.getParameter(self._fit.parameter_name)
        values: dict[str, Any] = {
            "step": simulation.currentStep,
            "time": state.getTime().value_in_unit(unit.picosecond),
            "strength": total / self._fit.n_fitted_atoms,
        }
        if {"similarity", "density_energy"} & set(self._columns):
            slope = self._energy_per_strength(context, self._force, total)
            values["density_energy"] = total * slope
            values["similarity"] = self._fit.measure.similarity_from_energy(slope, 1.0)
        row = [values[name] for name in self._columns]
        if self._correlation is not None:
            positions = state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)
            overall, residues = self._correlation.evaluate(positions)
            row += [overall, *("" if np.isnan(value) else float(value) for value in residues)]
        self._write([f"{value:.7g}" if isinstance(value, float) else value for value in row])

    def _energy_per_strength(self, context: openmm.Context, force: _DensityForce, total: float) -> float:
        """Return the density's energy at k = 1, which is its derivative with respect to k."""
        name, groups = self._fit.parameter_name, {force.group}
        if force.has_derivative:
            state = context.getState(parameterDerivatives=True, groups=groups)
            return float(state.getEnergyParameterDerivatives()[name])
        if total != 0:
            return _energy(context, force) / total
        # Without a derivative the energy at k = 0 says nothing of the slope: evaluate it at k = 1.
        context.setParameter(name, 1.0)
        try:
            return _energy(context, force)
        finally:
            context.setParameter(name, total)

    def _write(self, row: list[Any]) -> None:
        self._writer.writerow(row)
        self._file.flush()

    def __del__(self) -> None:
        if getattr(self, "_opened", False) and hasattr(self, "_file"):
            self._file.close()


def _has_header(path: Path, header: list[str]) -> bool:
    """Return whether there is a table to continue."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            found = next(csv.reader(file), None)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"it cannot be read as a table ({one_line(error)})", source=path, remedy="give another file"
        ) from error
    if found is not None and found != header:
        raise InputError(
            f"the columns to continue must be {_first(header)}",
            source=path,
            found=_first(found),
            remedy=f"give another file, or {as_argument('append', False)} to replace this one",
        )
    return found is not None


def _first(columns: list[str]) -> str:
    return ", ".join(columns) if len(columns) <= 6 else f"{', '.join(columns[:6])}, …"


class _DensityForce(NamedTuple):
    """How the energy of the density's force is evaluated alone."""

    group: int
    has_derivative: bool
    # Of a collective variable: the number of the `CustomCVForce` in the System, then of each variable within the one before
    path: tuple[int, ...] = ()


def _energy(context: openmm.Context, force: _DensityForce) -> float:
    """Return the energy of the density's force in kJ/mol."""
    if not force.path:
        state = context.getState(energy=True, groups={force.group})
        return state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    outer = context.getSystem().getForce(force.path[0])
    for number in force.path[1:-1]:
        outer.getCollectiveVariableValues(context)  # brings the inner Context up to date
        context = outer.getInnerContext(context)
        outer = context.getSystem().getForce(number)
    return outer.getCollectiveVariableValues(context)[force.path[-1]]


def _path_within(force: openmm.Force, parameter_name: str) -> tuple[int, ...] | None:
    """Return the path to the variable with a parameter within a force, empty for itself; None where there is none."""
    if not isinstance(force, openmm.CustomCVForce):
        return () if parameter_name in parameter_names(as_made(force)) else None
    for number in range(force.getNumCollectiveVariables()):
        found = _path_within(force.getCollectiveVariable(number), parameter_name)
        if found is not None:
            return (number, *found)
    return None


def _density_force(system: openmm.System, fit: DensityFit) -> _DensityForce:
    """Return the group of the force that has the parameter of the strength, and whether it has that derivative."""
    forces = [as_made(force) for force in system.getForces()]
    for number, force in sorted(enumerate(forces), key=lambda each: each[1].getName() != "DensityFit"):
        path = _path_within(force, fit.parameter_name)
        if path is None:
            continue
        group = force.getForceGroup()
        if path:
            return _DensityForce(group, False, (number, *path))
        # A State lists derivatives of all parameters, 0 for those that no force was asked for.
        has_derivative = fit.parameter_name in _derivative_names(force)
        names = [other.getName() for other in forces if other.getForceGroup() == group]
        if not has_derivative and len(names) > 1:
            raise InputError(
                f"force group {group} must hold the density's force alone, or its energy is not known",
                found=", ".join(names),
                remedy="give it a group of its own, as with DensityFit(..., force_group=1), or a parameter derivative",
            )
        return _DensityForce(group, has_derivative)
    raise InputError(
        f'the System has no force of the DensityFit with the parameter "{fit.parameter_name}"',
        remedy="add fit.create_force() to it before the Simulation is made",
    )


def _derivative_names(force: openmm.Force) -> list[str]:
    if not hasattr(force, "getNumEnergyParameterDerivatives"):
        return []
    return [
        force.getEnergyParameterDerivativeName(i) for i in range(force.getNumEnergyParameterDerivatives())
    ]
