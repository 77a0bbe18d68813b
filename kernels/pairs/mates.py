"""Contacts of a unit with its images: energies of pairs of which one atom is in a copy that operators make, without a list.

With x_i the atoms of the unit, x′ = R_g x + t_g its images, and f the energy of a pair in the form ``NONBONDED``,

    E = ½ Σ_g Σ_ij f(|x_i − x′_gj|),        ∂E/∂x_i = Σ_g Σ_j ∂f/∂x_i.

The gradient is that of E where with each operator its inverse is among the images, as it is in a crystal, a closed assembly,
and a helix that goes on to both sides. It is then what acts on one copy in the system of all copies, and E the part of
its energy that is one copy's.

Nearer than .6 of the mean σ of two atoms f goes on along its tangent there (some 10³ times ε, which no simulation visits): atoms
that begin in each other's place are driven apart by a force that can be integrated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..autograd import scaled, with_derivative
from ..library import LIBRARY, define
from . import mates_reference


def _reference(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: Sequence[float],
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    energy, gradient = mates_reference.mate_contacts(
        positions, parameters, images, excluded, cutoff, settings
    )
    return energy, scaled(gradient, scale)


_CONTACTS = define(
    "mate_contacts(Tensor positions, Tensor parameters, Tensor images, Tensor excluded, float cutoff, "
    "float[] settings, Tensor? scale=None) -> (Tensor energy, Tensor gradient)",
    "pairs",
    _reference,
)


def mate_contacts(
    positions: Tensor,
    parameters: Tensor,
    images: Tensor,
    excluded: Tensor,
    cutoff: float,
    settings: list[float],
) -> tuple[Tensor, Tensor]:
    """Sum half the energy of all pairs of the unit's atoms with those of its images, and what acts on the unit.

    The same input gives the same bits, with any number of threads: a GPU adds up whole numbers, in units of 2⁻²⁴, and no program
    adds more than 10⁹ to an energy or a component. Only the positions are differentiable, and once.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms of the unit, in any unit of length. One that is not finite, or beyond 10¹⁸, has no contacts.
    parameters : Tensor, shape (N, 3), float32
        σ, ε and charge of each; those without ε and charge have no contacts.
    images : Tensor, shape (G, 3, 4), float64
        R and, in the last column, t of each image; the identity must not be among them.
    excluded : Tensor, shape (E, 3), int32
        Pairs that add nothing, in ascending order: the atom, the image, and the atom there, as across an element of symmetry.
    cutoff : float
    settings : list of float
        Where the switch begins (the cut-off: there is none), Coulomb's constant (0: no charges), and the dielectric constant of
        the reaction field.

    Returns
    -------
    energy : Tensor, shape (), float64
    gradient : Tensor, shape (N, 3), of the positions' type

    Raises
    ------
    ValueError
        If a shape, type or number is not as above. Within TorchScript it is a RuntimeError.
    """
    with torch.no_grad():
        energy, gradient = torch.ops.openmm_density.mate_contacts(
            positions, parameters, images, excluded, cutoff, settings
        )
    return with_derivative(energy, gradient, positions), gradient


@torch.library.register_fake(_CONTACTS, lib=LIBRARY)
def _shapes(positions: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return positions.new_empty((), dtype=torch.float64), positions.new_empty(positions.shape)
