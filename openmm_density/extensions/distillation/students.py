"""The students: networks of one molecule that learn a teacher's energies and forces."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openmm_density.kernels import compilation

from ...energies import PaiNN
from ...energies.painn_network import PaiNNNetwork
from .ligand import Ligand

# Of the loss: forces say nearly all, and with 100 times this weight they are learned half as well; energies keep the zero of
# conformers that no path of small forces joins.
_ENERGY_WEIGHT = 2e-4
# nm: along so much of a typical force on an atom, an energy changes by what counts as 1.
_ENERGY_UNIT = 0.002
# In standard deviations of the forces: larger errors count by their size, not by its square, so that few bad geometries of
# 1000 K do not drive everything.
_HUBER = 0.5
_LARGEST_GRADIENT = 5.0
# nm: the gradient is then right to 1e-3, and to 4e-2 with ten times as much; with half of it float32 begins to tell.
_DIFFERENCE_STEP = 1e-4
_WARM_UP_STEPS = 20
_AVERAGED_STEPS = 100
_EVALUATED_AT_ONCE = 16
# s, after which an interruption is seen.
_LOOKED_UP_AFTER = 0.2
CURVE_STEPS = 25
"""Steps of which one point of a learning curve is the mean."""


@dataclass(frozen=True)
class TrainingData:
    """Geometries and what the teacher says of them."""

    positions: np.ndarray  # (M, n, 3), nm
    energies: np.ndarray  # (M,), kJ/mol
    forces: np.ndarray  # (M, n, 3), kJ/mol/nm

    def __len__(self) -> int:
        return len(self.energies)

    def joined(self, other: TrainingData) -> TrainingData:
        """Return both together."""
        return TrainingData(
            np.concatenate([self.positions, other.positions]),
            np.concatenate([self.energies, other.energies]),
            np.concatenate([self.forces, other.forces]),
        )


class Student:
    """A network, and the running mean of its weights, which is what is used: it errs less than any of them.

    `data` of which the zero of energies and the scale of forces are taken; `settings` of `PaiNNNetwork`, without the
    elements; `seed` of the first weights, and of the order in which geometries are learned. Attributes: `averaged` of
    the running mean; `curve`: steps of training, and the mean loss of the `CURVE_STEPS` before.
    """

    def __init__(self, ligand: Ligand, data: TrainingData, settings: dict[str, Any], seed: int) -> None:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            self.network = PaiNNNetwork(ligand.elements, **settings)
        self._spread = float(data.forces.std())
        self.network.mean_energy.fill_(float(data.energies.mean()))
        # kJ/mol of the last layer: a tenth of a nanometre along a typical force.
        self.network.scale.fill_(0.1 * self._spread)
        self.averaged = PaiNNNetwork(ligand.elements, **settings)
        self.averaged.load_state_dict(self.network.state_dict())
        self.averaged.requires_grad_(False)
        self._random = np.random.default_rng(seed)
        self._n_steps = 0
        self.curve: list[tuple[int, float]] = []

    def learn(
        self,
        data: TrainingData,
        n_steps: int,
        rate: float,
        batch: int,
        tell: Callable[[int], None] | None = None,
    ) -> float:
        """Train with a rate that falls to nothing along half a cosine; return the mean loss of the last steps."""
        # Around the origin, where float32 has most digits.
        positions = torch.as_tensor(data.positions - data.positions.mean(1, keepdims=True))
        energies, forces = torch.as_tensor(data.energies), torch.as_tensor(data.forces)
        optimizers = _optimizers(self.network)
        order, losses = np.empty(0, dtype=int), []
        for step in range(n_steps):
            if len(order) < batch:
                order = np.concatenate([order, self._random.permutation(len(data))])
            chosen, order = torch.as_tensor(order[:batch]), order[batch:]
            falling = 0.5 * (1 + math.cos(math.pi * step / n_steps))
            now = rate * min(1.0, (step + 1) / _WARM_UP_STEPS) * (0.01 + 0.99 * falling)
            loss, differentiable = self._loss(positions[chosen], energies[chosen], forces[chosen])
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = now
                optimizer.zero_grad(set_to_none=True)
            differentiable.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), _LARGEST_GRADIENT)
            for optimizer in optimizers:
                optimizer.step()
            self._average()
            losses.append(loss)
            if tell is not None:
                tell(step)
        if not losses:
            return math.nan
        for first in range(0, n_steps, CURVE_STEPS):
            mean = torch.stack(losses[first : first + CURVE_STEPS]).mean()
            self.curve.append((self._n_steps - n_steps + min(first + CURVE_STEPS, n_steps), float(mean)))
        return self.curve[-1][1]

    def _loss(self, positions: Tensor, energies: Tensor, forces: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and what has its gradient by the weights, -(dE/dw at x + h v - dE/dw at x - h v)/2h with v = dL/dF."""
        found = _evaluated(self.network, positions.numpy())
        predicted, pushed = (torch.as_tensor(each).requires_grad_(True) for each in found)
        off = (pushed - forces) / self._spread
        # Per root of the number of atoms, as thermal energies spread.
        unit = _ENERGY_UNIT * self._spread * math.sqrt(positions.shape[1])
        errors = (predicted - energies) / unit
        loss = nn.functional.smooth_l1_loss(off, torch.zeros_like(off), beta=_HUBER)
        loss = loss + _ENERGY_WEIGHT * nn.functional.smooth_l1_loss(
            errors, torch.zeros_like(errors), beta=_HUBER
        )
        by_energies, by_forces = torch.autograd.grad(loss, [predicted, pushed])
        # Per geometry, so that the atom that goes furthest goes as far as the step.
        longest = by_forces.norm(dim=-1).amax(-1).clamp_min(torch.finfo(torch.float64).tiny)
        step = _DIFFERENCE_STEP / longest[:, None, None] * by_forces
        ahead, behind = self.network(torch.cat([positions + step, positions - step]).float()).chunk(2)
        slope = (ahead - behind) * (longest / (2 * _DIFFERENCE_STEP))
        return loss.detach(), (by_energies * (ahead + behind) / 2 - slope).sum()

    def _average(self) -> None:
        self._n_steps += 1
        weight = 1 - min(1 - 1 / _AVERAGED_STEPS, self._n_steps / (self._n_steps + 10))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.averaged.parameters()), [each.data for each in self.network.parameters()], weight
            )


