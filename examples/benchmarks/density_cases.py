"""The cases that `density_cpu.py` runs: what is timed side by side, and our engines in it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openmm
import torch
from density_models import (
    DENSITY,
    GRADIENT,
    OTHER_VOXELS,
    RADIUS,
    RESOLUTION,
    ROUNDING,
    SIGMA,
    SIMILARITY,
    RandomAtoms,
    adenylate_kinase,
    forces_in_two_passes,
    simulated,
    unit_gaussians,
)
from density_peers import TorchRef, gemmi_engine, gromacs_engines, torchref_engines
from empty_module import EmptyModule
from interleaved import Case, Difference, Engine, compare, independently, measure, timed
from openmm import app, unit
from openmmtorch import TorchForce
from torch import Tensor

from openmm_density import DensityFit, DensityMap
from openmm_density.kernels.density import (
    CROSS_CORRELATION,
    CROSS_CORRELATION_ABOUT_MEAN,
    density_similarity,
    target_moments,
)

TERM = "density term of {} atoms"
ALONE = "each thread alone"
# Short rounds, and many: the term is a small difference of two steps.
STEPS_PER_ROUND = 10
STEPS_BEFORE = 5
STEP_TURNS = 5


@dataclass
class Settings:
    """What the command line asks for."""

    threads: int
    rounds: int
    limit: float
    quick: bool
    gemmi: bool
    gromacs: str | None
    torchref: list[TorchRef]
    folder: Path


def random_case(atoms: RandomAtoms, title: str, settings: Settings, one_thread: bool) -> Case:
    """Time density, gradient and the fused operator on random atoms."""
    threads = settings.threads
    agreement = atoms.check()
    engines = [
        timed("density_splat, density_gather", GRADIENT, threads, atoms.splat_and_gather),
        timed("density_similarity", SIMILARITY, threads, atoms.similarity),
    ]
    if one_thread and threads > 1:
        engines += [
            timed("density_splat, density_gather", GRADIENT, 1, atoms.splat_and_gather),
            timed("density_similarity", SIMILARITY, 1, atoms.similarity),
            independently(
                f"density_splat, density_gather, {ALONE}", GRADIENT, threads, atoms.splat_and_gather
            ),
            independently(f"density_similarity, {ALONE}", SIMILARITY, threads, atoms.similarity),
        ]
    if atoms.n_gaussians == 5:
        density, gradient = (x.numpy() for x in atoms.splat_and_gather())
        if settings.gemmi:
            engines += [timed("density_splat", DENSITY, 1, atoms.splat), gemmi_engine(atoms, density)]
        engines += torchref_engines(settings.torchref, atoms, (density, gradient), settings.folder, threads)
    measure(engines, settings.rounds, settings.limit)
    return Case(title, engines, agreement)


def atoms_case(
    n_atoms: int, n_gaussians: int, size: int, *, triclinic: bool = False, one_thread: bool = False
) -> Callable[[Settings], Case]:
    """Return the case of so many atoms in a cell of so many voxels of 0.8 Å along each edge."""

    def case(settings: Settings) -> Case:
        n, edge, angles = n_atoms, size, (75.0, 100.0, 110.0) if triclinic else (90.0, 90.0, 90.0)
        if settings.quick:
            n, edge = n // 20, size // 3
        atoms = RandomAtoms(n, n_gaussians, edge, 0.8, angles)
        gaussians = "5 Gaussians" if n_gaussians == 5 else "1 Gaussian"
        skew = f", cell of {angles[0]:g}/{angles[1]:g}/{angles[2]:g}°" if triclinic else ""
        title = f"{n} atoms, {gaussians}, {edge}³ voxels of 0.8 Å, radius {RADIUS} Å{skew}"
        return random_case(atoms, title, settings, one_thread)

    return case


def boxes_case(settings: Settings) -> Case:
    """Time the fused operator on the same model in growing boxes."""
    _, start, end = adenylate_kinase()
    sizes, voxel_size = ((64, 128, 256), 1.6) if settings.quick else ((128, 256, 512), 0.8)
    positions = torch.from_numpy(start)
    atoms = torch.arange(len(start))
    gaussians = unit_gaussians(len(start))
    engines, gradients = [], []
    for size in sizes:
        target, place = simulated(end, size, voxel_size)
        moments = target_moments(target)

        def evaluate(
            target: Tensor = target, moments: Tensor = moments, place: tuple[Tensor, Tensor] = place
        ) -> tuple[Tensor, Tensor]:
            return density_similarity(
                positions, atoms, *gaussians, RADIUS, target, moments, *place, False, CROSS_CORRELATION, 1.0
            )

        gradients.append(evaluate()[1])
        engines.append(timed(f"density_similarity, {size}³", SIMILARITY, settings.threads, evaluate))
    agreement = {
        "forces in the largest box against those in the smallest": compare(
            "gradient in a large box", gradients[-1], gradients[0], ROUNDING
        )
    }
    measure(engines, settings.rounds, settings.limit)
    title = f"adenylate kinase, {len(start)} heavy atoms, boxes of {', '.join(map(str, sizes))} voxels of {voxel_size} Å"
    return Case(title, engines, agreement)


def dynamics_case(settings: Settings) -> Case:
    """Time the density term of a step of dynamics: this package in OpenMM, and GROMACS, of the same model and map."""
    threads = settings.threads
    topology, start, end = adenylate_kinase()
    target, place = simulated(end, 90, 1.0)
    density_map = DensityMap(target.numpy(), np.eye(3), np.zeros(3))

    force_field = app.ForceField("amber14-all.xml")
    modeller = app.Modeller(topology, start / 10 * unit.nanometer)
    cpu = openmm.Platform.getPlatformByName("CPU")
    modeller.addHydrogens(force_field, platform=cpu)
    positions = modeller.getPositions()
    fits: dict[str, DensityFit | None] = {"without": None}
    options = {
        "weights": "unity",
        "about_mean": True,
        "cutoff": RADIUS,
        "crop_margin": None,
        "voxel_size": density_map.voxel_size[0],
        "force_group": 1,
    }
    for atoms in ("heavy", "all"):
        fits[atoms] = DensityFit(density_map, modeller.topology, RESOLUTION, atoms=atoms, **options)
    # As somebody who sets nothing has it: correlation about zero, on voxels of sigma.
    simple = {"positions": positions, "force_group": 1}
    fits["by default"] = DensityFit(density_map, modeller.topology, RESOLUTION, **simple)
    own_voxels = DensityFit(
        density_map, modeller.topology, RESOLUTION, voxel_size=density_map.voxel_size[0], **simple
    )

    agreement: dict[str, float] = {}
    contexts, engines, floor, bare, alone = {}, {}, {}, {}, {}
    for name, fit in fits.items():
        system = force_field.createSystem(
            modeller.topology,
            nonbondedMethod=app.CutoffNonPeriodic,
            nonbondedCutoff=1.0,
            constraints=app.HBonds,
            removeCMMotion=False,
        )
        if fit is not None:
            system.addForce(fit.create_force(parameter_derivative=False))
            system.addForce(idle_force(system.getNumParticles(), 2))
        integrator = openmm.LangevinMiddleIntegrator(300, 1, 0.002)
        integrator.setRandomNumberSeed(1)
        contexts[name] = openmm.Context(system, integrator, cpu, {"Threads": str(threads)})
        contexts[name].setPositions(positions)
        if fit is None:
            iterations = 10 if settings.quick else 100
            openmm.LocalEnergyMinimizer.minimize(contexts[name], maxIterations=iterations)
            positions = contexts[name].getState(positions=True).getPositions(asNumpy=True)
        elif name == "by default":
            agreement["forces by default against those on the map's own voxels"] = compare(
                "force by default",
                density_forces(contexts[name]),
                gradient_of(own_voxels, positions),
                OTHER_VOXELS,
            )
        else:
            expected = forces_in_two_passes(fit, positions.value_in_unit(unit.angstrom), target)
            agreement[f"forces on {name} atoms against gather"] = compare(
                f"force on {name} atoms", density_forces(contexts[name]), expected, 10 * ROUNDING
            )

        if fit is None:
            continue
        which = ", by default" * (name == "by default")
        label = f"OpenMM step with density of {fit.n_fitted_atoms} atoms{which}"
        # The same Context steps with and without: trajectories of their own differ by more than the term.
        for steps, title, groups in (
            (engines, label, {0, 1}),
            (floor, f"the same with a module that does nothing{which}", {0, 2}),
            (bare, f"the same without{which}", {0}),
        ):
            step = functools.partial(stepping, integrator, groups, threads)
            step()
            steps[name] = Engine(title, "step", threads, step, is_short=False)
        groups = functools.partial(contexts[name].getState, forces=True, groups={1})
        operation = TERM.format(fit.n_fitted_atoms)
        alone[name] = timed(f"OpenMM, its force group alone{which}", operation, threads, groups)

    operators = {}
    moments = target_moments(target)
    x = torch.from_numpy(np.asarray(positions.value_in_unit(unit.angstrom)))
    for name in ("heavy", "all"):
        selected = torch.from_numpy(fits[name].atoms)
        gaussians = unit_gaussians(len(selected))

        def evaluate(
            selected: Tensor = selected, gaussians: tuple[Tensor, Tensor] = gaussians
        ) -> tuple[Tensor, Tensor]:
            return density_similarity(
                x, selected, *gaussians, RADIUS, target, moments, *place, False, CROSS_CORRELATION_ABOUT_MEAN, 1.0
            )  # fmt: skip

        operators[name] = timed(f"density_similarity, {len(selected)} atoms", SIMILARITY, threads, evaluate)
    peers: dict[tuple[str, int], Engine] = {}
    if settings.gromacs:
        peers = gromacs_engines(settings.gromacs, start, density_map, agreement, settings.folder, threads)
    steps = [step for name in engines for step in (engines[name], floor[name], bare[name])]
    repeated = steps * (1 if settings.quick else STEP_TURNS)
    measure(
        [*repeated, *operators.values(), *alone.values(), *peers.values()],
        settings.rounds,
        4 * settings.limit,
    )

    terms = []
    for name in ("by default", "heavy", "all"):
        count = fits[name].n_fitted_atoms
        which = ", by default" * (name == "by default")
        terms.append(Difference(f"OpenMM, DensityFit{which}", TERM.format(count), engines[name], bare[name]))
        terms.append(
            Difference(
                f"OpenMM, a module that does nothing{which}", TERM.format(count), floor[name], bare[name]
            )
        )
        terms.append(alone[name])
        if name == "by default":
            continue
        for used in sorted({key[1] for key in peers}):
            gromacs_name = f"GROMACS {settings.gromacs}"
            terms.append(
                Difference(gromacs_name, TERM.format(count), peers[name, used], peers["without", used])
            )
    title = (
        f"adenylate kinase, {modeller.topology.getNumAtoms()} atoms, no solvent, cut-off 1 nm; map 90³ of 1 Å; "
        f"σ {SIGMA} Å, 4σ, correlation about the mean"
    )
    return Case(title, [*steps, *peers.values(), *operators.values(), *terms], agreement)


def idle_force(n_particles: int, group: int) -> TorchForce:
    """Build a force of a module that does nothing: openmm-torch's own share of a step."""
    force = TorchForce(torch.jit.script(EmptyModule(n_particles, torch.float64)))
    force.setOutputsForces(True)
    force.setForceGroup(group)
    return force


