"""Energies of pairs against finite differences, the float64 reference, and OpenMM's own forces."""

import math

import openmm
import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.neighbors import neighbors
from openmm_density.kernels.pairs import (
    FLAT_BOTTOM,
    LENNARD_JONES,
    MORSE,
    NONBONDED,
    REACTION_FIELD,
    SOFT_REPULSION,
    forms,
    pack_exclusions,
    pairs,
    reference,
)

from ..contexts import context_of, energy_of, forces_of, system_of
from . import operators

CUTOFF = 0.9
COULOMB = 138.93545764438198  # kJ nm/(mol e²), as OpenMM has it
NAMES = {
    "lennard-jones": LENNARD_JONES,
    "reaction field": REACTION_FIELD,
    "nonbonded": NONBONDED,
    "soft repulsion": SOFT_REPULSION,
    "morse": MORSE,
    "flat bottom": FLAT_BOTTOM,
}
SETTINGS = {
    LENNARD_JONES: [0.7],
    REACTION_FIELD: [COULOMB, 78.3],
    NONBONDED: [0.75, COULOMB, 78.3],
    SOFT_REPULSION: [],
    MORSE: [0.6],
    FLAT_BOTTOM: [],
}
SCALES = {
    LENNARD_JONES: (0.3, 0.6, 0.0),
    REACTION_FIELD: (0.8, 0.0, 0.0),
    NONBONDED: (0.3, 0.6, 0.8),
    SOFT_REPULSION: (0.3, 500.0, 0.0),
    MORSE: (0.2, 8.0, 12.0),
    FLAT_BOTTOM: (0.2, 300.0, 0.03),
}
BOXES = {
    "none": None,
    "cube": 1.9 * torch.eye(3, dtype=torch.float64),
    "skewed": torch.tensor([[2.0, 0, 0], [0.6, 1.9, 0], [-0.7, 0.5, 1.8]], dtype=torch.float64),
    "small": torch.tensor([[1.3, 0, 0], [0.2, 1.2, 0], [-0.3, 0.1, 1.4]], dtype=torch.float64),
}
implementations = operators.implementations("pairs", pairs, reference.pairs)
all_forms = pytest.mark.parametrize("form", NAMES.values(), ids=NAMES.keys())
all_boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not (compilation.load("pairs") and compilation.load("neighbors")):
        pytest.skip("no C++ compiler")


def scene(form, box=None, dtype=torch.float64, seed=0, per_side=4, both_ways=False):
    """Return the arguments for atoms that are nowhere in one place."""
    generator = torch.Generator().manual_seed(seed)
    side = torch.arange(per_side, dtype=torch.float64) / per_side
    places = torch.cartesian_prod(side, side, side)
    places += 0.4 / per_side * torch.rand(places.shape, generator=generator, dtype=torch.float64)
    positions = (places @ (1.8 * torch.eye(3, dtype=torch.float64) if box is None else box)).to(dtype)
    parameters = 0.7 + 0.6 * torch.rand(len(places), 3, generator=generator)
    parameters = parameters * torch.tensor(SCALES[form])
    charge = {REACTION_FIELD: 0, NONBONDED: 2}.get(form)
    if charge is not None:
        parameters[::2, charge] *= -1
    listed = neighbors(positions, box, CUTOFF + 0.1, both_ways)[:3]
    return [positions, box, *listed, parameters, form, CUTOFF, SETTINGS[form]]


def assert_close(found, expected, tight):
    # An energy may be a small sum of large ones, of the virial's size.
    largest = max(expected[0].abs(), expected[2].abs().max())
    for one, other, scale in zip(found, expected, (largest, expected[1].abs().max(), largest), strict=True):
        assert one.dtype == other.dtype and one.is_contiguous()
        assert (one.double() - other.double()).abs().max() <= tight * scale


