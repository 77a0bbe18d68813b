"""The last minimisation of conformers takes place in ideal geometry: copies of atoms have the terms of their originals."""

from __future__ import annotations

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.conformers.refinement import StiffnessAsked
from openmm_density.extensions.crystal_fit.refined_atoms import RefinedAtoms
from openmm_density.fitting.final_geometry import EXCESS_PARAMETERS
from openmm_density.fitting.fit_systems import RESTRAINT_GROUP
from openmm_density.fitting.written_atoms import input_b_factors, written_alternates
from openmm_density.models.chemistry.monomers.library import TABLE

from ...contexts import context_of, forces_of


def shaken(positions):
    return positions + np.random.default_rng(0).normal(scale=0.1, size=positions.shape)


def forces_by_kind(system, positions):
    """Return the forces (N, 3) of each kind in the group of restraints, with stiffer bonds and angles."""
    held = {force.getName() for force in system.getForces() if force.getForceGroup() == RESTRAINT_GROUP}
    kinds = sorted(held)
    for force in system.getForces():
        force.setForceGroup(1 + kinds.index(force.getName()) if force.getName() in held else 0)
    context = context_of(system, positions)
    for name in EXCESS_PARAMETERS:
        context.setParameter(name, 1.0)
    return {kind: forces_of(context, groups={1 + number}) for number, kind in enumerate(kinds)}


def test_each_copy_has_the_terms_of_its_original(two_conformers):
    """Of planes, contacts and all else: its forces are those of a model that has it in the place of its original."""
    systems, result = two_conformers.fit._systems, two_conformers.result
    copies, n = result.conformers.copies, len(result.final)
    positions = shaken(result.conformers.positions)
    moved = result.with_found(conformers=result.conformers.moved(positions))
    both = forces_by_kind(systems.at_rest_of(moved), positions)
    for label, atoms in (("A", copies.others.originals), ("B", n + np.arange(len(copies)))):
        model = copies.positions_of(positions, label)
        alone = forces_by_kind(systems.at_rest(None, model, stiff=True)[0], model)
        assert alone.keys() == both.keys() and len(alone) > 6
        for kind, forces in alone.items():
            expected = forces[copies.others.originals]
            np.testing.assert_allclose(both[kind][atoms], expected, rtol=1e-3, atol=1e-2, err_msg=kind)
        acting = [kind for kind in alone if np.abs(both[kind][atoms]).max() > 1.0]
        assert {"IdealGeometryRestraint", "ContactRestraint", "CustomAngleForce"} <= set(acting)


def test_bonds_of_either_conformer_ask_for_more_stiffness(two_conformers):
    found = two_conformers.result.conformers
    stiffness = StiffnessAsked(found.copies)
    for atoms in (found.copies.others.originals, found.copies.n_atoms + np.arange(len(found.copies))):
        positions = found.positions.copy()
        positions[atoms] = shaken(positions[atoms])
        assert (stiffness(positions) > stiffness(found.positions)).all()


def test_dictionaries_tell_what_is_ideal_in_conformers(two_conformers, tmp_path):
    found, longer = two_conformers.result.conformers, tmp_path / "longer.cif"
    atoms = list(found.copies.others.topology.atoms())
    table = gemmi.cif.read(str(TABLE))
    document = gemmi.cif.Document()
    listed = document.add_new_block("comp_list").init_loop("_chem_comp.", ["id", "group"])
    for name in {atoms[k].residue.name for k in found.copies.others.originals}:
        listed.add_row([name, "peptide"])
        block = document.add_copied_block(table.find_block(f"comp_{name}"))
        for row in block.find("_chem_comp_bond.", ["value_dist_nucleus"]):
            row[0] = str(1.1 * float(row[0]))
    document.write_file(str(longer))
    bonds, told = (StiffnessAsked(found.copies, given)(found.positions)[0] for given in ((), longer))
    assert told > bonds


def test_those_refined_against_amplitudes_are_those_that_are_written(two_conformers):
    result, alternates = two_conformers.result, written_alternates(two_conformers.result)
    refined, found = RefinedAtoms.of(result), result.conformers
    copied = found.copies.others.alternates
    assert len(refined.in_file) == len(result.prepared.model.positions) + (copied >= 0).sum()
    further = refined.in_file[refined.in_file >= len(result.final)] - len(result.final)
    assert (copied[further] >= 0).all() and len(further) == len(set(copied[further]))
    np.testing.assert_array_equal(
        refined.atoms.positions[len(result.final) :], found.positions[len(result.final) :]
    )
    again = refined.with_b_factors(result, refined.b_factors + np.arange(len(refined.b_factors)))
    given, now = alternates.b_factors, written_alternates(again).b_factors
    rigid = np.setdiff1d(np.arange(len(given)), copied)
    assert len(rigid) and (now[rigid] == given[rigid]).all()
    added = now[copied[further]] - given[copied[further]]
    assert added == pytest.approx(len(result.final) + further)
    has = result.prepared.prepared_index >= 0
    assert (input_b_factors(again) - input_b_factors(result))[has] == pytest.approx(
        result.prepared.prepared_index[has]
    )