def stepping(integrator: openmm.Integrator, groups: set[int], threads: int) -> float:
    """Return the seconds of a step with these force groups, after some that change over to them and wake the threads."""
    torch.set_num_threads(threads)
    integrator.setIntegrationForceGroups(groups)
    integrator.step(STEPS_BEFORE)
    start = time.perf_counter()
    integrator.step(STEPS_PER_ROUND)
    return (time.perf_counter() - start) / STEPS_PER_ROUND


def gradient_of(fit: DensityFit, positions: unit.Quantity) -> np.ndarray:
    """Return what the module of a fit says of its forces over k, in nm⁻¹."""
    x = torch.from_numpy(np.asarray(positions.value_in_unit(unit.nanometer)))
    return fit.create_module()(x, torch.tensor(1.0, dtype=torch.float64))[1].numpy()


def density_forces(context: openmm.Context) -> np.ndarray:
    """Return the density's forces over k, in nm⁻¹."""
    forces = context.getState(forces=True, groups={1}).getForces(asNumpy=True)
    strength = context.getParameter("density_strength")
    return np.asarray(forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer)) / strength


def memory_figures(settings: Settings) -> dict[str, Any]:
    """Return the memory of the operator, and how often the map is held, each from a fresh process."""
    atoms, size = (5000, 96) if settings.quick else (100_000, 256)
    script = str(Path(__file__).with_name("density_memory.py"))
    figures: dict[str, Any] = {"atoms": atoms, "size": size}
    for what, count in (("scratch", atoms), ("map", 1000)):
        command = [sys.executable, script, what, "--atoms", str(count), "--size", str(size)]
        done = subprocess.run(
            [*command, "--threads", str(settings.threads)], capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr[-2000:]}")
        figures[what] = json.loads(done.stdout.splitlines()[-1])
    return figures


CASES: dict[str, Callable[[Settings], Case]] = {
    "dynamics": dynamics_case,
    "5k-1g": atoms_case(5000, 1, 160),
    "5k-5g": atoms_case(5000, 5, 160),
    "triclinic": atoms_case(5000, 5, 160, triclinic=True),
    "20k-1g": atoms_case(20_000, 1, 160, one_thread=True),
    "20k-5g": atoms_case(20_000, 5, 160, one_thread=True),
    "100k-5g": atoms_case(100_000, 5, 256),
    "boxes": boxes_case,
}
MEMORY = "memory"
