"""The fit of a model to a map: `FlexibleFit`, which puts the parts of a fit together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import openmm
import torch
from openmm import app
from scipy import fft

from ..base.garbage import without_collection
from ..base.progress import shown_progress
from ..base.stopwatch import Stopwatch
from ..base.units import resolution_in_angstrom, takes_units
from ..energies.forces import own_backend
from ..maps.corrections import MapCorrections
from ..maps.density_map import DensityMap
from ..models.assembly import AssemblySymmetry
from ..models.preparation import Prepared
from ..models.structures import Model
from ..restraints.planarity import SIGMA
from ..validation.geometry import GeometryReport
from ..validation.map_checks import MapChecks
from ..validation.model_report import correlation_report, fsc_report, joined_report
from ..validation.q_score import atom_q_scores, scores_of_atoms
from .checkpoints import RunFolder, TrajectoryFolder
from .checks import (
    check_arguments,
    check_driven,
    check_mates,
    check_pressures,
    check_resolutions,
    check_start,
)
from .fit_map import FitMap, OtherMaps
from .fit_result import FitResult, Progress
from .fit_run import FitRun
from .fit_systems import FitSystems
from .helper_processes import HelperProcesses, HelperResult
from .installed_extensions import extended, protocol_asked, split_options
from .interrupts import Stop, StopRequest
from .map_examination import (
    Examination,
    examination_known,
    examine_fitted,
    examined_beside,
    expected_model,
)
from .measurements import Measurements
from .options import PreparationOptions, RestraintOptions, RunOptions
from .placement import Placement
from .platforms import load_gpu_code, make_context
from .protocols import Protocol, find_protocol
from .relaxation import Strain
from .start import Start, examined_and_prepared
from .worker_process import available_cores

REPORT_INTERVAL = 200
SAVE_INTERVAL = 2000
Q_SCORES_AT_ONCE = 3
"""Parts of a model's atoms whose Q-scores are found side by side."""


