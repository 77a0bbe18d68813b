"""A B factor for each residue, refined against a map: what one model has to explain motion with, and an ensemble beside it."""

from __future__ import annotations

import math

import numpy as np
import torch
from openmm import app
from scipy.optimize import minimize

from openmm_density.kernels import density as kernel

from ...energies.density_fit import DensityFit
from ...energies.ensemble_fit import EnsembleFit
from ...maps.model_density import B_PER_RESOLUTION

_LEAST, _MOST = -0.5, 3.0
"""What is added to the variance of an atom's density, in that of the resolution."""
_ROUNDS = 40
# A penalty on the mean square of what is added, in the correlation: where the map says nothing, nothing is added.
_PRIOR = 1e-4


def refined_b_factors(
    fit: DensityFit, topology: app.Topology, models: np.ndarray, weights: np.ndarray, resolution: float
) -> np.ndarray:
    """Return B of every atom in Å², shape (N,), with which these models correlate best with a map; one number for each
    residue.

    The same of all replicas. The density is that of the fit's Gaussians, whose variance σ² becomes σ² + u of the residue, and
    the gradient that of the kernel with respect to amplitudes and exponents. Returned is 8 d + 8π² u, the uniform B of every
    reported correlation with what the residue has beyond it. `models` (R, N, 3) in Å; `weights` (R,); `resolution`: d in Å.
    """
    residues = np.array([atom.residue.index for atom in topology.atoms()])
    base = B_PER_RESOLUTION * resolution
    if fit.gaussians.amplitudes.shape[1] != 1:
        return np.full(len(residues), base)
    problem = _Widths(fit, models, weights, residues)
    start = np.zeros(topology.getNumResidues())
    found = minimize(
        problem.loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(_LEAST, _MOST)] * len(start),
        options={"maxiter": _ROUNDS},
    )
    added = 8 * math.pi**2 * found.x * fit.sigma**2
    return np.maximum(base + added[residues], 1.0)


class _Widths:
    """The loss of widths by residue: 1 − the correlation about the mean over the target's voxels, and a penalty."""

    def __init__(
        self, fit: DensityFit, models: np.ndarray, weights: np.ndarray, residues: np.ndarray
    ) -> None:
        ensemble = EnsembleFit(fit, len(models), weights)
        self._module = module = ensemble.create_module()
        fitted = [fit.fitted_positions(each) for each in models]
        self._positions = torch.cat(fitted)
        of_atom = torch.from_numpy(weights).to(torch.float32).index_select(0, module.replicas)[:, None]
        self._amplitudes = module.amplitudes * of_atom
        self._variance = 0.5 / module.exponents
        self._residues = torch.from_numpy(np.tile(residues[fit.atoms], len(models)))
        self._counted = torch.isfinite(module.target)
        target = module.target[self._counted].double()
        self._target = target - target.mean()
        self._square = (self._target**2).sum()
        self._scale = (fit.sigma / 10) ** 2

    def loss(self, added: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its gradient with respect to what is added to the variances, in that of the resolution."""
        module = self._module
        u = torch.from_numpy(added.copy()).requires_grad_()
        more = (self._scale * u).to(torch.float32).index_select(0, self._residues)[:, None]
        variance = self._variance + more
        amplitudes = self._amplitudes * (self._variance / variance) ** 1.5
        density = kernel.density_splat(
            self._positions,
            amplitudes,
            0.5 / variance,
            1.5 * module.cutoff,
            module.matrix,
            module.origin,
            list(module.target.shape),
        )
        chosen = density[self._counted].double()
        chosen = chosen - chosen.mean()
        correlation = (chosen * self._target).sum() / torch.sqrt((chosen**2).sum() * self._square)
        loss = 1 - correlation + _PRIOR * (u**2).mean()
        loss.backward()
        return float(loss.detach()), u.grad.numpy().copy()
