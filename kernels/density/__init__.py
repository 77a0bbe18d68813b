"""Density of a model on a grid, its gradients, and its similarity to a target with the forces that follow.

An atom at **x** contributes to the voxel at **r**, with s = (**r** − **x**)² and s_c = cutoff²::

    f(s) = Σ_c A_c exp(−α_c s)
    ρ(s) = f(s) − f(s_c) − f′(s_c)(s − s_c)   for s < s_c, and 0 beyond

so that value and slope vanish at the cut-off: every gradient here is the exact derivative of a continuously differentiable
function. Any unit of length serves, as long as positions, cutoff, matrix and origin share it and exponents are in its inverse
square. The grid may be orthogonal or triclinic, finite, or periodic (then each atom contributes with all of its images).

Atoms with a NaN or infinite coordinate, or out of reach of the grid, contribute nothing and have no gradient.

The stages of `density_similarity`, in the order of the data::

                              CPU, by similarity.h, tile by tile       GPU, by gpu.py, kernel by kernel
    the grid's geometry       footprints.h: Plan                       gpu_tiles.py: begin (store_geometry, and clears buffers)
    atoms onto the grid       grid.h, footprints.h                     gpu_atoms.py: place
    tiles and their atoms     tile_lists.h: make_plan                  gpu_tiles.py: mark, scan; gpu_atoms.py: fill, arrange
    density (splat)           spheres.h: splat_atom                    gpu_splat.py: splat
    sums over voxels          measures.h: sweep_tile                   gpu_measures.py: store_tile_sums (within splat)
    forces of each field      spheres.h: gather_atom (before S)
    S, coefficients of ∂S/∂ρ  measures.h: similarity_of                gpu_measures.py: compare
    ∂S/∂ρ per voxel           (never formed)                           gpu_measures.py: differentiate
    forces (gather)           similarity.h: fields by coefficients     gpu_gather.py: gather_forces

`density_splat` ends after the density. `density_gather` has a field in place of the density: on the CPU it takes the first three
stages and then gathers (spheres.h: gather_atom, or gather_all_of_atom if parameters are differentiated too); on the GPU it is
`begin` and gpu_gather.py: gather_all, which needs no tiles.

The oracle of all of it is ``reference.py``, with the measures' formulas in ``measures.py``; the tests are
``tests/kernels/test_density.py`` and ``test_density_gpu.py``; a simulation calls it in ``openmm_density/energies/modules.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..autograd import scaled, with_derivative
from ..library import LIBRARY, define
from . import measures, reference
from .measures import *  # noqa: F403  (the constant of every measure, and target_moments)

__all__ = ["density_gather", "density_similarity", "density_splat", "measures", *measures.__all__]


def density_splat(
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    shape: list[int],
    periodic: bool = False,
) -> Tensor:
    """Sum the atoms' densities on a grid.

    Differentiable with respect to positions, amplitudes and exponents, and through the latter two with respect to whatever
    they are made of (B factors, occupancies).

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
    amplitudes, exponents : Tensor, shape (N, C), float32
        A_c and α_c of up to five Gaussians; a Gaussian that an atom does not have gets amplitude 0.
    cutoff : float
        Radius beyond which an atom contributes nothing.
    matrix : Tensor, shape (3, 3), float64
        Its columns are the steps from voxel to voxel along x, y and z.
    origin : Tensor, shape (3,), float64
        Where voxel (0, 0, 0) is.
    shape : list of int
        (nz, ny, nx).
    periodic : bool
        Whether the grid is one cell of a crystal.

    Returns
    -------
    Tensor, shape (nz, ny, nx), float32
    """
    return torch.ops.openmm_density.density_splat(
        positions, amplitudes, exponents, cutoff, matrix, origin, shape, periodic
    )


def density_gather(
    gradient: Tensor,
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool = False,
    parameters: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate Σ gradient·density over the voxels, the adjoint of `density_splat`.

    Parameters
    ----------
    gradient : Tensor, shape (nz, ny, nx), float32
        A weight for each voxel, such as ∂S/∂ρ.
    positions, amplitudes, exponents, cutoff, matrix, origin, periodic
        As for `density_splat`.
    parameters : bool
        Whether to differentiate with respect to amplitudes and exponents too. If not, their derivatives have shape (N, 0).

    Returns
    -------
    tuple of Tensor
        The derivatives with respect to positions (N, 3), amplitudes (N, C) and exponents (N, C).
    """
    return torch.ops.openmm_density.density_gather(
        gradient, positions, amplitudes, exponents, cutoff, matrix, origin, periodic, parameters
    )


