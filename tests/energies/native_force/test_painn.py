"""PaiNN by C++ on CPUs: the bits of its module, no Python in a step, in files, and what is refused."""

import numpy as np
import openmm
import pytest
import torch

from openmm_density.base.plugins import platform_names
from openmm_density.energies import PaiNN
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.native_force import force as force_module
from openmm_density.energies.native_force import forms, make_force
from openmm_density.energies.native_force.computation import Computation, as_text

from ...contexts import context_of, energy_of, forces_of, system_of
from ..test_painn import N_ATOMS, assert_agree, by_autograd, network_of, places_of

pytestmark = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

on_cpus = pytest.mark.parametrize(
    "platform", ["Reference", "CPU", pytest.param("OpenCL", marks=pytest.mark.opencl)]
)


@on_cpus
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("of_some", [False, True])
def test_it_has_the_bits_of_its_module(platform, members, of_some):
    order = np.random.default_rng(0).permutation(N_ATOMS) + 2 if of_some else None
    painn = PaiNN([network_of(32, seed=seed) for seed in range(members)], order)
    positions = torch.cat([torch.ones(3, 3, dtype=torch.float64), places_of()]) if of_some else places_of()
    force = painn.create_force(backend="NativeForce", parameter_derivative=True)
    assert force.isEvaluatedNatively()
    if platform not in platform_names():
        pytest.skip(f"OpenMM has no {platform} platform here")
    context = context_of(system_of(len(positions), force), 10 * positions.numpy(), platform)
    given = torch.from_numpy(np.array(context.getState(positions=True).getPositions(asNumpy=True)._value))
    tolerance = 1e-6 if platform == "OpenCL" else 0.0
    for strength in (1.0, -0.25, 0.0):
        context.setParameter("painn_strength", strength)
        energy, forces = painn(given, torch.tensor(strength, dtype=torch.float64))
        np.testing.assert_allclose(
            forces_of(context), forces, rtol=0, atol=tolerance * float(forces.abs().max())
        )
        assert energy_of(context) == pytest.approx(float(energy), rel=tolerance, abs=0)
    slopes = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
    assert slopes["painn_strength"] == pytest.approx(float(painn(given)[0]), rel=tolerance, abs=0)


@pytest.mark.parametrize("features", [64, 128])
def test_it_is_the_network_of_every_width(features):
    network, positions = network_of(features), places_of()
    force = PaiNN(network).create_force(backend="NativeForce")
    context = context_of(system_of(N_ATOMS, force), 10 * positions.numpy(), "CPU")
    assert_agree((energy_of(context), torch.from_numpy(forces_of(context))), by_autograd(network, positions))


@pytest.mark.parametrize("distance", [0.0, 0.4999, 0.5, 0.6, float("nan")])
def test_two_atoms_in_one_place_at_the_cutoff_and_nowhere(distance):
    painn = PaiNN(network_of(32, 3))
    positions = torch.zeros(3, 3, dtype=torch.float64)
    positions[1, 0], positions[2, 1] = distance, 3.0
    force = painn.create_force(backend="NativeForce")
    context = context_of(system_of(3, force), 10 * positions.numpy(), "Reference")
    energy, forces = painn(positions)
    assert energy_of(context) == float(energy)
    np.testing.assert_array_equal(forces_of(context), forces)


def test_no_step_runs_python(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("Python was called")

    force = PaiNN(network_of(32)).create_force(backend="NativeForce")
    context = context_of(system_of(N_ATOMS, force), 10 * places_of().numpy(), "CPU")
    monkeypatch.setattr(force_module, "evaluate", refuse)
    context.getIntegrator().step(3)


def damaged_weight(form):
    member = form.parts["members"].parts["0"]
    member.parts["weights"].arrays["12"] = member.parts["weights"].arrays["12"][:, 1:]


def damaged_kinds(form):
    form.parts["members"].parts["0"].arrays["kinds"][3] = 7


def missing_weight(form):
    arrays = form.parts["members"].parts["0"].parts["weights"].arrays
    del arrays[str(len(arrays) - 1)]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damaged_weight, "painn: weight 12 must be"),
        (damaged_kinds, "painn: kinds holds 7, but there are 3 kinds"),
        (missing_weight, "painn: there must be 6 weights and 15 for each layer"),
    ],
)
def test_damaged_weights_in_a_file_are_refused(monkeypatch, damage, words):
    painn = PaiNN(network_of(32))
    text = as_text(Computation(painn, None, False))
    force = make_force(Computation(painn, None, False), "painn_strength", 1.0, kind="NativeForce")
    document = openmm.XmlSerializer.serialize(force)
    assert text in document
    own_form = forms.form_of

    def damaged(module):
        form = own_form(module)
        if form is not None and form.kind == "PaiNN":
            damage(form)
        return form

    monkeypatch.setattr(forms, "form_of", damaged)
    broken = as_text(Computation(painn, None, False))
    monkeypatch.undo()
    with pytest.raises(openmm.OpenMMException, match=words):
        openmm.XmlSerializer.deserialize(document.replace(text, broken))


def test_particles_that_the_system_lacks_are_refused():
    force = PaiNN(network_of(32, 3), [0, 1, 5]).create_force(backend="NativeForce")
    context = context_of(system_of(5, force), np.zeros((5, 3)))
    with pytest.raises(
        openmm.OpenMMException,
        match="the argument particles of this PaiNN has the index 5, but the System has 5 particles",
    ):
        energy_of(context)
