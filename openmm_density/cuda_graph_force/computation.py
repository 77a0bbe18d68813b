"""An energy module with what it takes: evaluated on the CPU, and written as text."""

from __future__ import annotations

import base64
import io
import json
from typing import NamedTuple

import numpy as np
import torch

from .slots import BOX, STRENGTHS

_EXTRA = "computation.json"


class Computation(NamedTuple):
    """An energy module, and what it takes.

    Attributes
    ----------
    module : Module
        ``module(positions, [box,] strength) -> (energy, forces)``, see `openmm_density.energies.modules`.
    particles : ndarray, shape (M,), or None
        The particles whose positions the module takes; None for all.
    periodic : bool
        Whether it takes box vectors.
    n_strengths : int
        How many strengths it takes: a number where there is one, else a vector of them.
    """

    module: torch.nn.Module
    particles: np.ndarray | None
    periodic: bool
    n_strengths: int = 1

    def inputs(self, positions: torch.Tensor, parameters: torch.Tensor) -> list[torch.Tensor]:
        """Return what the module is called with: positions, box and strengths, the latter two in the memory of the parameters."""
        box = [parameters[BOX].view(3, 3)] if self.periodic else []
        strengths = parameters[STRENGTHS : STRENGTHS + self.n_strengths]
        return [positions, *box, strengths[0] if self.n_strengths == 1 else strengths]


def evaluate(
    computation: Computation, positions: np.ndarray, parameters: np.ndarray, forces: np.ndarray
) -> float:
    """Evaluate a module on the CPU, write its forces (kJ/mol/nm) over those of its particles, and return its energy in kJ/mol.

    Parameters
    ----------
    computation : Computation
    positions : ndarray, shape (N, 3), float64
        Of all particles, in nm.
    parameters : ndarray, shape (P,), float64
        See `slots`.
    forces : ndarray, shape (N, 3), float64
        Zero.
    """
    chosen = slice(None) if computation.particles is None else computation.particles
    check_indices(computation.particles, len(positions))
    taken = torch.from_numpy(positions[chosen].copy())
    with torch.no_grad():
        energy, found = computation.module(*computation.inputs(taken, torch.from_numpy(parameters)))
    forces[chosen] = found.numpy()
    return float(energy)


def check_indices(particles: np.ndarray | None, n_particles: int) -> None:
    """Refuse a System that lacks some of the particles whose positions a module takes.

    Raises
    ------
    ValueError
        Naming both.
    """
    if particles is not None and len(particles) and particles.max() >= n_particles:
        raise ValueError(
            f"the force was made of a topology with an atom {particles.max()}, but the System has {n_particles} particles: "
            "make it of the topology of the Simulation, such as modeller.topology, with all its particles."
        )


def packed(computation: Computation) -> str:
    """Write a computation as text."""
    particles = None if computation.particles is None else [int(i) for i in computation.particles]
    told = {
        "particles": particles,
        "periodic": computation.periodic,
        "n_strengths": computation.n_strengths,
    }
    extra = {_EXTRA: json.dumps(told)}
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(computation.module), file, _extra_files=extra)
    return base64.b64encode(file.getvalue()).decode()


def unpacked(text: str) -> Computation:
    """Read a computation from text."""
    found = {_EXTRA: ""}
    module = torch.jit.load(
        io.BytesIO(base64.b64decode(text, validate=True)), map_location="cpu", _extra_files=found
    )
    extra = json.loads(found[_EXTRA])
    particles = None if extra["particles"] is None else np.array(extra["particles"], dtype=np.int64)
    return Computation(module, particles, extra["periodic"], extra.get("n_strengths", 1))
