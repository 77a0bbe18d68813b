from __future__ import annotations

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.models import Model
from openmm_density.restraints import (
    DEFAULT_RESTRAINTS,
    RESTRAINTS,
    make_restraints,
    restraint_names,
)
from openmm_density.restraints.names import RELEASED_RESTRAINTS, RESTRAINT_NAMES
from openmm_density.restraints.pairs import AdaptivePairRestraint

from ..contexts import context_of, system_of
from .single_forces import assert_forces_are_the_gradient, context_with, copies_of, energy_at

KINDS = [(name, k) for name, kinds in RESTRAINTS.items() for k in range(len(kinds))]


@pytest.fixture(scope="module")
def twins(emd5925: Model, rna: Model) -> tuple:
    """Two copies, two waters and a piece of RNA."""
    topology, positions = copies_of(emd5925, 2)
    both = app.Modeller(topology, positions * unit.angstrom)
    both.add(rna.topology, (rna.positions + 40.0) * unit.angstrom)
    topology, positions = both.topology, np.array(both.positions.value_in_unit(unit.angstrom))
    chain = topology.addChain("W")
    for _ in range(2):
        topology.addAtom("O", app.element.oxygen, topology.addResidue("HOH", chain))
    return topology, np.concatenate([positions, positions[[20, 60]] + 3.0])


def test_protocols_know_the_names_of_all_restraints():
    assert tuple(RESTRAINTS) == RESTRAINT_NAMES


def test_restraints_that_are_meant_to_give_way_are_those_whose_energy_levels_off():
    levelling = {
        name
        for name, kinds in RESTRAINTS.items()
        for kind in kinds
        if issubclass(kind, AdaptivePairRestraint) or getattr(kind, "well", None)
    }
    assert levelling == set(RELEASED_RESTRAINTS)


@pytest.mark.parametrize(("name", "place"), KINDS)
def test_forces_are_the_gradient(twins, name: str, place: int) -> None:
    topology, positions = twins
    shaken = positions + np.random.default_rng(3).normal(scale=0.5, size=positions.shape)
    restraint = make_restraints(name, topology, positions)[place]
    for force in restraint.create_forces():
        # The kernel of planes computes in single precision.
        of_planes = name == "planarity" or not type(force).__name__.startswith("Custom")
        precision = {"step": 1e-4, "tolerance": 1e-3} if of_planes else {}
        assert_forces_are_the_gradient(force, shaken, **precision)


@pytest.mark.parametrize(("name", "place"), KINDS)
def test_force_constant_is_a_parameter(twins, name: str, place: int) -> None:
    topology, positions = twins
    kind = RESTRAINTS[name][place]
    restraint = kind(topology, positions, parameter_name="hold", force_group=5)
    shaken = positions + np.random.default_rng(3).normal(scale=0.5, size=positions.shape)
    for force, again in zip(restraint.create_forces(), restraint.create_forces()):
        assert (force.getForceGroup(), force.getName()) == (5, kind.__name__)
        assert force.getGlobalParameterName(0) == "hold"
        assert force.getGlobalParameterDefaultValue(0) == restraint.force_constant > 0
        read_back = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(force))
        context = context_with(read_back, len(positions))
        full = energy_at(context, shaken)
        assert full > 0 and energy_at(context_with(again, len(positions)), shaken) == full
        context.setParameter("hold", restraint.force_constant / 2)
        assert energy_at(context, shaken) == pytest.approx(full / 2, rel=1e-9)
        context.setParameter("hold", 0.0)
        assert energy_at(context, shaken) == 0


def test_all_in_one_system_on_a_model_read_by_others(emd5925: Model) -> None:
    topology = mdtraj.Topology.from_openmm(emd5925.topology)
    positions = emd5925.positions * unit.angstrom
    restraints = make_restraints(RESTRAINTS, topology, positions, force_group=3)
    assert [restraint.name for restraint in restraints] == [name for name, _ in KINDS]
    forces = [force for restraint in restraints for force in restraint.create_forces()]
    context = context_of(system_of(len(emd5925.positions), *forces))
    # What is ideal, flat or favoured does not depend on the start, and this model has atoms, residues and side chains elsewhere.
    context.setParameter("ideal_geometry_strength", 0.0)
    context.setParameter("planarity_strength", 0.0)
    assert energy_at(context, emd5925.positions) < 600
    context.setParameter("ramachandran_strength", 0.0)
    context.setParameter("rotamer_strength", 0.0)
    assert energy_at(context, emd5925.positions) < 5
    assert set(context.getParameters()) == {restraint.parameter_name for restraint in restraints}
    assert {force.getForceGroup() for force in context.getSystem().getForces()} == {3}


def test_names() -> None:
    assert restraint_names("default") == DEFAULT_RESTRAINTS
    assert restraint_names("none") == restraint_names("") == restraint_names([]) == ()
    assert restraint_names(" cis, ss ,cis") == ("cis", "ss")
    assert restraint_names(["default", "symmetry"]) == (*DEFAULT_RESTRAINTS, "symmetry")
    with pytest.raises(
        InputError,
        match=r'names must .*, found "helices": use planarity, ss, base-pairs, sugar-puckers, suites, chirality, cis',
    ):
        restraint_names("ss,helices")
    with pytest.raises(InputError, match="either"):
        restraint_names("none,ss")


def test_options_go_to_their_restraint(emd5925: Model) -> None:
    (elastic,) = make_restraints(
        "elastic",
        emd5925.topology,
        emd5925.positions,
        options={"elastic": {"force_constant": 20.0, "domains": "chain"}},
    )
    assert elastic.force_constant == 20 and elastic.n_domains == 1
    with pytest.raises(InputError, match='options for "distance"'):
        make_restraints("ss", emd5925.topology, emd5925.positions, options={"distance": {}})