@all_forms
@all_boxes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_is_the_reference(form, box, dtype):
    arguments = scene(form, box, dtype)
    expected = reference.pairs(*arguments)
    assert expected[0] != 0
    assert_close(pairs(*arguments), expected, 3e-5)
    exclusions = pack_exclusions([(i, i + 1) for i in range(0, 60, 2)], 64)
    without = reference.pairs(*arguments, *exclusions)
    assert without[0] != expected[0]
    assert_close(pairs(*arguments, *exclusions), without, 3e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_list_with_each_pair_twice_counts_it_once(dtype):
    once, twice = (scene(NONBONDED, BOXES["small"], dtype, both_ways=both) for both in (False, True))
    exclusions = pack_exclusions([(0, 1), (1, 4), (6, 2)], 64)
    expected = reference.pairs(*once, *exclusions)
    assert_close(reference.pairs(*twice, *exclusions, True), expected, 1e-6)
    assert_close(pairs(*twice, *exclusions, True), expected, 3e-5)


@pytest.mark.parametrize("far", [1e3, 1e7, 1e30, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_first_atom_that_is_far_away_takes_no_digits_from_others(dtype, far):
    arguments = scene(LENNARD_JONES, dtype=dtype)
    arguments[0][0] = far
    arguments[2:5] = neighbors(arguments[0], None, CUTOFF + 0.1)[:3]
    assert_close(pairs(*arguments), reference.pairs(*arguments), 3e-5)


@all_forms
def test_forces_are_finite_differences(form):
    arguments = scene(form, BOXES["skewed"], per_side=3)
    positions = arguments[0]
    _, gradient, _ = reference.pairs(*arguments)
    step, largest = 1e-6, gradient.abs().max()
    for atom, axis in ((0, 0), (5, 1), (13, 2), (26, 0)):
        energies = []
        for sign in (-1, 1):
            moved = positions.clone()
            moved[atom, axis] += sign * step
            energies.append(reference.pairs(moved, *arguments[1:])[0])
        assert abs((energies[1] - energies[0]) / (2 * step) - gradient[atom, axis]) < 1e-6 * largest


@all_forms
def test_the_virial_is_the_derivative_by_strain(form):
    arguments = scene(form, BOXES["skewed"], per_side=3)
    virial = reference.pairs(*arguments)[2]
    step = 1e-6
    for row, column in ((0, 0), (1, 1), (0, 2), (2, 1)):
        energies = []
        for sign in (-1, 1):
            strain = torch.eye(3, dtype=torch.float64)
            strain[row, column] += sign * step
            strained = [arguments[0] @ strain, arguments[1] @ strain, *arguments[2:]]
            energies.append(reference.pairs(*strained)[0])
        difference = -(energies[1] - energies[0]) / (2 * step)
        assert abs(difference - virial[row, column]) < 1e-6 * virial.abs().max()


def openmm_energy(force, positions, box):
    context = context_of(system_of(len(positions), force, box=None if box is None else box.tolist()))
    context.setPositions(positions.tolist())
    return energy_of(context), torch.from_numpy(forces_of(context))


def assert_as_openmm(force, arguments, exclusions=()):
    energy, forces = openmm_energy(force, *arguments[:2])
    for function, tight in ((reference.pairs, 1e-6), (pairs, 3e-5)):
        found = function(*arguments, *exclusions)
        assert abs(found[0] - energy) <= tight * max(abs(energy), found[2].abs().max())
        assert (found[1] + forces).abs().max() <= tight * forces.abs().max()


def test_nonbonded_is_that_of_openmm():
    # Wide enough for OpenMM, which sees one image of each atom, and little skewed: in one of seven scenes in BOXES["skewed"] the
    # neighbour list of its Reference platform (8.4) lacks a pair near the cut-off.
    box = torch.tensor([[2.2, 0, 0], [0.3, 2.1, 0], [-0.3, 0.2, 2.0]], dtype=torch.float64)
    arguments = scene(NONBONDED, box)
    excluded = [(i, i + 1) for i in range(0, 60, 3)]
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    force.setCutoffDistance(CUTOFF)
    force.setUseSwitchingFunction(True)
    force.setSwitchingDistance(0.75)
    force.setUseDispersionCorrection(False)
    for sigma, epsilon, charge in arguments[5].tolist():
        force.addParticle(charge, sigma, epsilon)
    for i, j in excluded:
        force.addException(i, j, 0, 1, 0)
    assert_as_openmm(force, arguments, pack_exclusions(excluded, 64))


EXPRESSIONS = {
    LENNARD_JONES: "4*sqrt(b1*b2)*(((a1+a2)/2/r)^12-((a1+a2)/2/r)^6)",
    REACTION_FIELD: f"{COULOMB}*a1*a2*(1/r+k*r^2-c); k=77.3/157.6/{CUTOFF}^3; c=3*78.3/157.6/{CUTOFF}",
    SOFT_REPULSION: "0.5*sqrt(b1*b2)*max(0,a1+a2-r)^2",
    MORSE: "sqrt(b1*b2)*(exp(-2*x)-2*exp(-x)); x=(c1+c2)/2*(r-a1-a2)",
    FLAT_BOTTOM: "0.5*sqrt(b1*b2)*max(0,abs(r-a1-a2)-c1-c2)^2",
}


@pytest.mark.parametrize(
    ("form", "settings"), [*((form, SETTINGS[form]) for form in EXPRESSIONS), (LENNARD_JONES, [CUTOFF])]
)
def test_forms_are_those_of_a_custom_force(form, settings):
    """Of which one whose switch begins at the cut-off has none."""
    arguments = scene(form, BOXES["cube"])
    arguments[8] = settings
    force = openmm.CustomNonbondedForce(EXPRESSIONS[form])
    for name in "abc":
        force.addPerParticleParameter(name)
    force.setNonbondedMethod(openmm.CustomNonbondedForce.CutoffPeriodic)
    force.setCutoffDistance(CUTOFF)
    if form in (LENNARD_JONES, MORSE) and settings[0] < CUTOFF:
        force.setUseSwitchingFunction(True)
        force.setSwitchingDistance(settings[0])
    for parameters in arguments[5].tolist():
        force.addParticle(parameters)
    assert_as_openmm(force, arguments)


@all_forms
def test_forces_add_up_to_nothing_and_threads_change_no_bit(form):
    arguments = scene(form, 3 * BOXES["cube"], torch.float32, per_side=12)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(pairs(*arguments))
    for other in found[1:]:
        assert all(torch.equal(one, another) for one, another in zip(found[0], other))
    gradient = found[0][1].double()
    assert gradient.sum(0).abs().max() < 1e-5 * gradient.abs().sum()


@pytest.mark.parametrize("function", [pairs, reference.pairs], ids=["C++", "reference"])
@all_forms
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("apart", [0.0, 1e-5, 2e-4])
def test_atoms_in_one_place_have_finite_forces(function, form, both_ways, apart):
    arguments = scene(form, dtype=torch.float32, both_ways=both_ways)
    # Three pairs, whose energies of up to 3e38 are added.
    arguments[0][1:4] = arguments[0][0] + apart * torch.eye(3)
    found = function(*arguments, both_ways=both_ways)
    assert all(tensor.isfinite().all() for tensor in found)
    if not apart:
        excluded = pack_exclusions([(0, 1)], len(arguments[0]))
        if form in (LENNARD_JONES, NONBONDED):  # the pair adds nothing
            assert_close(found, function(*arguments, *excluded, both_ways=both_ways), 1e-6)


@implementations
def test_nothing_is_the_sum_of_no_pairs(function):
    for n_atoms in (0, 1):
        positions = torch.zeros(n_atoms, 3)
        listed = neighbors(positions, None, 1.0)[:3]
        energy, gradient, virial = function(
            positions, None, *listed, torch.ones(n_atoms, 3), NONBONDED, 1.0, [0.5, 1.0, 1.0]
        )
        assert energy == 0 and not gradient.any() and not virial.any() and gradient.shape == (n_atoms, 3)


def test_its_shapes_are_known_without_evaluating():
    arguments = scene(NONBONDED, BOXES["cube"], torch.float32)
    torch.library.opcheck(
        torch.ops.openmm_density.pairs.default, tuple(arguments), test_utils="test_faketensor"
    )


def test_every_form_has_a_formula():
    assert sorted(forms.FORMS) == list(range(6)) == sorted(NAMES.values())


WRONG = {
    "positions must be": (0, torch.zeros(64, 2)),
    "box must be": (1, torch.zeros(3)),
    "offsets must be a contiguous": (2, torch.zeros(64, dtype=torch.int32)),
    "neighbors must be a contiguous": (3, torch.zeros(9, dtype=torch.int64)),
    "shifts must be a contiguous": (4, torch.zeros(9, dtype=torch.int32)),
    "parameters must be a contiguous": (5, torch.zeros(64, 2)),
    "form must be from 0 to 5": (6, 6),
    "cutoff must be a positive length": (7, math.inf),
    "there may be 3 settings": (8, [0.0] * 4),
    "form 2 needs 3 settings, not 0": (8, []),
    "form 2 needs 3 settings, not 2": (8, [1.0, 138.9]),
}


@implementations
@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_are_refused(function, message, change):
    arguments = scene(NONBONDED)
    arguments[change[0]] = change[1]
    with pytest.raises(ValueError, match=f"pairs: {message}"):
        function(*arguments)


def test_bad_tables_are_refused():
    arguments = scene(NONBONDED)
    with pytest.raises(ValueError, match="give excluded_offsets and excluded"):
        pairs(*arguments, arguments[2])
    with pytest.raises(ValueError, match="excluded_offsets must be a contiguous"):
        pairs(*arguments, arguments[2][1:].clone(), arguments[3][:0])
    for slot, message in ((2, "offsets must rise"), (3, "neighbors holds an index")):
        changed = [*arguments]
        changed[slot] = changed[slot].clone()
        changed[slot][3] = 10**6
        with pytest.raises(ValueError, match=message):
            pairs(*changed)
    with pytest.raises(ValueError, match="atom 64 is excluded"):
        pack_exclusions([(0, 64)], 64)
