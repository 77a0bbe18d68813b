"""Maps of two torsions that follow each other, such as φ and ψ: energies on a periodic grid of angles, interpolated.

A term has five atoms, a handedness s = ±1 and one of several maps. With φ the torsion of its first four atoms and ψ that of its
last four, in radians from −π to π (IUPAC's sign),

    E = Σ map(s φ, s ψ).

A map is given by its values at the nodes −π + 2π i/n, and is the periodic bicubic spline through them: in every cell the bicubic
polynomial that has the value f, the slopes f_φ and f_ψ and the cross derivative f_φψ of `spline_nodes` at its four corners. With
u in 0…1 the place in a cell and the derivatives in units of the cells,

    f(u, v) = Σ over corners i, j in {0, 1}:  f h_i(u) h_j(v) + f_φ g_i(u) h_j(v) + f_ψ h_i(u) g_j(v) + f_φψ g_i(u) g_j(v),
    h_1(u) = u² (3 − 2u),  h_0 = 1 − h_1,  g_0(u) = u (1 − u)²,  g_1(u) = u² (u − 1).

Value and slopes are continuous, across the edges of the map too. A term adds neither energy nor gradient where a torsion has no
value: three of its atoms on a line, within the rounding of float32, or one that is not finite.

Sources: the bicubic polynomial of four corners, Numerical Recipes §3.6; the derivative of a torsion, Blondel and Karplus,
J. Comput. Chem. 17, 1132 (1996).
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..autograd import with_derivative, with_scale
from ..library import define
from . import reference

__all__ = ["MappedTorsions", "pack_torsions", "spline_nodes", "torsion_maps"]

ATOMS_PER_TERM = reference.ATOMS_PER_TERM


define(
    "torsion_maps(Tensor positions, Tensor members, Tensor map_of_term, Tensor handedness, Tensor atom_offsets, "
    "Tensor atom_members, Tensor nodes, Tensor? scale=None) -> (Tensor energy, Tensor gradient)",
    "torsion_maps",
    with_scale(reference.torsion_maps),
)


class MappedTorsions(NamedTuple):
    """Terms, flattened for the operator: ``torsion_maps(positions, *torsions, nodes)``.

    With T terms, and A one more than the highest index of an atom:

    Attributes
    ----------
    members : Tensor, shape (T, 5), int32
        The atoms of each term.
    map_of_term : Tensor, shape (T,), int32
        Which of the maps it has.
    handedness : Tensor, shape (T,), float32
        s, 1 or −1.
    atom_offsets : Tensor, shape (A + 1,), int32
        Atom a is listed in ``atom_members`` from ``atom_offsets[a]`` up to ``atom_offsets[a + 1]``.
    atom_members : Tensor, shape (5 T,), int32
        Where each atom stands in ``members``, flattened.
    """

    members: Tensor
    map_of_term: Tensor
    handedness: Tensor
    atom_offsets: Tensor
    atom_members: Tensor


def torsion_maps(
    positions: Tensor,
    members: Tensor,
    map_of_term: Tensor,
    handedness: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    nodes: Tensor,
) -> tuple[Tensor, Tensor]:
    """Sum the energy of all terms and its gradient; callable from TorchScript.

    The same input gives the same bits for every number of threads. Only the positions are differentiable, and once:
    ``energy.backward()`` adds ``gradient`` to theirs.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms, in any unit of length.
    members, map_of_term, handedness, atom_offsets, atom_members : Tensor
        As `pack_torsions` returns them, on the device of the positions.
    nodes : Tensor, shape (K, n, n, 4), float32
        As `spline_nodes` returns them, on that device too.

    Returns
    -------
    energy : Tensor, shape (), float64
        In the unit of the maps.
    gradient : Tensor, shape (N, 3), of the positions' type
        Of the energy with respect to the positions, contiguous: the negative of the forces.

    Raises
    ------
    ValueError
        If a shape or type is not as above, or an index is not that of an atom or a map. Within TorchScript it is a RuntimeError.
    """
    with torch.no_grad():
        energy, gradient = torch.ops.openmm_density.torsion_maps(
            positions, members, map_of_term, handedness, atom_offsets, atom_members, nodes
        )
    return with_derivative(energy, gradient, positions), gradient


def pack_torsions(
    atoms: Any, map_of_term: Any, handedness: Any, n_atoms: int | None = None
) -> MappedTorsions:
    """Return terms as the tables of the operator.

    Parameters
    ----------
    atoms : array_like of int, shape (T, 5)
    map_of_term : array_like of int, shape (T,)
    handedness : array_like, shape (T,)
        1 or −1.
    n_atoms : int, optional
        The number of atoms, to check the indices now and not at the first evaluation.

    Returns
    -------
    MappedTorsions
        On the CPU.

    Raises
    ------
    ValueError
        If a shape is not as above, an index is negative or not below ``n_atoms``, or a handedness is neither 1 nor −1.
    """
    members = np.asarray(atoms, dtype=np.int64).reshape(-1, ATOMS_PER_TERM)
    maps, signs = np.asarray(map_of_term, dtype=np.int64), np.asarray(handedness, dtype=np.float32)
    if not maps.shape == signs.shape == (len(members),):
        raise ValueError(
            f"{len(members)} terms need one map and one handedness each, but these have the shapes {maps.shape} and {signs.shape}"
        )
    limit = np.iinfo(np.int32).max if n_atoms is None else n_atoms
    outside = members[(members < 0) | (members >= limit)]
    if outside.size:
        raise ValueError(f"the terms hold atom index {outside[0]}, but indices run from 0 to {limit - 1}")
    if not np.isin(signs, (-1.0, 1.0)).all():
        raise ValueError("every handedness must be 1 or -1")
    flat = members.ravel()
    return MappedTorsions(
        members=torch.from_numpy(members.astype(np.int32)),
        map_of_term=torch.from_numpy(maps.astype(np.int32)),
        handedness=torch.from_numpy(signs),
        atom_offsets=torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(flat))]).astype(np.int32)),
        atom_members=torch.from_numpy(np.argsort(flat, kind="stable").astype(np.int32)),
    )


def spline_nodes(values: Any) -> Tensor:
    """Return the nodes of the periodic bicubic splines through the values of maps.

    Parameters
    ----------
    values : array_like, shape (K, n, n)
        Of K maps, by φ and ψ at −π + 2π i/n.

    Returns
    -------
    Tensor, shape (K, n, n, 4), float32
        f, f_φ, f_ψ and f_φψ, the derivatives in units of the grid's cells.

    Raises
    ------
    ValueError
        If the shape is not as above, or a value is not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 3 or values.shape[1] != values.shape[2] or values.shape[1] < 3:
        raise ValueError(f"maps must have the shape (maps, n, n), n at least 3, but have {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("the values of maps must be finite")
    along_phi, along_psi = _slopes(values, 1), _slopes(values, 2)
    nodes = np.stack([values, along_phi, along_psi, _slopes(along_phi, 2)], axis=-1)
    return torch.from_numpy(nodes.astype(np.float32))


def _slopes(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the slopes, per cell, of periodic cubic splines along an axis."""
    # To import it takes as long as all of this package, and most that imports the operators makes no maps.
    from scipy.interpolate import CubicSpline

    n = values.shape[axis]
    closed = np.concatenate([values, values.take([0], axis)], axis)
    return CubicSpline(np.arange(n + 1), closed, axis, bc_type="periodic")(np.arange(n), 1)
