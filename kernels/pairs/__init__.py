"""Energies of pairs of atoms from a neighbour list: energy, gradient and virial of all in one pass.

With r the distance of a pair's atoms, p and p′ their parameters (three numbers each) and s the settings of the form,

    E = Σ f(r, p, p′, s)        over the listed pairs with r below the cut-off that are not excluded.

==================  ==============  ======================  ====================================================
form                p               s                       f
==================  ==============  ======================  ====================================================
``LENNARD_JONES``   σ, ε            switch begins           4 √(ε ε′) (q¹² − q⁶) S(r), q = ½ (σ + σ′)/r
``REACTION_FIELD``  charge          C, dielectric           C p p′ (1/r + k r² − c), C of Coulomb's law
``NONBONDED``       σ, ε, charge    switch, C, dielectric   both of these
``SOFT_REPULSION``  radius, k                               ½ √(k k′) (R + R′ − r)² for r below R + R′
``MORSE``           half r₀, D, a   switch begins           √(D D′) (e⁻²ˣ − 2 e⁻ˣ) S(r), x = ½ (a + a′)(r − r₀)
``FLAT_BOTTOM``     half r₀, k, ½ w                         ½ √(k k′) (|r − r₀| − w)² outside of r₀ ± w
==================  ==============  ======================  ====================================================

S(r) = 1 − 10 t³ + 15 t⁴ − 6 t⁵ with t from 0 where the switch begins to 1 at the cut-off, and 1 throughout where it begins
there; k = (ε − 1)/(2 ε + 1)/r_c³ and c = 3 ε/(2 ε + 1)/r_c with ε the dielectric constant and r_c the cut-off. Forms without a
switch end at the cut-off as they are: choose it beyond where they are 0, or accept the step.

`mate_contacts` (``mates.py``) sums the same energies between a unit and its images by operators, without a list.

Sources: the switch and the reaction field are those of OpenMM's NonbondedForce (OpenMM User Guide, §19.6); Morse, Phys. Rev. 34,
57 (1929).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..autograd import with_derivative, with_scale
from ..library import LIBRARY, define
from . import reference
from .forms import FLAT_BOTTOM, LENNARD_JONES, MORSE, NONBONDED, REACTION_FIELD, SETTINGS, SOFT_REPULSION

__all__ = [
    "FLAT_BOTTOM",
    "LENNARD_JONES",
    "MORSE",
    "NONBONDED",
    "REACTION_FIELD",
    "SETTINGS",
    "SOFT_REPULSION",
    "mate_contacts",
    "pack_exclusions",
    "pairs",
]

_PAIRS = define(
    "pairs(Tensor positions, Tensor? box, Tensor offsets, Tensor neighbors, Tensor shifts, Tensor parameters, int form, "
    "float cutoff, float[] settings, Tensor? excluded_offsets=None, Tensor? excluded=None, bool both_ways=False) "
    "-> (Tensor energy, Tensor gradient, Tensor virial)",
    "pairs",
    reference.pairs,
)


def pairs(
    positions: Tensor,
    box: Tensor | None,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    parameters: Tensor,
    form: int,
    cutoff: float,
    settings: list[float],
    excluded_offsets: Tensor | None = None,
    excluded: Tensor | None = None,
    both_ways: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum the energy of all listed pairs, its gradient and its virial; callable from TorchScript.

    The same input gives the same bits, with any number of threads. No pair has a force larger than 10⁹, and one whose atoms are
    too near for float32 to have a number for its energy adds nothing. With each pair once, a GPU adds gradients up as whole
    numbers, in units of 2⁻²⁴; with each pair twice nothing is added up in memory, which is faster there and slower on a CPU.
    Only the positions are differentiable, and once: ``energy.backward()`` adds ``gradient`` to theirs.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms, in any unit of length.
    box : Tensor, shape (3, 3), float32 or float64, or None
        Lattice vectors, in rows.
    offsets, neighbors, shifts : Tensor
        A list of `openmm_density.kernels.neighbors`; it may hold pairs beyond the cut-off.
    parameters : Tensor, shape (N, 3), float32
        p of every atom; what a form does not use is not looked at.
    form : int
        Which function of r.
    cutoff : float
        Pairs at this distance or beyond add nothing.
    settings : list of float
        s, of three numbers or fewer: all that the form uses, for a switch the distance at which it begins, or the cut-off
        without one.
    excluded_offsets, excluded : Tensor, optional
        As `pack_exclusions` returns them: pairs that add nothing, whichever image of the second atom it is.
    both_ways : bool, optional
        Whether the list has each pair twice, in the rows of both its atoms.

    Returns
    -------
    energy : Tensor, shape (), float64
    gradient : Tensor, shape (N, 3), of the positions' type
        Of the energy with respect to the positions: the negative of the forces.
    virial : Tensor, shape (3, 3), float64
        Σ **d** ⊗ **f**, with **d** the vector from the first atom to the second and **f** the force on the second: the
        negative of the derivative of the energy by strain.

    Raises
    ------
    ValueError
        If a shape, type or number is not as above. Within TorchScript it is a RuntimeError.
    """
    with torch.no_grad():
        energy, gradient, virial = torch.ops.openmm_density.pairs(
            positions,
            box,
            offsets,
            neighbors,
            shifts,
            parameters,
            form,
            cutoff,
            settings,
            excluded_offsets,
            excluded,
            both_ways,
        )
    return with_derivative(energy, gradient, positions), gradient, virial


def pack_exclusions(excluded_pairs: Any, n_atoms: int) -> tuple[Tensor, Tensor]:
    """Return pairs that are excluded, as the tables of the operator, on the CPU.

    Parameters
    ----------
    excluded_pairs : array_like of int, shape (E, 2)
        In either direction, and maybe more than once.
    n_atoms : int

    Returns
    -------
    excluded_offsets : Tensor, shape (N + 1,), int32
        Atom a is excluded with those in ``excluded`` from ``excluded_offsets[a]`` up to ``excluded_offsets[a + 1]``.
    excluded : Tensor, shape (at most 2 E,), int32

    Raises
    ------
    ValueError
        If an index is not that of an atom.
    """
    given = np.asarray(excluded_pairs, dtype=np.int64).reshape(-1, 2)
    outside = given[(given < 0) | (given >= n_atoms)]
    if outside.size:
        raise ValueError(
            f"atom {outside[0]} is excluded from something, but indices run from 0 to {n_atoms - 1}"
        )
    both = np.unique(np.concatenate([given, given[:, ::-1]]), axis=0)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n_atoms))])
    return torch.from_numpy(offsets.astype(np.int32)), torch.from_numpy(both[:, 1].astype(np.int32))


@torch.library.register_fake(_PAIRS, lib=LIBRARY)
def _shapes(positions: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    scalars = {"dtype": torch.float64}
    return (
        positions.new_empty((), **scalars),
        positions.new_empty(positions.shape),
        positions.new_empty((3, 3), **scalars),
    )


_CONTACTS = define(
    "mate_contacts(Tensor positions, Tensor parameters, Tensor images, Tensor excluded, float cutoff, "
    "float[] settings, Tensor? scale=None) -> (Tensor energy, Tensor gradient)",
    "pairs",
    with_scale(reference.mate_contacts),
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
def _shapes_of_contacts(positions: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return positions.new_empty((), dtype=torch.float64), positions.new_empty(positions.shape)
