"""Atoms and maps whose density is timed, what the operators make of them, and the checks of that."""

from __future__ import annotations

from pathlib import Path

import gemmi
import numpy as np
import torch
from interleaved import compare
from openmm import app, unit
from torch import Tensor

from openmm_density import DensityFit
from openmm_density.energies.form_factors import form_factor_gaussians, resolution_gaussians
from openmm_density.kernels.density import (
    CROSS_CORRELATION,
    density_gather,
    density_similarity,
    density_splat,
    reference,
    target_moments,
)

EXAMPLES = Path(__file__).resolve().parents[1]
RADIUS = 4.5
RESOLUTION = 5.0
SIGMA = 1.125

# The largest difference over the largest value that the kernel's own rounding makes.
ROUNDING = 1e-4
# Of the largest force, between a map's voxels and coarser ones.
OTHER_VOXELS = 0.02

GRADIENT = "density + gradient"
DENSITY = "density"
SIMILARITY = "similarity + forces"


class RandomAtoms:
    """Atoms of carbon, nitrogen, oxygen and sulphur, uniformly at random in a periodic cell, B of 15 to 40 Å²."""

    def __init__(
        self,
        n_atoms: int,
        n_gaussians: int,
        size: int,
        voxel_size: float,
        angles: tuple[float, float, float] = (90.0, 90.0, 90.0),
    ) -> None:
        random = np.random.default_rng(0)
        edge = size * voxel_size
        self.cell = gemmi.UnitCell(edge, edge, edge, *angles)
        self.orthogonal = np.array(self.cell.orth.mat.tolist())
        self.positions = torch.from_numpy(random.random((n_atoms, 3)) @ self.orthogonal.T).to(torch.float32)
        self.elements = random.choice(["C", "N", "O", "S"], n_atoms, p=(0.62, 0.17, 0.2, 0.01))
        self.b_factors = torch.from_numpy(random.uniform(15, 40, n_atoms))
        self.n_gaussians = n_gaussians
        if n_gaussians == 1:
            weights = torch.tensor([gemmi.Element(element).weight for element in self.elements])
            gaussians = resolution_gaussians(weights, RESOLUTION)
        else:
            gaussians = form_factor_gaussians(
                list(self.elements), "electron", self.b_factors, torch.ones(n_atoms), 0.0
            )
        self.amplitudes, self.exponents = (x.to(torch.float32).contiguous() for x in gaussians)
        self.place = (torch.from_numpy(self.orthogonal / size), torch.zeros(3, dtype=torch.float64))
        self.shape = [size, size, size]
        self.weights = torch.from_numpy(random.standard_normal(self.shape, dtype=np.float32))
        moved = self.positions + torch.from_numpy(random.normal(0, 1, (n_atoms, 3))).to(torch.float32)
        self.target = self.splat(moved)
        self.moments = target_moments(self.target)
        self.atoms = torch.arange(n_atoms)

    def splat(self, positions: Tensor | None = None) -> Tensor:
        """Return the density."""
        x = self.positions if positions is None else positions
        return density_splat(x, self.amplitudes, self.exponents, RADIUS, *self.place, self.shape, True)

    def splat_and_gather(self) -> tuple[Tensor, Tensor]:
        """Return density and the gradient of the weights' sum with respect to the positions alone."""
        density = self.splat()
        gradient = density_gather(
            self.weights, self.positions, self.amplitudes, self.exponents, RADIUS, *self.place, True, False
        )
        return density, gradient[0]

    def similarity(self) -> tuple[Tensor, Tensor]:
        """Return similarity and gradient."""
        return density_similarity(
            self.positions, self.atoms, self.amplitudes, self.exponents, RADIUS, self.target, self.moments,
            *self.place, True, CROSS_CORRELATION, 1.0,
        )  # fmt: skip

    def check(self) -> dict[str, float]:
        """Compare splat and gather with the float64 reference on some atoms, and the fused operator with splat and gather."""
        some = slice(0, 100)
        model = (self.positions[some], self.amplitudes[some], self.exponents[some], RADIUS, *self.place)
        exact = reference.density_gather(self.weights, *model, True)[0]
        agreement = {
            "splat against reference": compare(
                "density_splat",
                density_splat(*model, self.shape, True),
                reference.density_splat(*model, self.shape, True),
                ROUNDING,
            ),
            "gather against reference": compare(
                "density_gather",
                density_gather(self.weights, *model, True)[0],
                exact,
                ROUNDING,
            ),
            "gather for positions alone": compare(
                "density_gather for positions alone",
                density_gather(self.weights, *model, True, False)[0],
                exact,
                ROUNDING,
            ),
        }
        gaussians = (self.amplitudes, self.exponents)
        similarity, gradient = in_two_passes(
            self.positions, gaussians, self.target, self.place, periodic=True
        )
        found_similarity, found_gradient = self.similarity()
        agreement["similarity against splat"] = compare("similarity", found_similarity, similarity, ROUNDING)
        # A model close to its target: forces are the small remainder of sums that nearly cancel.
        agreement["forces against gather"] = compare("its gradient", found_gradient, gradient, 10 * ROUNDING)
        return agreement