class FlexibleFit:
    """Fit a model flexibly into a map.

    Its arguments are shared out to parts, each of which can be read alone: map, resolution and corrections make a `FitMap`; where
    the model starts in it, its place and the checks, an `Examination`; how it is prepared, `PreparationOptions`; what the force
    field, restraints and density are, `FitSystems`; how often and where it runs, `RunOptions`; what the log says, `Measurements`;
    and `FitRun` runs it.

    Parameters
    ----------
    model : Model
        From `read_model`.
    density_map : DensityMap
        The target.
    resolution : float or Quantity
        Of the map, in Å.
    protocol : Protocol or str
        How the fit runs: the name of a built-in protocol, the path of a TOML file, or a `Protocol`.
    seed : int
        Of velocities and noise.
    platform : str
        OpenMM's platform.
    threads : int, optional
        Of the CPU platform and of the density, and processes of the searches; all cores by default. The same seed gives the same
        fit, bit for bit, on Reference, and on CPU with one thread.
    report_interval : int
        Steps between rows of the log and frames of the trajectory.
    save_interval : int
        Steps between saved states, at each of which a new Context is made: on Reference, and on CPU with one thread, a resumed
        fit repeats the uninterrupted one bit for bit.
    place : {"auto", "on", "off"} or Placement
        Whether the model is first placed in the map as a rigid body, see `fitting.placement`; ``auto``: if it lies outside
        the density, or beside its own. Or where it was placed before.
    forcefield : str or sequence of str
        "amber14", "charmm36", or OpenMM force field files.
    solvent : {"none", "obc", "gbn2", "water"}
        See `openmm_density.models.force_fields`. In water the fit begins with an equilibration at constant pressure.
    ligand_forcefield : {"rigid", "openff", "gaff", "xtb", "openmmml:…"}, optional
        What parametrises ligands that the force field does not know; by default they are kept rigid. See
        `openmm_density.models.ligands`, and for "xtb" `openmm_density.extensions.ligands`.
    ligands : mapping of str to str, optional
        SMILES by residue name; by default those of the dictionaries.
    ligand_potentials : path or sequence of paths
        Files that `openmm-density distill` wrote, for "xtb". What is not among them is distilled once, and kept.
    restrain_to : Model, optional
        Another model of the same molecule, whose distances the restraint "distance" keeps in place of those of the start.
    reference : Model, optional
        A model of the target, to report the distance to. It has no part in the fit.
    free_map : DensityMap, optional
        Another map of the molecule, such as the other half map, to report the correlation with. It has no part in the fit.
    corrections : MapCorrections, optional
        What the maps are corrected for first: voxel size, handedness, sign.
    map_checks : MapChecks, optional
        What was found out about the map before, as of a fit that goes on: neither map nor place is then looked at again.
    planarity : float, Quantity or None
        σ in Å with which flat groups are held flat; None leaves them to the force field.
    dictionaries : path or sequence of paths
        Restraint dictionaries or wwPDB component files of ligands, which tell their ideal geometry and what is flat in them.
    allow_scripts : bool
        Whether force field files that are not OpenMM's own may run the Python code that they hold.
    stopwatch : Stopwatch, optional
        That of the program around this fit; by default its own, which counts its construction, run and writing.
    explain_time : bool
        Whether each force of a step is timed in the end, see `FitResult.ms_by_force`.
    half_maps : two DensityMap, optional
        Half maps, by which the level of refined B factors is chosen and checked, and an ensemble is judged. They have no other
        part in the fit.
    symmetry : AssemblySymmetry, optional
        From `openmm_density.extensions.symmetry.find_assembly`, with the unit that is then the model: its copies follow from it.
    completed : Model, optional
        The same model with what an earlier fit built of it, as in its ``fitted.cif`` beside ``fitted.pdb``: that is kept, as is
        the protonation.
    **options
        Those of extensions, see `openmm_density.fitting.extension`, and of `DensityFit`: ``similarity``, ``weights``,
        ``atoms``, ``mask`` … With ``operators`` the model is one unit of an assembly or of a crystal: its copies take part in the
        density and, as `add_symmetry_contacts` says, in the force field.

    Attributes
    ----------
    protocol : Protocol
    fit_map : FitMap
        The target, corrected, with its resolution.
    density_map : DensityMap
        The same as a map.
    map_path : Path, optional
        The file that it was read from.
    corrections : MapCorrections
    map_checks : MapChecks
        What was found out about the map with the model where it starts.
    placement : Placement, optional
        How the model was placed, where it was.
    prepared : Prepared
        The model with what it lacked.
    solute : Prepared
        The same without the water around it.
    density : DensityFit
        The density force at the resolution of the map.
    restraints : list of Restraint
        What some stage of the protocol holds as it was.
    planarity : PlanarityRestraint, optional
        What holds flat groups flat.
    dictionaries : path or sequence of paths
    asked : dict
        Options by name: those of extensions, and what these look at.
    stopwatch : Stopwatch
        What took how long.
    planes : PlaneSet
        The flat groups of the model as it was read, without what was added to it: what is reported on.
    beside : HelperProcesses
        What is done beside the fit, by processes where it runs on a GPU, until its files are written; without a folder, until
        the run ends.

    Raises
    ------
    InputError
        One sentence on the model, map or argument that cannot be used.
    TypeError
        If an argument is not known.
    """

    @takes_units("resolution", "planarity")
    def __init__(
        self,
        model: Model,
        density_map: DensityMap,
        resolution: Any,
        protocol: Protocol | str = "standard",
        *,
        seed: int = 0,
        platform: str = "CPU",
        threads: int | None = None,
        report_interval: int = REPORT_INTERVAL,
        save_interval: int = SAVE_INTERVAL,
        place: str | Placement = "auto",
        forcefield: str | Sequence[str] = "amber14",
        solvent: str = "none",
        ligand_forcefield: str | None = None,
        ligands: Mapping[str, str] | None = None,
        restrain_to: Model | None = None,
        reference: Model | None = None,
        free_map: DensityMap | None = None,
        corrections: MapCorrections | None = None,
        map_checks: MapChecks | None = None,
        planarity: Any = SIGMA,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        allow_scripts: bool = False,
        stopwatch: Stopwatch | None = None,
        explain_time: bool = False,
        ligand_potentials: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        half_maps: Sequence[DensityMap] | None = None,
        symmetry: AssemblySymmetry | None = None,
        completed: Model | None = None,
        **options: Any,
    ) -> None:
        self.asked, density_options = split_options(options | {"solvent": solvent} | _copies_of(symmetry))
        models = {"restrain_to": restrain_to, "reference": reference, "completed": completed}
        check_arguments(type(self), density_options, density_map, model=model, **models)
        check_mates(density_options.get("operators"), solvent)
        self.stopwatch, self.reference, self.symmetry = stopwatch or Stopwatch(), reference, symmetry
        with self.stopwatch.part("preparation"), ExitStack() as preparation:
            run = RunOptions(seed, platform, threads, report_interval, save_interval, explain_time)
            fit_map = FitMap(density_map, resolution_in_angstrom(resolution), corrections)
            self._other_maps = maps = OtherMaps.of(fit_map, free_map, half_maps)
            by = forcefield, solvent, ligand_forcefield, ligands, dictionaries, allow_scripts
            chemistry = PreparationOptions(*by, ligand_potentials, completed).with_potentials(model, threads)
            holds = RestraintOptions(planarity, restrain_to, dictionaries, self.asked)
            prepare = partial(_prepared, chemistry, fit_map, run, load_gpu_code(run.platform))
            self.beside = _loading_beside(run, fit_map, preparation)
            start, self.solute, self.prepared = self._start(model, fit_map, place, map_checks, run, prepare)
            self.planes = planes = holds.planes(start.model)
            self.protocol = _adapted(protocol, fit_map, start, self.asked)
            run = run.for_protocol(self.protocol)
            systems = FitSystems(self.prepared, fit_map, self.protocol, start.cc, run, holds, density_options)
            self._measurements = measurements = Measurements(
                self.prepared, systems.density, fit_map, start.cc, planes, reference, maps.free, self.beside
            )
            self._run = FitRun(
                systems, fit_map, self.protocol, run, measurements, self.solute, self.stopwatch, self.beside
            )
        self._expose(fit_map, start, run, systems, chemistry)
        self.map_path = density_map.path

    def _expose(
        self,
        fit_map: FitMap,
        start: Examination,
        run: RunOptions,
        systems: FitSystems,
        chemistry: PreparationOptions,
    ) -> None:
        """Name what output and scripts ask of the parts."""
        self.forcefield, self.dictionaries = chemistry.forcefield_names, chemistry.dictionaries
        self.fit_map, self.density_map, self.corrections = fit_map, fit_map.density_map, fit_map.corrections
        self.map_checks, self.placement = start.checks, start.placement
        self.seed, self.platform, self.threads = run.seed, run.platform, run.threads
        self.report_interval, self.save_interval = run.report_interval, run.save_interval
        self.restraints, self.planarity = systems.restraints, systems.planarity
        of_symmetry = [] if self.symmetry is None else self.symmetry.sentences()
        self.notes = [*of_symmetry, *chemistry.notes, *self._other_maps.doubts, *systems.notes]
        self.density, self._systems = systems.density, systems

    def _start(
        self,
        model: Model,
        fit_map: FitMap,
        place: str | Placement,
        map_checks: MapChecks | None,
        run: RunOptions,
        prepare: Callable[[Model], tuple[Prepared, Prepared]],
    ) -> Start:
        """Check model and map, find out where the model belongs, where that is not known yet, and prepare it."""
        check_start(model, fit_map)
        if map_checks is not None or isinstance(place, Placement):
            placement = place if isinstance(place, Placement) else None
            known = examination_known(model, fit_map, map_checks or MapChecks(), placement)
            return Start(known, *prepare(known.model))
        is_alone = (run.threads or available_cores()) == 1
        expected = None if is_alone else expected_model(model, fit_map, place)
        found = self.beside.begin(examined_beside, model, fit_map, place, run.threads)

        def examine() -> Examination:
            return examination_known(model, fit_map, *found.result())

        return examined_and_prepared(expected, examine, prepare, self.stopwatch)

    @property
    def half_maps(self) -> tuple[DensityMap, ...]:
        """The half maps, corrected, or none."""
        return self._other_maps.halves

    @property
    def system(self) -> openmm.System:
        """Force field, restraints, and the density force at the resolution of the map, in three force groups.

        Of a large model it is built anew after other stages: what a script adds to it is not in the next one.
        """
        return self._systems.system

    @property
    def timestep(self) -> float:
        """The time step in ps."""
        return self._run.engine.dynamics.full_timestep

    @cached_property
    def start_strain(self) -> Strain:
        """What is bad in the geometry of the start, with what was built, so that it is relaxed in stages."""
        return self._run.engine.minimizer.strain(self.prepared.positions)

    def rebuilds_before(self, number: int) -> bool:
        """Whether parts of the model are rebuilt before a stage of the protocol, by its number from 0."""
        return any(extension.rebuilds_before(number) for extension in self._run.extensions)

    @takes_units("positions")
    def geometry(self, positions: np.ndarray) -> GeometryReport:
        """Return the geometry of the model without solvent, at positions (N, 3) of its atoms, and maybe others behind, in Å."""
        return self._run.geometry(positions)

    @takes_units("positions")
    def map_report(self, topology: app.Topology, positions: np.ndarray) -> HelperResult[dict[str, Any]]:
        """Return the report on how well a model agrees with the map, made once, and beside the fit where that has processes.

        Parameters
        ----------
        topology : openmm.app.Topology
        positions : np.ndarray, shape (N, 3)
            In Å.

        Returns
        -------
        HelperResult
            Of what `openmm_density.validation.model_report.map_report` returns.
        """
        key, shared = (id(topology), positions.tobytes()), self.beside.shared
        model, density_map = shared(topology), shared(self.density_map)
        of_map = model, positions, density_map, self.density.resolution
        # Side by side, as each takes seconds of a large model; the longest first.
        curve = self.beside.once(key, fsc_report, *of_map)
        parts = Q_SCORES_AT_ONCE if self.beside.has_processes else 1
        scores = [
            self.beside.once((*key, part), atom_q_scores, density_map, model, positions, part, parts)
            for part in range(parts)
        ]
        others = self.beside.once(key, correlation_report, *of_map)

        def joined() -> dict[str, Any]:
            atoms = np.fmax.reduce([each.result() for each in scores])
            found = scores_of_atoms(topology, atoms)
            return joined_report(topology, others.result(), curve.result(), found)

        return HelperResult(joined)

    def checks_after(self, result: FitResult) -> HelperResult[MapChecks]:
        """Return what a fitted model says of the map, found out once, and beside the fit where that has processes."""
        return examine_fitted(self.fit_map, self.solute, result, self.threads, self.beside)

    def context_at_rest(self, result: FitResult) -> openmm.Context:
        """Return a Context of a last minimisation of a result without a density, see `final_geometry`, fitted conformers last."""
        system = self._systems.at_rest_of(result)
        return make_context(system, openmm.VerletIntegrator(0.001), self._run.engine.platform)

    @takes_units("positions")
    def moved(self, result: FitResult, positions: np.ndarray) -> FitResult:
        """Return a result with its model at other positions (N, 3) in Å, and what is measured of it there.

        Of (N + K, 3) the last are those of fitted conformers.
        """
        beside, positions = positions, positions[: len(result.final)]
        in_input = self.prepared.input_positions(positions)
        found = result.conformers
        moved = replace(
            result,
            final=positions,
            cc_final=self.fit_map.correlation(self.prepared.model.topology).cc_mask(in_input),
            similarity_final=self.density.similarity(positions),
            ca_rmsd_final=self._measurements.ca_rmsd(positions),
        )
        return moved if found is None else moved.with_found(conformers=found.moved(beside))

    def run(
        self,
        folder: RunFolder | None = None,
        progress: Progress | bool | None = None,
        on_interrupt: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
        stop: Stop | None = None,
    ) -> FitResult:
        """Run the fit, or go on with one.

        Parameters
        ----------
        folder : RunFolder, optional
            Where states and trajectory are kept. If it holds a state of this fit, the fit goes on from there. Without one
            the trajectory alone is kept, in a temporary folder, until the result is forgotten.
        progress : callable or bool, optional
            Called with step, number of steps, stage or what is being done before it (as ``register: A 61-72 (12 of 40)``), and
            the newest row of the log, or None where there is none since the last. Or whether a bar is shown: by default in a
            notebook only; True: on a terminal too (in a pipe never); False: nowhere.
        on_interrupt : callable, optional
            Called when the first SIGINT or SIGTERM comes, before what is under way is finished.
        on_end : callable, optional
            Called when a second one comes, before it ends the process.
        stop : StopRequest, optional
            Of a program around the fit: what ends extensions, once the fit itself is complete.

        Raises
        ------
        InputError
            If a fit is running in the folder, or its state is not one of this fit.
        SimulationError
            If the simulation becomes unstable again and again.
        KeyboardInterrupt
            After SIGINT or SIGTERM before the dynamics. Later these end the fit, and the result is what there is by then.
        """
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        for model in (self.prepared.model, self.reference):
            if model is not None and self.beside.has_processes:
                self.map_report(model.topology, model.positions)
        stages = [(stage.name, self.rebuilds_before(n)) for n, stage in enumerate(self.protocol.stages)]
        workers = fft.set_workers(self.threads or available_cores())
        with workers, self.beside.ended_by_errors(), shown_progress(progress, stages) as told:
            run = folder or TrajectoryFolder()
            result = replace(self._run.run(run, told, on_interrupt, on_end), ran=(self, run))
            with nullcontext(stop) if stop else StopRequest(on_interrupt, on_end) as ends:
                result = extended(self, result, folder, ends, told)
            if folder is not None:
                folder.save_times(self.stopwatch)
        # No files need be written of it; what is asked for yet is done here.
        if folder is None:
            self.beside.end()
        return result


