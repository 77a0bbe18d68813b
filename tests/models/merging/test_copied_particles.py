"""Copies of particles feel what their originals would feel in their places, and nothing of these."""

from __future__ import annotations

import copy

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.base.errors import InputError
from openmm_density.models import prepare
from openmm_density.models.merging import CopiedParticles, add_copies
from openmm_density.restraints import make_restraints

from ...fragments import fragment
from .test_merged_system import energy_and_forces, shaken


@pytest.fixture(scope="module", params=["none", "obc", "gbn2"])
def peptide(request, tmp_path_factory):
    """A System with our restraints, its positions (nm), and the atoms of a side chain with those whose torsions turn it."""
    path = tmp_path_factory.mktemp("peptide") / "8.pdb"
    prepared = prepare(fragment(path, residues=8), solvent=request.param)
    system = prepared.system(constraints=None, rigidWater=False)
    for restraint in make_restraints(
        "chirality,cis,ramachandran,rotamers", prepared.topology, prepared.positions
    ):
        system.addForce(restraint.create_force())
    residue = list(prepared.topology.residues())[3]
    kept = ("N", "CA", "C", "O", "H", "HA", "CB")
    originals = np.array([atom.index for atom in residue.atoms() if atom.name not in kept])
    return system, prepared.positions / 10, originals, request.param


def copied(system, originals, weight=None):
    n, k = system.getNumParticles(), len(originals)
    weights = np.ones(n + k)
    if weight is not None:
        weights[originals], weights[n:] = 1 - weight, weight
    apart = np.array([(a, n + b) for a in originals for b in range(k)])
    return CopiedParticles(originals, ("B",) * k, weights, apart)


def test_forces_are_those_of_a_model_in_either_place(peptide):
    """Without weights: of ordinary Systems, in which the side chain is where the originals are, or where the copies are."""
    system, positions, originals, solvent = peptide
    if solvent != "none":
        pytest.skip("spheres that displace solvent see each other")
    both = copy.deepcopy(system)
    add_copies(both, copied(system, originals))
    n, others = len(positions), np.setdiff1d(np.arange(len(positions)), originals)
    found, ordinary = [], []
    for seed in (1, 2):
        places, moved = shaken(positions[originals], seed), positions.copy()
        moved[originals] = places
        found.append(energy_and_forces(both, np.concatenate([positions, places])))
        ordinary.append(energy_and_forces(system, moved))
        np.testing.assert_allclose(found[-1][1][n:], ordinary[-1][1][originals], rtol=1e-6, atol=1e-4)
    at_home = energy_and_forces(system, positions)[1]
    np.testing.assert_allclose(found[0][1][originals], at_home[originals], rtol=1e-6, atol=1e-4)
    # What the others do to each other cancels.
    (energy, forces), (energy_2, forces_2) = found
    (alone, forces_alone), (alone_2, forces_alone_2) = ordinary
    assert energy - energy_2 == pytest.approx(alone - alone_2, abs=1e-4)
    np.testing.assert_allclose(
        (forces - forces_2)[others], (forces_alone - forces_alone_2)[others], rtol=1e-6, atol=1e-4
    )


def test_an_atom_with_copies_has_its_charge_once(peptide):
    system, positions, originals, solvent = peptide
    both = copy.deepcopy(system)
    add_copies(both, copied(system, originals, weight=0.3))
    for force, before in zip(both.getForces(), system.getForces()):
        if isinstance(force, (openmm.NonbondedForce, openmm.GBSAOBCForce, openmm.CustomGBForce)):
            charges, given = (
                [
                    float(each.getParticleParameters(k)[0] / unit.elementary_charge)
                    if unit.is_quantity(each.getParticleParameters(k)[0])
                    else each.getParticleParameters(k)[0]
                    for k in range(each.getNumParticles())
                ]
                for each in (force, before)
            )
            assert sum(charges) == pytest.approx(sum(given), abs=1e-9)
            assert charges[len(given)] == pytest.approx(0.3 * given[originals[0]])
    energy, forces = energy_and_forces(both, np.concatenate([positions, shaken(positions[originals], 3)]))
    assert np.isfinite(energy) and np.isfinite(forces).all()
    # Coulomb of what is in the same place, by parts of the charge, is that of the one atom, but for what a conformer has within.
    others = np.setdiff1d(np.arange(len(positions)), originals)
    if solvent == "none":
        exceptions = next(f for f in both.getForces() if isinstance(f, openmm.NonbondedForce))
        products = {}
        for k in range(exceptions.getNumExceptions()):
            a, b, product, *_ = exceptions.getExceptionParameters(k)
            products[min(a, b), max(a, b)] = product._value
        given = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
        n = len(positions)
        for k in range(given.getNumExceptions()):
            a, b, product, *_ = given.getExceptionParameters(k)
            one = [atom for atom in (a, b) if atom in originals]
            if len(one) == 1:
                other = a if one[0] == b else b
                assert other in others
                twin = n + int(np.flatnonzero(originals == one[0])[0])
                total = products[min(a, b), max(a, b)] + products[min(other, twin), max(other, twin)]
                assert total == pytest.approx(product._value, abs=1e-12)


def test_a_force_that_cannot_have_copies_is_named():
    system = openmm.System()
    system.addParticle(1.0)
    system.addForce(openmm.CMMotionRemover())
    with pytest.raises(InputError, match="CMMotionRemover cannot have copies of particles"):
        add_copies(system, CopiedParticles(np.array([0]), ("B",), np.ones(2), np.empty((0, 2), dtype=int)))
