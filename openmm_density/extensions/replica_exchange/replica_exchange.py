"""`ReplicaExchange`: replicas of a System with a density force that exchange strength, temperature or resolution."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import openmm
from openmm import unit

from ...base.atomic_files import atomic_write
from ...base.errors import InputError, as_argument
from ...base.units import ANGSTROM_PER_NANOMETER, positions_in_angstrom, takes_units
from ...energies.context_parameters import as_made, parameter_names
from ...energies.density_fit import DensityFit
from ...models.merging import masses_of
from ...restraints import PlanarityRestraint
from .ladder import Ladder
from .metropolis import ExchangeRecord, exchange_neighbours
from .replicas import PLANARITY, MergedReplicas, Replicas, ReplicaSetup, SeparateReplicas, SetUp, best_layout

LAYOUTS = {"separate": SeparateReplicas, "merged": MergedReplicas}

_GAS_CONSTANT = unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)


@dataclass
class ExchangeState:
    """Where an exchange is between two rounds: all that the rest of it follows from."""

    positions: np.ndarray  # `positions`, `velocities` (R, N, 3): on each rung, in nm and nm/ps.
    velocities: np.ndarray
    round: int  # How many rounds were run
    record: ExchangeRecord


class ReplicaExchange:
    """Simulate replicas of a System on the rungs of a ladder, and let neighbours exchange their models by Metropolis' criterion.

    Every rung samples its own ensemble, whatever exchanges: where the density pulls little, or is blurred, or it is hot, a model
    finds its way around a barrier, and climbs to the last rung if it fits better there. What decides is the energy of the
    density, and where temperatures differ the potential energy as well.

    The same seed gives the same run, bit for bit on Reference and on CPU, also from a saved state on, with any number of threads.

    Parameters
    ----------
    system : openmm.System
        With the force that ``density`` made.
    density : DensityFit
    ladder : Ladder
    positions : Quantity or array_like, shape (N, 3) or (R, N, 3), or ExchangeState
        Where all replicas start, or each, in Å where plain; or a state to go on from.
    planarity : PlanarityRestraint, optional
        That made such a force of the System; needed for the merged layout.
    parameters : mapping of str to float, optional
        Context parameters to set, such as force constants of restraints.
    friction, timestep : float
        Of Langevin's dynamics, in 1/ps and ps.
    seed : int
        Of velocities, noise and exchanges.
    platform : str, or (openmm.Platform, mapping)
        OpenMM's platform, with its properties if they matter.
    threads : int
        That simulate replicas at the same time in the separate layout.
    layout : {"auto", "separate", "merged"}
        Each replica in a Context of its own, or all side by side in one. ``auto`` merges them on a GPU, unless they have a box.

    Attributes
    ----------
    round : int
        How many rounds were run: so many steps, and an attempt to exchange.
    record : ExchangeRecord
        Of what exchanged: ``acceptance`` of each pair of neighbours, ``round_trips``, ``walkers``.

    Raises
    ------
    InputError
        System, density, ladder and positions do not belong together, or the layout is not possible.
    """

    @takes_units("positions", friction="1/ps", timestep="ps")
    def __init__(
        self,
        system: openmm.System,
        density: DensityFit,
        ladder: Ladder,
        positions: Any,
        *,
        planarity: PlanarityRestraint | None = None,
        parameters: Mapping[str, float] | None = None,
        friction: float = 1.0,
        timestep: float = 0.002,
        seed: int = 0,
        platform: str | tuple[openmm.Platform, Mapping[str, str]] = "CPU",
        threads: int = 1,
        layout: str = "auto",
    ) -> None:
        _check_parameter(system, density, "density")
        if planarity is not None:
            _check_parameter(system, planarity, "planarity")
        used, properties = _platform(platform)
        fits = tuple(
            density
            if rung.resolution is None
            else density.with_atoms_wider(rung.resolution / density.resolution)
            for rung in ladder.rungs
        )
        self._simulated = ReplicaSetup(
            system,
            fits,
            ladder,
            planarity,
            dict(parameters or {}),
            friction,
            timestep,
            used,
            properties,
            threads,
        )
        self._seed, self._kind = seed, self._layout(layout)
        self._check_parameters()
        self.ladder = ladder
        self.round, self.record = 0, ExchangeRecord.begin(len(ladder))
        self._probe: openmm.Context | None
        self._replicas: Replicas
        if isinstance(positions, ExchangeState):
            self._go_on(positions, [])
        else:
            self._start(self._placed(positions), self._drawn_velocities(0))

    def run(self, rounds: int, steps: int, on_round: Callable[[ExchangeRecord], None] | None = None) -> None:
        """Run rounds: so many steps of each replica, and an attempt to exchange every second pair of neighbours.

        Parameters
        ----------
        rounds, steps : int
        on_round : callable, optional
            Called with the record after each round.

        Raises
        ------
        SimulationError
            If a replica becomes unstable.
        """
        for _ in range(rounds):
            self._replicas.step(steps)
            self.exchange()
            if on_round is not None:
                on_round(self.record)

    def step(self, steps: int) -> None:
        """Run so many steps of each replica, and exchange nothing."""
        self._replicas.step(steps)

    def settle(self, iterations: int = 100, steps: int = 80, part: float = 0.25) -> None:
        """Minimise every replica on its rung, draw velocities, and begin with small steps: after one became unstable.

        Parameters
        ----------
        iterations : int
            Of each minimisation.
        steps : int
        part : float
            Of the time step, that these steps have.

        Raises
        ------
        SimulationError
            If a replica becomes unstable.
        """
        self._replicas.settle(iterations, self._drawn_velocities(3), steps, part)

    def exchange(self) -> None:
        """Attempt to exchange every second pair of neighbours, by turns.

        Raises
        ------
        SimulationError
            If a replica is unstable.
        """
        random = np.random.default_rng([self._seed, self.round, 1])
        attempt = exchange_neighbours(self.reduced_energies(), self.round % 2 == 1, random)
        self._replicas.exchange(attempt.order)
        self.record.note(attempt)
        self.round += 1

    @property
    def set_ups(self) -> list[SetUp]:
        """What `set_up` was given, in the order of the rungs that the models are on now; empty where it was not called."""
        return self._replicas.set_ups

    def set_up(self, set_ups: Sequence[SetUp]) -> None:
        """Set up the Context of the model on each rung; what does so goes with the model, whatever exchanges.

        Parameters
        ----------
        set_ups : sequence of callable
            Called with a Context, which another model may have been in: `exchange` takes the energy of each model with it.

        Raises
        ------
        InputError
            If there are not as many as rungs, or replicas are merged.
        """
        if len(set_ups) != len(self.ladder):
            raise InputError(
                "must be one for each rung",
                argument="set_ups",
                found=len(set_ups),
                remedy=f"give {len(self.ladder)}",
            )
        self._replicas.set_up(set_ups)

    def minimized(self, iterations: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Return the models of all rungs, minimised as on the last rung: which of them is best there.

        Parameters
        ----------
        iterations : int
            At most.

        Returns
        -------
        positions : np.ndarray, shape (R, N, 3)
            In Å.
        energies : np.ndarray, shape (R,)
            On the last rung, in kJ/mol, the density's included.
        """
        found = self._replicas.minimized(iterations)
        last = len(self.ladder) - 1
        losses = np.array([self._simulated.loss(last, each) for each in found])
        energies = self._energies_without_density(found) + self._simulated.strengths[last] * losses
        return ANGSTROM_PER_NANOMETER * found, energies

    def positions(self, rung: int = -1) -> np.ndarray:
        """Return the positions of a rung in Å, shape (N, 3): by default of the last, where the density pulls most."""
        return ANGSTROM_PER_NANOMETER * self._replicas.positions()[rung]

    def similarities(self) -> np.ndarray:
        """Return the similarity S of the model on each rung, as the rung's density has it, shape (R,)."""
        return (
            np.array([fit.measure.max_similarity for fit in self._simulated.fits]) - self._replicas.losses()
        )

    def reduced_energies(self) -> np.ndarray:
        """Return the energy in kT that the model on one rung (column) would have on another (row), shape (R, R).

        Only neighbours are computed where rungs differ in resolution. What all models add alike is left out.
        """
        ladder = self.ladder
        energies = self._simulated.strengths[:, None] * self._losses()
        if not ladder.has_one_temperature:
            energies = energies + self._energies_without_density(self._replicas.positions())[None, :]
        return energies / (_GAS_CONSTANT * ladder.temperatures)[:, None]

    @property
    def state(self) -> ExchangeState:
        """Where the exchange is now. To go on from it, `restore` it: here too, so that both go on alike."""
        replicas = self._replicas
        record = ExchangeRecord(**json.loads(json.dumps(asdict(self.record))))
        return ExchangeState(replicas.positions(), replicas.velocities(), self.round, record)

    def restore(self, state: ExchangeState) -> None:
        """Go on from a state, in new Contexts and with noise of its own.

        Raises
        ------
        InputError
            If it is of other replicas.
        """
        self._go_on(state, self.set_ups)

    def _go_on(self, state: ExchangeState, set_ups: Sequence[SetUp]) -> None:
        shape = (len(self.ladder), self._simulated.system.getNumParticles(), 3)
        if state.positions.shape != shape or state.velocities.shape != shape:
            raise InputError(
                "must be of this System and ladder",
                argument="state",
                found=f"positions of shape {state.positions.shape}",
                remedy=f"give one of shape {shape}",
            )
        self.round, self.record = state.round, state.record
        self._start(state.positions, state.velocities, set_ups)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file by an atomic write, and go on from it.

        Raises
        ------
        InputError
            If it cannot be written.
        """
        state = self.state
        plain = json.dumps({"round": state.round, "record": asdict(state.record)}).encode()
        with atomic_write(path) as temporary, open(temporary, "wb") as file:
            np.savez(
                file,
                positions=state.positions,
                velocities=state.velocities,
                plain=np.frombuffer(plain, dtype=np.uint8),
            )
            file.flush()
            os.fsync(file.fileno())
        self.restore(state)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file that `save` has written.

        Raises
        ------
        InputError
            If it cannot be read, or is of other replicas.
        """
        try:
            with open(path, "rb") as file:
                contents = io.BytesIO(file.read())
            with np.load(contents, allow_pickle=False) as archive:
                positions, velocities = archive["positions"], archive["velocities"]
                plain = json.loads(archive["plain"].tobytes())
            state = ExchangeState(positions, velocities, plain["round"], ExchangeRecord(**plain["record"]))
        except Exception as error:
            raise InputError(
                f"it holds no state of replicas ({type(error).__name__})",
                source=path,
                remedy="give a file that ReplicaExchange.save has written",
            ) from None
        self.restore(state)

    def _start(self, positions: np.ndarray, velocities: np.ndarray, set_ups: Sequence[SetUp] = ()) -> None:
        seed = int(np.random.SeedSequence([self._seed, self.round, 2]).generate_state(1)[0])
        # Its neighbour list remembers: in what goes on from a state it would differ.
        self._probe = None
        self._replicas = LAYOUTS[self._kind](self._simulated, positions, velocities, seed)
        self._replicas.set_up(set_ups)

    def _losses(self) -> np.ndarray:
        """Return the distance of the similarity from its largest, of each model (column) on each rung (row)."""
        rungs = len(self.ladder)
        if self.ladder.has_one_resolution:
            return np.tile(self._replicas.losses(), (rungs, 1))
        positions = self._replicas.positions()
        found = np.zeros((rungs, rungs))
        for i in range(rungs):
            for j in range(max(i - 1, 0), min(i + 2, rungs)):
                found[i, j] = self._simulated.loss(i, positions[j])
        return found

    def _energies_without_density(self, positions: np.ndarray) -> np.ndarray:
        simulated = self._simulated
        if self._probe is None:
            integrator = openmm.VerletIntegrator(simulated.timestep)
            self._probe = simulated.context(simulated.system, integrator)
            self._probe.setParameter(simulated.fits[0].parameter_name, 0.0)
        energies = []
        set_ups = self._replicas.set_ups
        for rung, each in enumerate(positions):
            if set_ups:
                set_ups[rung](self._probe)
            self._probe.setPositions(each)
            energy = self._probe.getState(energy=True).getPotentialEnergy()
            energies.append(energy.value_in_unit(unit.kilojoule_per_mole))
        return np.array(energies)

    def _placed(self, positions: Any) -> np.ndarray:
        """Return the positions of each replica in nm, shape (R, N, 3)."""
        shape = (len(self.ladder), self._simulated.system.getNumParticles(), 3)
        placed = np.asarray(positions, dtype=np.float64)
        if placed.ndim != 3:
            placed = positions_in_angstrom(placed)[None]
        if placed.shape[1:] != shape[1:] or placed.shape[0] not in (1, shape[0]):
            raise InputError(
                "must be those of all particles, of one replica or of each",
                argument="positions",
                found=f"an array of shape {placed.shape}",
                remedy=f"give shape {shape[1:]} or {shape}",
            )
        return np.broadcast_to(placed / ANGSTROM_PER_NANOMETER, shape).copy()

    def _drawn_velocities(self, what_for: int) -> np.ndarray:
        """Draw velocities in nm/ps, shape (R, N, 3): others for each purpose, which a number names."""
        masses = masses_of(self._simulated.system)
        random = np.random.default_rng([self._seed, self.round, what_for])
        drawn = random.normal(size=(len(self.ladder), len(masses), 3))
        spread = np.sqrt(np.divide(_GAS_CONSTANT, masses, out=np.zeros_like(masses), where=masses > 0))
        return drawn * spread[None, :, None] * np.sqrt(self.ladder.temperatures)[:, None, None]

    def _layout(self, layout: str) -> str:
        simulated = self._simulated
        best = best_layout(simulated.platform, simulated.system, simulated.fits)
        if layout == "auto":
            return best
        if layout not in LAYOUTS:
            raise InputError(
                f"must be auto, {' or '.join(LAYOUTS)}",
                argument="layout",
                found=repr(layout),
                remedy="choose one of these",
            )
        return layout

    def _check_parameters(self) -> None:
        """Refuse parameters that no force has, and merged replicas whose flat groups nothing could hold flat."""
        simulated = self._simulated
        forces = [as_made(force) for force in simulated.system.getForces()]
        known = {name for force in forces for name in parameter_names(force)}
        for name in simulated.parameters:
            if name not in known - {simulated.fits[0].parameter_name}:
                raise InputError(
                    "must be Context parameters of the System, other than the density's",
                    argument="parameters",
                    found=f'"{name}"',
                    remedy=f"use some of {', '.join(sorted(known))}",
                )
        held_flat = any(force.getName() == PLANARITY for force in forces)
        if self._kind == "merged" and held_flat and simulated.planarity is None:
            raise InputError(
                "must be given, as the System holds flat groups flat and its replicas are merged",
                argument="planarity",
                remedy="give the PlanarityRestraint that made the force",
            )


def _check_parameter(system: openmm.System, owner: DensityFit | PlanarityRestraint, argument: str) -> None:
    """Refuse a System without the force that a density or restraint makes."""
    name = owner.parameter_name
    if not any(name in parameter_names(as_made(force)) for force in system.getForces()):
        raise InputError(
            f'must have a force in the System, which has no parameter "{name}"',
            argument=argument,
            remedy="add system.addForce(fit.create_force())",
        )


def _platform(
    platform: str | tuple[openmm.Platform, Mapping[str, str]],
) -> tuple[openmm.Platform, Mapping[str, str]]:
    if not isinstance(platform, str):
        return platform
    try:
        found = openmm.Platform.getPlatformByName(platform)
    except openmm.OpenMMException:
        raise InputError(
            "must be a platform of this OpenMM",
            argument="platform",
            found=f'"{platform}"',
            remedy=f"give its name, or {as_argument('platform')} with properties",
        ) from None
    wanted = {"Precision": "mixed", "DeterministicForces": "true", "Threads": "1"}
    return found, {name: value for name, value in wanted.items() if name in found.getPropertyNames()}