def _optimizers(network: nn.Module) -> list[torch.optim.Optimizer]:
    """Return Muon (Jordan et al. 2024) for matrices, where torch has it: two thirds of Adam's steps; and Adam for the rest."""
    matrices, others = [], []
    for name, each in network.named_parameters():
        is_matrix = each.ndim == 2 and min(each.shape) > 1 and "embedding" not in name
        (matrices if is_matrix else others).append(each)
    muon = getattr(torch.optim, "Muon", None)
    if muon is None:
        return [torch.optim.Adam(network.parameters())]
    return [
        muon(matrices, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.Adam(others),
    ]


class Committee:
    """Students of one molecule, `threads` learning side by side: their mean is the potential, their disagreement its doubt."""

    def __init__(self, students: list[Student], threads: int = 1) -> None:
        self.students = students
        self._threads = threads

    def learn(
        self,
        data: TrainingData,
        n_steps: int,
        rate: float,
        batch: int,
        tell: Callable[[int], None] | None = None,
    ) -> float:
        """Train all; return their mean loss. ``tell`` is called with the number of steps that all have done together."""
        done = [0] * len(self.students)

        def run(number: int) -> float:
            torch.set_num_threads(1)

            def count(step: int) -> None:
                if stopped:
                    raise _Stopped
                done[number] = step + 1
                if tell is not None:
                    tell(sum(done))

            return self.students[number].learn(data, n_steps, rate, batch, count)

        stopped: list[bool] = []
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(self._threads)
        try:
            waiting = [pool.submit(run, number) for number in range(len(self.students))]
            # Not in one wait: a signal that another thread receives would not end it.
            while wait(waiting, _LOOKED_UP_AFTER).not_done:
                pass
            return float(np.mean([each.result() for each in waiting]))
        finally:
            # Of an interrupted run: students stop at their next step.
            stopped.append(True)
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)

    def forces_of(self, number: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function from positions (B, n, 3) in nm to one student's forces in kJ/mol/nm."""
        return lambda positions: _evaluated(self.students[number].averaged, positions)[1]

    def mean_forces(self, positions: np.ndarray) -> np.ndarray:
        """Return the mean of all students' forces in kJ/mol/nm, shape (B, n, 3)."""
        return self.evaluate(positions)[1].mean(0)

    def evaluate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return energies in kJ/mol, shape (K, M), and forces in kJ/mol/nm, shape (K, M, n, 3), of each student."""
        found = [_evaluated(student.averaged, positions) for student in self.students]
        return np.stack([energies for energies, _ in found]), np.stack([forces for _, forces in found])


class _Stopped(Exception):
    """Raised in a student's thread where the run was interrupted."""


def _evaluated(network: PaiNNNetwork, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return energies (M,) and forces (M, n, 3): by kernels where they can be compiled, which take a tenth of autograd's time."""
    if not compilation.load("messages"):
        return _by_autograd(network, positions)
    painn = PaiNN(network)
    energies, forces = np.empty(len(positions)), np.empty(positions.shape)
    for k, each in enumerate(torch.as_tensor(np.ascontiguousarray(positions), dtype=torch.float64)):
        energy, force = painn(each)
        energies[k], forces[k] = float(energy), force.numpy()
    return energies, forces


def _by_autograd(network: PaiNNNetwork, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    energies, forces = [], []
    for each in torch.as_tensor(positions, dtype=torch.float32).split(_EVALUATED_AT_ONCE):
        some = each.clone().requires_grad_(True)
        with torch.enable_grad():
            energy = network(some)
            (gradient,) = torch.autograd.grad(energy.sum(), some)
        energies.append(energy.detach())
        forces.append(-gradient)
    return torch.cat(energies).numpy(), torch.cat(forces).double().numpy()
