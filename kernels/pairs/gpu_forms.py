"""The energy of a pair as a function of its distance, in Triton: forms.py has the same in float64, __init__.py the formulas."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl

from . import forms

LENNARD_JONES = tl.constexpr(forms.LENNARD_JONES)
REACTION_FIELD = tl.constexpr(forms.REACTION_FIELD)
NONBONDED = tl.constexpr(forms.NONBONDED)
SOFT_REPULSION = tl.constexpr(forms.SOFT_REPULSION)
MORSE = tl.constexpr(forms.MORSE)


@triton.jit
def _switched(energy, slope, r, per_r, switch_begin, per_switch):
    t = tl.maximum((r - switch_begin) * per_switch, 0.0)
    value = 1.0 + t * t * t * (-10.0 + t * (15.0 - 6.0 * t))
    rest = t - t * t
    by_r = rest * rest * (-30.0 * per_switch)
    return energy * value, slope * value + energy * (by_r * per_r)


@triton.jit
def _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch):
    q = (a0 + b0) * 0.5 * per_r
    q2 = q * q
    sixth = q2 * q2 * q2
    four = 4.0 * tl.sqrt(a1 * b1)
    energy, slope = four * sixth * (sixth - 1.0), four * sixth * (6.0 - 12.0 * sixth) * per_r * per_r
    return _switched(energy, slope, r, per_r, switch_begin, per_switch)


@triton.jit
def _coulomb(r, per_r, charges, coulomb, k, c):
    product = charges * coulomb
    return product * (per_r + (k * (r * r) - c)), product * (2.0 * k - per_r * (per_r * per_r))


@triton.jit
def pair_energy(
    r, per_r, a0, a1, a2, b0, b1, b2, switch_begin, per_switch, coulomb, k, c, FORM: tl.constexpr
):
    """Return energies of pairs, and their derivatives by the distance over the distance."""
    if FORM == LENNARD_JONES:
        energy, slope = _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch)
    elif FORM == REACTION_FIELD:
        energy, slope = _coulomb(r, per_r, a0 * b0, coulomb, k, c)
    elif FORM == NONBONDED:
        energy, slope = _lennard_jones(r, per_r, a0, a1, b0, b1, switch_begin, per_switch)
        electric, electric_slope = _coulomb(r, per_r, a2 * b2, coulomb, k, c)
        energy, slope = energy + electric, slope + electric_slope
    elif FORM == SOFT_REPULSION:
        beyond = tl.maximum(a0 + b0 - r, 0.0)
        constant = tl.sqrt(a1 * b1)
        energy, slope = 0.5 * constant * beyond * beyond, -constant * beyond * per_r
    elif FORM == MORSE:
        steepness, depth = 0.5 * (a2 + b2), tl.sqrt(a1 * b1)
        decay = tl.exp(-steepness * (r - a0 - b0))
        energy = depth * decay * (decay - 2.0)
        slope = 2.0 * depth * steepness * decay * (1.0 - decay) * per_r
        energy, slope = _switched(energy, slope, r, per_r, switch_begin, per_switch)
    else:
        away = r - a0 - b0
        beyond = tl.maximum(tl.abs(away) - a2 - b2, 0.0)
        constant = tl.sqrt(a1 * b1)
        energy = 0.5 * constant * beyond * beyond
        slope = tl.where(away > 0.0, constant * beyond, -constant * beyond) * per_r
    return energy, slope
