"""The minimisations of a fit."""

import copy
from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from openmm import app

from openmm_density.base.errors import SimulationError
from openmm_density.base.units import positions_in_angstrom
from openmm_density.fitting.descent import descend
from openmm_density.fitting.final_geometry import EXCESS_PARAMETERS, RESTING_SCALES
from openmm_density.fitting.interrupts import Deadline
from openmm_density.fitting.minimization import MOST_PASSES, Minimizer
from openmm_density.fitting.stability import Safeguard
from openmm_density.models.chemistry.contacts import CLASH_OVERLAP
from openmm_density.restraints import IdealGeometryRestraint
from openmm_density.restraints.contacts import CONTACT_FORCE_CONSTANT, CONTACT_MARGIN, ContactRestraint

PREPARED = SimpleNamespace(model=SimpleNamespace(path="some.pdb"))


class Unguarded:
    """Runs what it is given once, as where nothing blows up."""

    def run(self, context, attempts):
        return attempts[0]()


class Stop:
    requested = True


class Going:
    requested = False


def context_of(energy="50*(x^4 + y^2 + z^2)", platform="Reference"):
    """A few particles in a valley, and a minimiser for them."""
    system = openmm.System()
    force = openmm.CustomExternalForce(energy)
    for index in range(5):
        system.addParticle(12.0)
        force.addParticle(index)
    system.addForce(force)
    chosen = openmm.Platform.getPlatformByName(platform)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), chosen)
    context.setPositions(np.linspace(1.0, 3.0, 15).reshape(5, 3))
    return context


def energy_of(context):
    return context.getState(energy=True).getPotentialEnergy()._value


def minimizer_of(backend="TorchForce", platform="Reference", safeguard=None):
    systems = SimpleNamespace(force_backend=backend, prepared=PREPARED)
    return Minimizer(systems, safeguard or Unguarded(), SimpleNamespace(getName=lambda: platform), {})


def guarded(context):
    topology = app.Topology()
    residue = topology.addResidue("LEU", topology.addChain("A"), "45")
    for name in ("N", "CA", "C", "O", "CB"):
        topology.addAtom(name, None, residue)
    systems = SimpleNamespace(force_backend="TorchForce", prepared=PREPARED)
    return Minimizer(systems, Safeguard(topology, context.getSystem()), context.getPlatform(), {})


def test_a_descent_ends_before_the_step_at_which_it_is_asked_to():
    contexts = [context_of() for _ in range(2)]
    before = energy_of(contexts[0])
    descend(contexts[0], 10**6, stop=Stop)
    descend(contexts[1], 10, stop=Going)
    assert energy_of(contexts[0]) == before > energy_of(contexts[1])


def test_it_ends_after_the_iteration_in_which_it_is_asked_to():
    contexts = [context_of() for _ in range(3)]
    before = energy_of(contexts[0])
    minimizer_of().minimize(contexts[0], 0)
    assert energy_of(contexts[0]) == before
    minimizer_of().minimize(contexts[0], 100, Stop)
    minimizer_of().minimize(contexts[1], 100, Going)
    minimizer_of().minimize(contexts[2], 100)
    assert energy_of(contexts[2]) == energy_of(contexts[1]) < energy_of(contexts[0]) < before
    late, in_time = context_of(), context_of()
    minimizer_of().minimize(late, 100, Deadline(0.0))
    minimizer_of().minimize(in_time, 100, Deadline(600.0))
    assert [energy_of(each) for each in (late, in_time)] == [energy_of(each) for each in contexts[:2]]
    assert energy_of(contexts[2]) < 1.0


@pytest.mark.parametrize("platform", ["CPU", "Reference"])
def test_an_energy_that_is_no_number_names_model_and_atoms(platform):
    context = context_of("sqrt(2.5 - x)", platform)
    before = context.getState(positions=True).getPositions(asNumpy=True)._value
    with pytest.raises(
        SimulationError, match=r"some\.pdb: the energy cannot be minimised.*A LEU 45 CB.* are no"
    ):
        guarded(context).minimize(context, 10)
    assert np.array_equal(context.getState(positions=True).getPositions(asNumpy=True)._value, before)


def pressed_together(pull, held="contact"):
    """Two carbons that are not bonded, as a density of this strength (kJ/mol/nm²) holds them, or what is `held`: at 1.6 Å."""
    topology = app.Topology()
    for _ in range(2):
        topology.addAtom("C", app.element.carbon, topology.addResidue("CH4", topology.addChain()))
    system = openmm.System()
    density = openmm.CustomBondForce("0.5*density_strength*(r - 0.16)^2")
    density.addGlobalParameter("density_strength", 0.0)
    density.addBond(system.addParticle(12.0), system.addParticle(12.0))
    system.addForce(density)
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )
    context.setParameter("density_strength", pull)
    context.setPositions([[0.0, 0.0, 0.0], [0.16, 0.0, 0.0]])

    def at_rest(density, positions, stiff):
        contacts, ideal = ContactRestraint(topology, positions), IdealGeometryRestraint(topology, positions)
        parted = copy.deepcopy(system)
        force, name = contacts.create_force(), contacts.parameter_name
        stiff = " + ".join((name, *EXCESS_PARAMETERS))
        force.setEnergyFunction(force.getEnergyFunction().replace(name, f"({stiff})"))
        for parameter in EXCESS_PARAMETERS:
            force.addGlobalParameter(parameter, 0.0)
        parted.addForce(force)
        held = SimpleNamespace(terms=ideal.terms, parameter_name=name, force_constant=contacts.force_constant)
        return parted, held, contacts

    systems = SimpleNamespace(
        force_backend="TorchForce",
        prepared=SimpleNamespace(topology=topology),
        restraints=[SimpleNamespace(name=held, parameter_name="density_strength")],
        at_rest=at_rest,
    )
    return context, Minimizer(systems, Unguarded(), context.getPlatform(), {})


@pytest.mark.parametrize(
    ("factors", "stiffness", "held"),
    [
        ((), 1.0, "contact"),
        ((2.5,), 2.5, "contact"),
        ((2.0, 3.0, 9.0), 6.0, "contact"),
        ((), 1.0, "ramachandran"),
    ],
)
def test_what_a_density_spoils_is_held_the_more_stiffly_until_it_is_near_enough(factors, stiffness, held):
    """To where both forces are equal; what holds the backbone is stronger there."""
    pull, tried = 5e4, []
    context, minimizer = pressed_together(pull, held)
    pull *= RESTING_SCALES.get(held, 1.0)

    def stiffer(positions):
        tried.append(positions)
        return 1.0, (*factors, 1.0)[len(tried) - 1]

    rest = minimizer.rest_of(context, None)
    minimizer.bring_to_rest(context, rest, 60, SimpleNamespace(requested=False), stiffer)
    apart = positions_in_angstrom(context.getState(positions=True).getPositions(asNumpy=True))
    repulsion = stiffness * CONTACT_FORCE_CONSTANT
    contact = 2 * 1.7 - CLASH_OVERLAP + CONTACT_MARGIN
    equal = (pull * 1.6 + repulsion * contact) / (pull + repulsion)
    assert np.linalg.norm(apart[1] - apart[0]) == pytest.approx(equal, abs=0.01)
    assert np.array_equal(tried[-1], apart) and len(tried) == min(len(factors) + 1, MOST_PASSES)