def _copies_of(symmetry: AssemblySymmetry | None) -> dict[str, Any]:
    return {} if symmetry is None else {"operators": symmetry.operators}


def _prepared(
    chemistry: PreparationOptions,
    fit_map: FitMap,
    run: RunOptions,
    loading: threading.Thread | None,
    model: Model,
) -> tuple[Prepared, Prepared]:
    """Return a model with what it lacked, and the same in its solvent; find what its forces will be while the map is examined."""
    if loading is not None:  # one thread at a time begins with the GPU
        loading.join()
    solute, prepared = chemistry.prepared(model, fit_map.density_map, run.platform)
    own_backend(run.platform)
    prepared.parametrise()
    return solute, prepared


def _loading_beside(run: RunOptions, fit_map: FitMap, preparation: ExitStack) -> HelperProcesses:
    """Return what is done beside a fit, whose processes load what they need while it is prepared, in all its threads."""
    beside = HelperProcesses.of_fit(run.platform, run.threads, fit_map.density_map)
    preparation.enter_context(beside.ended_by_errors())
    preparation.enter_context(without_collection())
    preparation.enter_context(fft.set_workers(run.threads or available_cores()))
    return beside


def _adapted(
    protocol: Protocol | str,
    fit_map: FitMap,
    start: Examination,
    asked: Mapping[str, Any],
) -> Protocol:
    """Return the protocol for a model that starts like this, checked against map and solvent."""
    solvent = asked["solvent"]
    if not isinstance(protocol, Protocol):
        protocol = find_protocol(protocol, fit_map.resolution)
    protocol = (
        protocol_asked(protocol, {**asked, "confidence": start.model.confidence})
        .from_start(start.cc)
        .finishing()
    )
    if solvent == "water":
        protocol = protocol.in_water()
    check_pressures(protocol, solvent)
    check_driven(protocol)
    check_resolutions(protocol, fit_map)
    return protocol
