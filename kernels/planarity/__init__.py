"""Planarity of groups of atoms: the negative log likelihood of their distances from a plane.

A plane of atoms with coordinates x, standard deviations σ and weights w = 1/σ² (sums run over its atoms) has

    c = Σ w x / Σ w                           its centroid,
    C = Σ w (x − c)(x − c)ᵀ,  C n = λ₁ n      its normal, |n| = 1, λ₁ the smallest eigenvalue,
    d = n·(x − c)                             the distances from it,
    E = Σ ½ (d/σ)² = ½ λ₁                     its energy, in units of kT,
    ∂E/∂x = (d/σ²) n                          the gradient of that.

With ``constants``, E also holds Σ (ln σ + ½ ln 2π) and is the negative log likelihood of Gaussian distances.

**Why the gradient is exact.** Of all points c and unit vectors n, those above make F(x, c, n) = ½ Σ w (n·(x − c))²
smallest, so that E(x) = min F, and by the chain rule

    dE/dx = ∂F/∂x + (∂F/∂c)(dc/dx) + (∂F/∂n)(dn/dx) = ∂F/∂x = w d n.

∂F/∂c = −n Σ w d is 0 for the weighted centroid. ∂F/∂n = C n = λ₁ n is normal to dn, since n keeps its length. Both hold
only because the fit and the energy have the **same** weights: with a σ per atom and a plane fitted without
them, holding n fixed is wrong by tens of per cent. The same two conditions say that a plane has no net force, Σ w d = 0,
and no net torque, n × Σ w d (x − c) = n × C n = 0. With one σ in a plane, c and n are the ordinary centroid and normal,
and w d n is the usual [d/σ² − mean(d/σ²)] n.

**Where there is no plane.** E = ½ λ₁ is continuous everywhere, and no atom's gradient is longer than √(2E)/σ: both go to
zero as the atoms approach a line. Atoms on a line (λ₂ ≤ COLLINEARITY_LIMIT λ₃: as wide as the rounding of float32), in one point,
or of which one is not finite add no energy and no gradient. Elsewhere E has a kink where λ₁ = λ₂, which is no flat
group: a regular tetrahedron is one.

Sources: the plane, Schomaker, Waser, Marsh and Bergman, Acta Cryst. 12, 600 (1959); the eigenvectors in C++, Jacobi's
method (Golub and Van Loan, Matrix Computations, §8.5).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..autograd import with_derivative, with_scale
from ..library import define
from . import reference

__all__ = ["COLLINEARITY_LIMIT", "SMALLEST_PLANE", "Planes", "deviations", "pack_planes", "planarity"]

SMALLEST_PLANE = reference.SMALLEST_PLANE
COLLINEARITY_LIMIT = reference.COLLINEARITY_LIMIT
deviations = reference.deviations

# Weights 1/σ² and their sums must stay within float32.
_SIGMA_RANGE = (1e-12, 1e12)


define(
    "planarity(Tensor positions, Tensor members, Tensor offsets, Tensor inverse_sigmas, "
    "Tensor atom_offsets, Tensor atom_members, bool constants=False, Tensor? scale=None) -> (Tensor energy, Tensor gradient)",
    "planarity",
    with_scale(reference.planarity),
)


class Planes(NamedTuple):
    """Planes of all sizes, flattened for the operator: ``planarity(positions, *planes)``.

    With P planes, M members in all, and A one more than the highest index of an atom:

    Attributes
    ----------
    members : Tensor, shape (M,), int32
        The atoms of the first plane, then of the second, ...
    offsets : Tensor, shape (P + 1,), int32
        Plane p has the members from ``offsets[p]`` up to ``offsets[p + 1]``.
    inverse_sigmas : Tensor, shape (M,), float32
        1/σ of every member.
    atom_offsets : Tensor, shape (A + 1,), int32
        Atom a is listed in ``atom_members`` from ``atom_offsets[a]`` up to ``atom_offsets[a + 1]``.
    atom_members : Tensor, shape (M,), int32
        Where each atom stands in ``members``.
    """

    members: Tensor
    offsets: Tensor
    inverse_sigmas: Tensor
    atom_offsets: Tensor
    atom_members: Tensor


def planarity(
    positions: Tensor,
    members: Tensor,
    offsets: Tensor,
    inverse_sigmas: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    constants: bool = False,
) -> tuple[Tensor, Tensor]:
    """Sum the planarity energy of all planes and its gradient; callable from TorchScript.

    The same input gives the same bits for every number of threads. Only the positions are differentiable, and
    once: ``energy.backward()`` adds ``gradient`` to theirs. Autograd does not know the operator itself,
    ``torch.ops.openmm_density.planarity``, which is what a module for a simulation calls.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms, in any unit of length.
    members, offsets, inverse_sigmas, atom_offsets, atom_members : Tensor
        As `pack_planes` returns them, on the device of the positions; σ in their unit of length.
    constants : bool
        Whether the energy holds Σ (ln σ + ½ ln 2π). Without it flat planes have no energy.

    Returns
    -------
    energy : Tensor, shape (), float64
        In units of kT.
    gradient : Tensor, shape (N, 3), of the positions' type
        Of the energy with respect to the positions, contiguous: the negative of the forces.

    Raises
    ------
    ValueError
        If a shape or type is not as above, an index is not that of an atom, or a plane has fewer than four
        members. Within TorchScript it is a RuntimeError.
    """
    with torch.no_grad():
        energy, gradient = torch.ops.openmm_density.planarity(
            positions, members, offsets, inverse_sigmas, atom_offsets, atom_members, constants
        )
    return with_derivative(energy, gradient, positions), gradient


def pack_planes(planes: Sequence[tuple[Any, Any]], n_atoms: int | None = None) -> Planes:
    """Flatten planes, grouped by size, into the tables of the operator.

    Planes are sorted by size, and those of one size keep their order, so that neighbours in the tables do the same work.

    Parameters
    ----------
    planes : sequence of (indices, sigmas)
        For each size n, ``indices`` of shape (P, n), the atoms of P planes, and their ``sigmas`` in the positions'
        unit of length: a number, one per plane (P,) or one per atom (P, n). A size may come more than once, and the
        sequence may be empty.
    n_atoms : int, optional
        The number of atoms, to check the indices now and not at the first evaluation.

    Returns
    -------
    Planes
        On the CPU.

    Raises
    ------
    ValueError
        If a plane has fewer than four atoms or one of them twice, an index is negative or not below ``n_atoms``,
        the shapes do not match, or a σ is not a positive number.
    """
    groups = sorted((_checked(*group, n_atoms) for group in planes), key=lambda group: group[0].shape[1])
    sizes = np.concatenate(
        [np.full(len(indices), indices.shape[1]) for indices, _ in groups] or [np.zeros(0, np.int64)]
    )
    members = np.concatenate([indices.ravel() for indices, _ in groups] or [np.zeros(0, np.int64)])
    sigmas = np.concatenate([sigma.ravel() for _, sigma in groups] or [np.zeros(0)])
    if members.size > np.iinfo(np.int32).max:
        raise ValueError(
            f"the planes have {members.size} members in all, but 2147483647 are the most that fit"
        )
    return Planes(
        members=torch.from_numpy(members.astype(np.int32)),
        offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)),
        inverse_sigmas=torch.from_numpy((1.0 / sigmas).astype(np.float32)),
        atom_offsets=torch.from_numpy(
            np.concatenate([[0], np.cumsum(np.bincount(members))]).astype(np.int32)
        ),
        atom_members=torch.from_numpy(np.argsort(members, kind="stable").astype(np.int32)),
    )


def _checked(indices: Any, sigmas: Any, n_atoms: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and sigmas of planes of one size, both (P, n); ValueError if they are not valid."""
    atoms = np.asarray(indices)
    sigma = np.asarray(sigmas, dtype=np.float64)
    if atoms.ndim != 2 or not (np.issubdtype(atoms.dtype, np.integer) or atoms.size == 0):
        raise ValueError(
            f"the indices of planes must be integers of shape (planes, atoms), but have shape {atoms.shape} "
            f"and type {atoms.dtype}: give one array for each size"
        )
    n_planes, size = atoms.shape
    if size < SMALLEST_PLANE:
        raise ValueError(
            f"a plane needs at least {SMALLEST_PLANE} atoms, but {n_planes} planes of {size} were given: "
            "leave them out"
        )
    if sigma.shape not in ((), (n_planes,), (n_planes, size)):
        raise ValueError(
            f"the sigmas of {n_planes} planes of {size} atoms must have shape (), ({n_planes},) or "
            f"({n_planes}, {size}), but have {sigma.shape}"
        )
    if sigma.ndim == 1:
        sigma = sigma[:, None]
    sigma = np.broadcast_to(sigma, atoms.shape)
    wrong = ~((sigma >= _SIGMA_RANGE[0]) & (sigma <= _SIGMA_RANGE[1]))
    if wrong.any():
        raise ValueError(
            f"every sigma must be a positive number from {_SIGMA_RANGE[0]:g} to {_SIGMA_RANGE[1]:g}, "
            f"but one is {sigma[wrong][0]:g}"
        )
    limit = np.iinfo(np.int32).max if n_atoms is None else n_atoms
    outside = (atoms < 0) | (atoms >= limit)
    if outside.any():
        raise ValueError(
            f"the planes hold atom index {atoms[outside][0]}, but indices run from 0 to {limit - 1}"
        )
    ordered = np.sort(atoms, axis=1)
    twice = ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]]
    if twice.size:
        raise ValueError(f"a plane holds atom index {twice[0]} twice: name every atom of a plane once")
    return atoms.astype(np.int64), sigma