def adenylate_kinase() -> tuple[app.Topology, np.ndarray, np.ndarray]:
    """Return the open model's topology, and the positions of open and closed model within a box from 0 to 90 Å."""
    open_model, closed = (
        app.PDBFile(str(EXAMPLES / "data" / f"adk_{name}.pdb")) for name in ("open", "closed")
    )
    start, end = (
        np.asarray(model.getPositions(asNumpy=True).value_in_unit(unit.angstrom))
        for model in (open_model, closed)
    )
    both = np.concatenate([start, end])
    shift = 45.0 - (both.min(axis=0) + both.max(axis=0)) / 2
    return open_model.topology, start + shift, end + shift


def simulated(positions: np.ndarray, size: int, voxel_size: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the density at 5 Å of atoms of weight 1 on a grid from the origin on, and where the grid is."""
    place = (torch.eye(3, dtype=torch.float64) * voxel_size, torch.zeros(3, dtype=torch.float64))
    amplitudes, exponents = unit_gaussians(len(positions))
    shape = [size, size, size]
    return density_splat(
        torch.from_numpy(positions), amplitudes, exponents, RADIUS, *place, shape, False
    ), place


def unit_gaussians(n_atoms: int) -> tuple[Tensor, Tensor]:
    """Return Gaussians of weight 1 at 5 Å."""
    amplitudes, exponents = resolution_gaussians(torch.ones(n_atoms, dtype=torch.float64), RESOLUTION)
    return amplitudes.to(torch.float32), exponents.to(torch.float32)


def in_two_passes(
    positions: Tensor,
    gaussians: tuple[Tensor, Tensor],
    target: Tensor,
    place: tuple[Tensor, Tensor],
    *,
    periodic: bool = False,
    about_mean: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the correlation and its gradient by splat, sums in double precision, and gather: a check of the fused operator."""
    model = (positions, *gaussians, RADIUS, *place)
    density, t = density_splat(*model, list(target.shape), periodic).double(), target.double()
    if about_mean:
        density, t = density - density.mean(), t - t.mean()
    square = (density**2).sum()
    norm = torch.sqrt(square * (t**2).sum())
    similarity = (density * t).sum() / norm
    derivative = t / norm - similarity * density / square
    return similarity, density_gather(derivative.float(), *model, periodic)[0]


def forces_in_two_passes(fit: DensityFit, positions: np.ndarray, target: Tensor) -> np.ndarray:
    """Return ∂S/∂x in nm⁻¹ for positions in Å, with Gaussians of weight 1 at 5 Å."""
    fitted = torch.from_numpy(np.asarray(positions)[fit.atoms])
    place = (torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    _, gradient = in_two_passes(fitted, unit_gaussians(len(fitted)), target, place, about_mean=True)
    forces = np.zeros((len(positions), 3))
    forces[fit.atoms] = 10 * gradient.numpy()
    return forces
