"""An energy module with what it takes: evaluated with torch on any device, and written as text."""

from __future__ import annotations

import base64
import binascii
import inspect
import io
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import forms
from .slots import BOX, STRENGTHS

_EXTRA = "computation.json"
_FORM = b"openmm-density form\n"


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
    foreign : bool
        Whether the module is a user's: it takes float32, each parameter on its own, and may return the energy alone.
    """

    module: torch.nn.Module
    particles: np.ndarray | None
    periodic: bool
    n_strengths: int = 1
    foreign: bool = False


class Evaluated(NamedTuple):
    """What a module computed: energy (float64, shape ()), forces (M, 3), and ∂E/∂strength of each, where that was asked for."""

    energy: Tensor
    forces: Tensor
    derivatives: Tensor | None


def evaluated(
    computation: Computation, positions: Tensor, parameters: Tensor, wants_derivatives: bool
) -> Evaluated:
    """Call a module on positions (M, 3) in nm and float64 parameters (P,), see `slots`; autograd finds missing forces."""
    by_autograd = computation.foreign or wants_derivatives
    # Autograd's own threads would not see what torch was told of this one's recording.
    with torch.set_grad_enabled(by_autograd), torch.autograd.set_multithreading_enabled(False):
        box = [parameters[BOX].view(3, 3)] if computation.periodic else []
        strengths = _strengths(computation, parameters)
        for each in strengths:
            each.requires_grad_(wants_derivatives)
        given = [*box, *strengths]
        if computation.foreign:
            positions = positions.detach().to(torch.float32).requires_grad_()
            given = [each.to(torch.float32) for each in given]
        energy, forces = _checked(computation.module(positions, *given), positions)
        derivatives = None
        if wants_derivatives:
            found = _gradients(energy, strengths, retain_graph=forces is None)
            derivatives = found[0].reshape(-1) if len(found) == 1 else torch.stack(found)
        if forces is None:
            forces = -_gradients(energy, [positions])[0]
        return Evaluated(energy.detach().to(torch.float64), forces.detach().contiguous(), derivatives)


def _strengths(computation: Computation, parameters: Tensor) -> list[Tensor]:
    """Return the strengths in the parameters' memory, one by one: autograd would differentiate parts by zeros and copies."""
    first, n = STRENGTHS, computation.n_strengths
    if computation.foreign or n == 1:
        return [parameters[i].detach() for i in range(first, first + n)]
    return [parameters[first : first + n].detach()]


def _gradients(energy: Tensor, of: list[Tensor], retain_graph: bool = False) -> tuple[Tensor, ...]:
    if not energy.requires_grad:
        return tuple(torch.zeros_like(each) for each in of)
    found = torch.autograd.grad(energy, of, retain_graph=retain_graph, allow_unused=True)
    return tuple(torch.zeros_like(each) if own is None else own for each, own in zip(of, found))


