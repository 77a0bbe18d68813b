"""The energy of a pair as a function of its distance, in Triton: forms.py has the same in float64, __init__.py the formulas."""

# No annotations from __future__: Triton reads those of its kernels.
from collections.abc import Sequence

import triton
import triton.language as tl

from . import forms

LENNARD_JONES = tl.constexpr(forms.LENNARD_JONES)
REACTION_FIELD = tl.constexpr(forms.REACTION_FIELD)
NONBONDED = tl.constexpr(forms.NONBONDED)
SOFT_REPULSION = tl.constexpr(forms.SOFT_REPULSION)
MORSE = tl.constexpr(forms.MORSE)
FLAT_BOTTOM = tl.constexpr(forms.FLAT_BOTTOM)


def numbers_of(form: int, cutoff: float, settings: Sequence[float]) -> tuple[float, ...]:
    """Return what is the same for all pairs: cut-off, switch, Coulomb's constant and the reaction field's two."""
    switch_begin, per_switch, coulomb, k, c = cutoff, 0.0, 0.0, 0.0, 0.0
    if form in (forms.LENNARD_JONES, forms.NONBONDED, forms.MORSE) and settings[0] < cutoff:
        switch_begin, per_switch = settings[0], 1 / (cutoff - settings[0])
    if form in (forms.REACTION_FIELD, forms.NONBONDED):
        coulomb, dielectric = settings[int(form == forms.NONBONDED) :][:2]
        k = (dielectric - 1) / (2 * dielectric + 1) / cutoff**3
        c = 3 * dielectric / (2 * dielectric + 1) / cutoff
    return float(cutoff) ** 2, float(switch_begin), float(per_switch), float(coulomb), float(k), float(c)


@triton.jit
def with_constant(a0, a1, a2, coulomb, FORM: tl.constexpr):
    """Return the shares of a row's atom times Coulomb's constant, which goes with its charge."""
    if FORM == NONBONDED:
        a2 *= coulomb
    elif FORM == REACTION_FIELD:
        a0 *= coulomb
    return a0, a1, a2


@triton.jit
def _root(x):
    # With its sign: of two negative numbers the product of the roots is the root of the product.
    root = tl.sqrt(tl.abs(x))
    return tl.where(x < 0.0, -root, root)


@triton.jit
def shares(p0, p1, p2, FORM: tl.constexpr):
    """Return an atom's shares in the parameters of its pairs: half of a mean, and the root of a product's factor."""
    if FORM == LENNARD_JONES or FORM == NONBONDED:  # noqa: SIM109 (Triton has no "in")
        # The root of 4 √(ε ε′) is the product of both: each has 2.
        return 0.5 * p0, 2.0 * _root(p1), p2
    elif FORM == REACTION_FIELD:
        return p0, p1, p2
    elif FORM == MORSE:
        return p0, _root(p1), 0.5 * p2
    else:
        return p0, _root(p1), p2


@triton.jit
def _switched(energy, slope, r, switch_begin, per_switch):
    t = tl.maximum((r - switch_begin) * per_switch, 0.0)
    t2 = t * t
    value = 1.0 + t2 * t * (-10.0 + t * (15.0 - 6.0 * t))
    rest = t - t2
    return energy * value, slope * value + (-30.0 * per_switch) * (rest * rest) * (energy * r)


@triton.jit
def _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch):
    q = (a0 + b0) * per_r
    q2 = q * q
    attraction = (a1 * b1) * (q2 * q2 * q2)
    energy = attraction * (q2 * q2 * q2) - attraction
    return _switched(energy, -12.0 * energy - 6.0 * attraction, r, switch_begin, per_switch)


@triton.jit
def pair_energy_of_shares(
    squared, per_r, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, FORM: tl.constexpr
):
    """Return energies of pairs, and their derivatives by the distance over the distance, from squared distances and `shares`."""
    r = squared * per_r
    if FORM == LENNARD_JONES:
        energy, by_log = _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch)
        slope = by_log * (per_r * per_r)
    elif FORM == REACTION_FIELD:
        product, field = (a0 * b0) * coulomb, k * squared
        energy = product * (per_r + (field - c))
        slope = product * (2.0 * field - per_r) * (per_r * per_r)
    elif FORM == NONBONDED:
        energy, by_log = _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch)
        product, field = (a2 * b2) * coulomb, k * squared
        energy += product * (per_r + (field - c))
        slope = (by_log + product * (2.0 * field - per_r)) * (per_r * per_r)
    elif FORM == SOFT_REPULSION:
        beyond = tl.maximum(a0 + b0 - r, 0.0)
        constant = a1 * b1
        energy, slope = 0.5 * constant * beyond * beyond, -constant * beyond * per_r
    elif FORM == MORSE:
        steepness, depth = a2 + b2, a1 * b1
        decay = tl.exp(-steepness * (r - a0 - b0))
        energy = depth * decay * (decay - 2.0)
        by_log = 2.0 * depth * steepness * decay * (1.0 - decay) * r
        energy, by_log = _switched(energy, by_log, r, switch_begin, per_switch)
        slope = by_log * (per_r * per_r)
    elif FORM == FLAT_BOTTOM:
        away = r - a0 - b0
        beyond = tl.maximum(tl.abs(away) - a2 - b2, 0.0)
        constant = a1 * b1
        energy = 0.5 * constant * beyond * beyond
        slope = tl.where(away > 0.0, constant * beyond, -constant * beyond) * per_r
    return energy, slope


@triton.jit
def pair_energy(
    r, per_r, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, FORM: tl.constexpr
):
    """Return energies of pairs, and their derivatives by the distance over the distance, from atoms' parameters."""
    a0, a1, a2 = shares(a0, a1, a2, FORM)
    b0, b1, b2 = shares(b0, b1, b2, FORM)
    return pair_energy_of_shares(
        r * r, per_r, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, FORM
    )