def density_similarity(
    positions: Tensor,
    atoms: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    target: Tensor,
    moments: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    measure: int,
    total_weight: float,
) -> tuple[Tensor, Tensor]:
    """Compare a model's density ρ with a target t, and differentiate with respect to the positions.

    `openmm_density.kernels.density.measures` has the formulas of S. Its sums run over the voxels in which the target is finite,
    whether an atom reaches them or not.

    Autograd differentiates S with respect to the positions alone, and once. It does not know the operator itself,
    ``torch.ops.openmm_density.density_similarity``, which is what a module for a simulation calls, with the factor (``scale``, a
    float64 tensor of one number) that turns the gradient into forces.

    Without any density in the map S is 0 (for the relative entropy, its constant with ρ = 0) and the gradient is 0. Both
    are 0 for a target that the measure cannot use: a constant one, or for the relative entropy one without any t > 0.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Of all particles.
    atoms : Tensor, shape (M,), int64
        The particles that have density, each at most once.
    amplitudes, exponents : Tensor, shape (M, C), float32
    cutoff : float
    target : Tensor, shape (nz, ny, nx), float32, contiguous
        NaN or infinity marks a voxel that does not count.
    moments : Tensor
        ``target_moments(target)``.
    matrix, origin, periodic
        As for `density_splat`.
    measure : int
        CROSS_CORRELATION, …: one of the constants of `measures`.
    total_weight : float
        W: the sum of a complete ρ over the voxels, that is the atoms' total integral over the volume of a voxel. Only the inner
        product and the relative entropy use it.

    Returns
    -------
    similarity : Tensor, shape (), float64
    gradient : Tensor, shape (N, 3)
        ∂S/∂positions in the dtype of the positions, 0 for particles that are not among the atoms.
    """
    with torch.no_grad():
        similarity, gradient = torch.ops.openmm_density.density_similarity(
            positions,
            atoms,
            amplitudes,
            exponents,
            cutoff,
            target,
            moments,
            matrix,
            origin,
            periodic,
            measure,
            total_weight,
        )
    return with_derivative(similarity, gradient, positions), gradient


def _reference_splat(*arguments: Any) -> Tensor:
    return reference.density_splat(*arguments).to(torch.float32)


def _reference_gather(
    gradient: Tensor,
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    parameters: bool = True,
) -> tuple[Tensor, ...]:
    x, a, alpha = reference.density_gather(
        gradient, positions, amplitudes, exponents, cutoff, matrix, origin, periodic
    )
    kept = amplitudes.shape[1] if parameters else 0
    return x.to(positions.dtype), a[:, :kept].to(torch.float32), alpha[:, :kept].to(torch.float32)


def _reference_similarity(
    positions: Tensor,
    atoms: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    target: Tensor,
    moments: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    measure: int,
    total_weight: float,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    similarity, gradient = reference.density_similarity(
        positions,
        atoms,
        amplitudes,
        exponents,
        cutoff,
        target,
        matrix,
        origin,
        periodic,
        measure,
        total_weight,
    )
    return similarity, scaled(gradient.to(positions.dtype), scale)


_MODEL = "Tensor positions, Tensor amplitudes, Tensor exponents, float cutoff"
_GRID = "Tensor matrix, Tensor origin"

define(f"density_splat({_MODEL}, {_GRID}, int[] shape, bool periodic) -> Tensor", "density", _reference_splat)
define(
    f"density_gather(Tensor gradient, {_MODEL}, {_GRID}, bool periodic, bool parameters=True) -> "
    "(Tensor, Tensor, Tensor)",
    "density",
    _reference_gather,
)
define(
    "density_similarity(Tensor positions, Tensor atoms, Tensor amplitudes, Tensor exponents, float cutoff, Tensor target, "
    f"Tensor moments, {_GRID}, bool periodic, int measure, float total_weight, Tensor? scale=None) -> (Tensor, Tensor)",
    "density",
    _reference_similarity,
)


def _keep_for_splat(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    positions, amplitudes, exponents, ctx.cutoff, matrix, origin, _, ctx.periodic = inputs
    ctx.save_for_backward(positions, amplitudes, exponents, matrix, origin)


def _splat_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    positions, amplitudes, exponents, matrix, origin = ctx.saved_tensors
    parameters = any(ctx.needs_input_grad[1:3])
    x, a, alpha = density_gather(
        gradient.contiguous(),
        positions,
        amplitudes,
        exponents,
        ctx.cutoff,
        matrix,
        origin,
        ctx.periodic,
        parameters,
    )
    return x, *((a, alpha) if parameters else (None, None)), None, None, None, None, None


torch.library.register_autograd(
    "openmm_density::density_splat", _splat_backward, setup_context=_keep_for_splat, lib=LIBRARY
)