def _checked(returned: object, positions: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return energy and forces, the latter None where the module returns none."""
    energy, forces = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if (
        not isinstance(energy, Tensor)
        or energy.numel() != 1
        or not (forces is None or _are_forces(forces, positions))
    ):
        raise ValueError(
            "the module must return the energy as a tensor of one number, or that and forces of the shape "
            f"{tuple(positions.shape)}, not {_described(returned)}"
        )
    return energy.reshape(()), forces


def _are_forces(forces: object, positions: Tensor) -> bool:
    return isinstance(forces, Tensor) and forces.shape == positions.shape and forces.is_floating_point()


def _described(returned: object) -> str:
    if isinstance(returned, Tensor):
        return f"a tensor of the shape {tuple(returned.shape)}"
    if isinstance(returned, tuple):
        return f"({', '.join(_described(each) for each in returned)})"
    return type(returned).__name__


def evaluate(
    computation: Computation,
    positions: np.ndarray,
    parameters: np.ndarray,
    forces: np.ndarray,
    derivatives: np.ndarray | None = None,
) -> float:
    """Evaluate a module on the CPU, write its forces (kJ/mol/nm) over those of its particles, and return its energy in kJ/mol.

    `positions` float64 (N, 3) of all particles, in nm; `parameters` float64 (P,): see `slots`; `forces` float64 (N, 3):
    zero.
    """
    chosen = slice(None) if computation.particles is None else computation.particles
    check_particle_indices(computation.particles, len(positions))
    taken = torch.from_numpy(positions[chosen].copy())
    found = evaluated(computation, taken, torch.from_numpy(parameters), derivatives is not None)
    forces[chosen] = found.forces.numpy()
    if derivatives is not None and found.derivatives is not None:
        derivatives[:] = found.derivatives.numpy()
    return float(found.energy)


def indices_of(particles: Sequence[int] | np.ndarray | None) -> np.ndarray | None:
    """Return particles as int64; None for all."""
    if particles is None:
        return None
    found = np.asarray(particles)
    whole = found.ndim == 1 and (found.size == 0 or np.issubdtype(found.dtype, np.integer))
    if not whole or (found < 0).any() or len(np.unique(found)) != len(found):
        raise ValueError("particles must be indices from 0 on, each at most once")
    return found.astype(np.int64)


def check_particle_indices(particles: np.ndarray | None, n_particles: int) -> None:
    """Refuse a System that lacks some of the particles whose positions a module takes."""
    if particles is not None and len(particles) and particles.max() >= n_particles:
        raise ValueError(
            f"the force was made of a topology with an atom {particles.max()}, but the System has {n_particles} particles: "
            "make it of the topology of the Simulation, such as modeller.topology, with all its particles."
        )


def check_forward(computation: Computation) -> None:
    """Refuse a module whose ``forward`` cannot take what it will be called with."""
    n = 1 + computation.periodic + computation.n_strengths
    try:
        inspect.signature(computation.module.forward).bind(*range(n))
    except TypeError as error:
        taken = [
            "positions",
            *(["box"] if computation.periodic else []),
            *["a parameter"] * computation.n_strengths,
        ]
        raise TypeError(
            f"the module is called with ({', '.join(taken)}), but its forward has {error}"
        ) from None
    except ValueError:  # a callable that does not tell
        pass


def as_text(computation: Computation) -> str:
    """Write a computation as text: one of this package as its form, else as TorchScript."""
    particles = None if computation.particles is None else [int(i) for i in computation.particles]
    told = json.dumps({**computation._asdict(), "module": None, "particles": particles})
    form = None if computation.foreign else forms.form_of(computation.module)
    if form is not None:
        data = b"".join([_FORM, told.encode(), b"\n", forms.written(form)])
    else:
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(computation.module), file, _extra_files={_EXTRA: told})
        data = file.getvalue()
    return base64.b64encode(data).decode()


def from_text(text: str) -> Computation:
    """Read a computation from text."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the energy in the file is damaged ({error})") from error
    if data.startswith(_FORM):
        told, _, rest = data[len(_FORM) :].partition(b"\n")
        found = {_EXTRA: told}
        module = forms.module_of(forms.read(rest))
    else:
        found = {_EXTRA: ""}
        module = torch.jit.load(io.BytesIO(data), map_location="cpu", _extra_files=found)
    extra = json.loads(found[_EXTRA])
    try:
        particles = indices_of(extra["particles"])
    except ValueError as error:
        raise ValueError(f"the energy in the file is damaged ({error})") from error
    return Computation(
        module, particles, extra["periodic"], extra.get("n_strengths", 1), extra.get("foreign", False)
    )


def check_evaluates(computation: Computation) -> None:
    """Evaluate a module that was read from a file once, where no atom is: its operators refuse tables that are damaged."""
    n = computation.particles.size if computation.particles is not None else n_positions(computation.module)
    parameters = torch.zeros(STRENGTHS + computation.n_strengths, dtype=torch.float64)
    parameters[BOX] = torch.eye(3, dtype=torch.float64).reshape(-1)
    try:
        evaluated(computation, torch.full((n, 3), torch.nan, dtype=torch.float64), parameters, False)
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"the energy in the file is damaged ({str(error).splitlines()[0]})") from error


def n_positions(module: torch.nn.Module) -> int:
    """Return how many positions a module of this package takes."""
    own = getattr(module, "n_particles", None)
    return own if isinstance(own, int) else sum(module.sizes)  # type: ignore[arg-type, union-attr]
