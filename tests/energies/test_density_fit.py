import copy
import inspect
import math
import pickle
import re
import warnings
from types import SimpleNamespace as Namespace

import mdtraj
import numpy as np
import openmm
import pytest
import torch
from openmm import app, unit

from openmm_density import DensityFit, DensityMap, InputError
from openmm_density.energies.fitted_atoms import WEIGHTS
from openmm_density.energies.forces import BACKENDS, backend_problem
from openmm_density.energies.form_factors import form_factor_gaussians
from openmm_density.energies.measures import SIMILARITIES
from openmm_density.kernels.density import density_splat
from openmm_density.models import prepare, read_model

from ..contexts import context_of, energy_of, forces_of, system_of
from ..fragments import fragment as fragment_of_adk

PLATFORMS = {openmm.Platform.getPlatform(i).getName() for i in range(openmm.Platform.getNumPlatforms())}

pytestmark = pytest.mark.skipif(
    backend_problem("TorchForce") is not None,
    reason=f"TorchForce does not work: {backend_problem('TorchForce')}",
)


class Fragment:
    """The first residues of a real model: topology and positions in Å."""

    def __init__(self, model, n):
        self.topology = mdtraj.Topology.from_openmm(model.topology).subset(range(n)).to_openmm()
        self.positions = model.positions[:n].copy()
        self.n = n
        self.heavy = np.array([a.index for a in self.topology.atoms() if a.element.symbol != "H"])
        self.masses = np.array([a.element.mass.value_in_unit(unit.dalton) for a in self.topology.atoms()])
        self.numbers = np.array([a.element.atomic_number for a in self.topology.atoms()])


@pytest.fixture(scope="module")
def adk_map(kinase):
    """Open adenylate kinase at 4 Å on a coarse grid."""
    return DensityMap.simulate(kinase.topology, kinase.positions, 4.0, 2.0, margin=20.0)


@pytest.fixture(scope="module")
def adk(tmp_path_factory):
    """The first residues of closed adenylate kinase, with hydrogens."""
    model = prepare(fragment_of_adk(tmp_path_factory.mktemp("adk") / "adk.pdb", residues=20))
    return Namespace(topology=model.topology, positions=model.positions)


@pytest.fixture(scope="module")
def fragment(adk):
    return Fragment(adk, 240)


def charged_system(n):
    charges = openmm.NonbondedForce()
    # Of both signs, with a positive sum over any dozen atoms as many of which are even as odd.
    for k, charge in enumerate(np.random.default_rng(1).uniform(0.3, 0.6, n)):
        charges.addParticle(charge if k % 2 else -charge / 2, 0.1, 0.0)
    return system_of(n, charges)


MEASURES = [*SIMILARITIES, "about-mean"]


def measure_arguments(measure):
    return dict(about_mean=True) if measure == "about-mean" else dict(similarity=measure)


@pytest.mark.parametrize("weights", [*WEIGHTS, "array"])
@pytest.mark.parametrize("measure", MEASURES)
def test_forces_are_central_differences_of_the_energy(adk_map, fragment, measure, weights):
    arguments = measure_arguments(measure) | dict(positions=fragment.positions, weights=weights)
    if weights == "array":
        arguments["weights"] = np.linspace(0.5, 2, fragment.n)
    if weights == "charge":
        arguments["system"] = charged_system(fragment.n)
    if weights in ("electron", "xray"):
        arguments["b_factors"] = np.linspace(5, 40, fragment.n)
        arguments["occupancies"] = np.linspace(0.5, 1, fragment.n)
    if measure == "relative-entropy" and weights == "charge":
        with pytest.raises(InputError, match="negative"):  # a logarithm of the density
            DensityFit(adk_map, fragment.topology, 5.0, atoms="name CA", **arguments)
        return
    fit = DensityFit(adk_map, fragment.topology, 5.0, atoms="name CA", strength=100.0, **arguments)
    assert fit.n_fitted_atoms == len(fit.atoms) == 17
    context = context_of(system_of(fragment.n, fit.create_force()), fragment.positions)
    found = forces_of(context)
    others = np.setdiff1d(np.arange(fragment.n), fit.atoms)
    assert not found[others].any()
    similarity = fit.similarity(fragment.positions)
    max_similarity = 0 if measure in ("inner-product", "relative-entropy") else 1
    assert energy_of(context) == pytest.approx(1700 * (max_similarity - similarity), rel=1e-6)
    assert fit.measure.similarity_from_energy(energy_of(context), 1700) == pytest.approx(similarity, rel=1e-6)
    if measure == "least-squares" and not found.any():
        assert weights == "charge"
        assert similarity == 0
        return

    # Every axis of three atoms, and all atoms at once along a random direction.
    generator = np.random.default_rng(0)
    directions = [generator.standard_normal(found.shape) * np.isin(np.arange(fragment.n), fit.atoms)[:, None]]
    for atom in fit.atoms[[0, 7, 14]]:
        for axis in range(3):
            directions.append(np.zeros_like(found))
            directions[-1][atom, axis] = 1.0
    # The interpolation has jumps in its second derivative. The entropy has large ones, where a voxel enters the reach of an
    # atom: differences over a step that stands out of the rounding are only good to 1%.
    h = {"map-potential": 2e-4, "relative-entropy": 1e-4}.get(measure, 1e-3)
    accuracy = 1e-2 if measure == "relative-entropy" else 1e-3
    for direction in directions:
        energies = []
        for sign in (-1, 1):
            context.setPositions(fragment.positions / 10 + sign * h * direction)
            energies.append(energy_of(context))
        slope = (energies[0] - energies[1]) / (2 * h)
        scale = np.abs(found).max() * np.abs(direction).sum() ** 0.5
        assert slope == pytest.approx((found * direction).sum(), abs=accuracy * scale)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("mass", "masses"), ("number", "numbers"), ("unity", None)],
)
def test_what_an_atom_weighs(adk_map, fragment, weights, expected):
    fit = DensityFit(adk_map, fragment.topology, 5.0, weights=weights)
    array = np.ones(fragment.n) if expected is None else getattr(fragment, expected)
    for given in (array, array[fragment.heavy], 3.7 * array):
        same = DensityFit(adk_map, fragment.topology, 5.0, weights=given)
        assert same.similarity(fragment.positions) == pytest.approx(
            fit.similarity(fragment.positions), rel=1e-6
        )


def test_form_factors_with_b_factors_and_occupancies_by_hand(adk_map, fragment):
    b, occupancy = np.linspace(0, 60, fragment.n), np.linspace(0.3, 1, fragment.n)
    fit = DensityFit(
        adk_map,
        fragment.topology,
        5.0,
        weights="electron",
        b_factors=b * unit.angstrom**2,
        occupancies=occupancy,
        cutoff=6.0,
    )
    heavy = fragment.heavy
    elements = [atom.element.symbol for atom in fragment.topology.atoms()]
    amplitudes, exponents = form_factor_gaussians(
        [elements[i] for i in heavy], "electron", torch.tensor(b[heavy]), torch.tensor(occupancy[heavy]), 5.0
    )
    target = fit.target
    density = density_splat(
        torch.tensor(fragment.positions[heavy]),
        amplitudes.float(),
        exponents.float(),
        6.0,
        torch.tensor(target.matrix),
        torch.tensor(target.origin),
        list(target.shape),
    ).double()
    t = torch.from_numpy(target.data).double()
    exact = (density * t).sum() / ((density**2).sum() * (t**2).sum()).sqrt()
    assert fit.similarity(fragment.positions) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.opencl
@pytest.mark.parametrize("measure", MEASURES)
def test_every_platform_gives_the_same_with_and_without_the_derivative(adk_map, fragment, measure):
    fit = DensityFit(
        adk_map, fragment.topology, 5.0, positions=fragment.positions, **measure_arguments(measure)
    )
    exact = forces_of(context_of(system_of(fragment.n, fit.create_force()), fragment.positions))
    assert np.abs(exact).max() > 0.1
    max_similarity = 0 if measure in ("inner-product", "relative-entropy") else 1
    per_unit = max_similarity - fit.similarity(fragment.positions)
    # OpenCL takes a second per Context here: one measure stands for all.
    names = ["Reference", "CPU", *(["OpenCL"] if measure == "cross-correlation" else []), "CUDA"]
    for platform in [name for name in names if name in PLATFORMS]:
        tolerance = (1e-6 if platform in ("Reference", "CPU") else 1e-3) * np.abs(exact).max()
        for derivative in (None, False):
            force = fit.create_force(parameter_derivative=derivative)
            context = context_of(system_of(fragment.n, force), fragment.positions, platform)
            for k in (fit.default_strength, 0.0):
                context.setParameter("density_strength", k)
                assert energy_of(context) == pytest.approx(k * per_unit, rel=1e-5)
                np.testing.assert_allclose(
                    forces_of(context), exact * (k / fit.default_strength), rtol=0, atol=tolerance
                )
                if derivative is None:
                    derivatives = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
                    assert derivatives["density_strength"] == pytest.approx(per_unit, rel=1e-5)


@pytest.mark.parametrize("measure", ["cross-correlation", "map-potential"])
def test_a_serialised_system_is_the_same(adk_map, fragment, measure):
    fit = DensityFit(
        adk_map, fragment.topology, 5.0, similarity=measure, positions=fragment.positions, force_group=4
    )
    system = system_of(fragment.n, fit.create_force())
    again = openmm.XmlSerializer.clone(system)
    energies = [energy_of(context_of(each, fragment.positions, "CPU")) for each in (system, again)]
    assert energies[0] == energies[1] and again.getForce(0).getForceGroup() == 4


def test_two_maps_two_regions_two_resolutions_and_two_contexts_at_once(adk_map, fragment):
    n = fragment.n
    half = n // 2
    other_map = DensityMap.simulate(fragment.topology, fragment.positions + 2.0, 3.0)
    one = DensityFit(
        adk_map, fragment.topology, 6.0, atoms=range(half), parameter_name="k_one", force_group=1
    )
    two = DensityFit(
        other_map,
        fragment.topology,
        3.0,
        atoms=range(half - 20, n),
        weights="xray",
        similarity="relative-entropy",
        positions=fragment.positions,
        parameter_name="k_two",
        force_group=2,
    )
    alone = [
        forces_of(context_of(system_of(n, fit.create_force()), fragment.positions)) for fit in (one, two)
    ]
    both = system_of(n, one.create_force(), two.create_force())
    contexts = [context_of(both, fragment.positions, platform) for platform in ("Reference", "CPU")]
    contexts.append(context_of(system_of(n, one.create_force()), fragment.positions))
    scale = np.abs(alone[0] + alone[1]).max()
    for _ in range(2):
        for context in contexts[:2]:
            np.testing.assert_allclose(forces_of(context), alone[0] + alone[1], rtol=0, atol=1e-6 * scale)
            np.testing.assert_allclose(forces_of(context, groups={1}), alone[0], rtol=0, atol=1e-6 * scale)
            np.testing.assert_allclose(forces_of(context, groups={2}), alone[1], rtol=0, atol=1e-6 * scale)
        np.testing.assert_allclose(forces_of(contexts[2]), alone[0], rtol=0, atol=1e-6 * scale)
    contexts[0].setParameter("k_one", 0)
    np.testing.assert_allclose(forces_of(contexts[0]), alone[1], rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(forces_of(contexts[1]), alone[0] + alone[1], rtol=0, atol=1e-6 * scale)


def test_selections_of_atoms(adk_map, fragment):
    def selected(atoms):
        return DensityFit(adk_map, fragment.topology, 5.0, atoms=atoms).atoms

    calpha = [atom.index for atom in fragment.topology.atoms() if atom.name == "CA"]
    assert selected("heavy").tolist() == fragment.heavy.tolist()
    assert selected("all").tolist() == list(range(fragment.n))
    assert selected("name CA").tolist() == calpha
    assert selected(calpha).tolist() == calpha
    assert selected(calpha[::-1]).tolist() == calpha[::-1]
    assert selected(np.isin(np.arange(fragment.n), calpha)).tolist() == calpha
    assert selected(range(3)).tolist() == [0, 1, 2]


def test_water_ions_and_hydrogens_are_not_fitted_but_ligands_are(adk_map):
    topology = app.Topology()
    chain = topology.addChain()
    kept = []
    for name, atoms in (
        ("ALA", ["N", "C", "C", "O", "C", "H"]),
        ("HOH", ["O", "H", "H"]),
        ("ZN", ["Zn"]),
        ("HEM", ["Fe", "N", "C"]),
    ):
        residue = topology.addResidue(name, chain)
        for number, symbol in enumerate(atoms):
            atom = topology.addAtom(f"{symbol}{number}", app.Element.getBySymbol(symbol), residue)
            if symbol != "H" and name in ("ALA", "HEM"):
                kept.append(atom.index)
    virtual = topology.addAtom("M", None, residue)
    fit = DensityFit(adk_map, topology, 5.0)
    assert fit.atoms.tolist() == kept
    for weights in ("mass", "number", "electron"):
        with pytest.raises(InputError, match=f"fitted atom {virtual.index} .*has none"):
            DensityFit(adk_map, topology, 5.0, atoms="all", weights=weights)
    assert DensityFit(adk_map, topology, 5.0, atoms="all", weights="unity").n_fitted_atoms == 14


def test_the_default_cutoff_is_four_sigma(adk_map, fragment):
    assert DensityFit(adk_map, fragment.topology, 5.0).cutoff == pytest.approx(4 * 0.225 * 5.0)
    wide = DensityFit(
        adk_map, fragment.topology, 5.0, weights="xray", b_factors=np.full(fragment.n, 80.0)
    ).cutoff
    assert wide > 4 * math.sqrt(1.125**2 + 80 / (8 * math.pi**2))


def test_a_fit_is_pickled_and_its_strength_can_be_set(adk_map, fragment):
    fit = DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions, strength="auto")
    fit.strength = 20 * unit.kilojoule_per_mole
    again = pickle.loads(pickle.dumps(fit))
    assert again.strength == 20 and not again.automatic
    assert again.default_strength == 20 * fit.n_fitted_atoms
    assert again.similarity(fragment.positions) == fit.similarity(fragment.positions)
    with pytest.raises(InputError, match="strength must be 0 or more"):
        fit.strength = -1


ERRORS = {
    "fractional atoms": (dict(atoms=[0.5]), "atoms must be"),
    "weights of another length": (dict(weights=[1.0, 2.0]), "weights must hold"),
    "a force group that is none": (dict(force_group=40), "force_group"),
    "occupancies with masses": (dict(occupancies=np.ones(240)), "occupancies"),
    "a mask of numbers": (dict(mask=np.ones((50, 50, 40))), "mask must be"),
    "voxels without a size": (dict(voxel_size=0), "voxel_size must be positive"),
    "positions of another shape": (dict(positions=np.zeros((240, 2))), "positions"),
    "a margin that is a word": (dict(positions=np.zeros((240, 3)), crop_margin="wide"), "crop_margin"),
    "a topology that is none": (dict(topology="model.pdb"), "topology"),
    "a path for a map": (dict(density_map="map.mrc"), "from_file"),
    "an unknown similarity": (dict(similarity="pearson"), 'similarity must be.*"pearson".*cross-correlation'),
    "about_mean elsewhere": (dict(similarity="least-squares", about_mean=True), "about_mean"),
    "threshold elsewhere": (dict(threshold=0.1), "threshold"),
    "a resolution that is NaN": (dict(resolution=math.nan), "resolution"),
    "a resolution in nm": (dict(resolution=0.5), "resolution must not be finer than the map's voxels"),
    "a resolution beyond the map": (
        dict(resolution=500),
        "resolution must not be coarser than the map is wide",
    ),
    "a System of another topology": (
        dict(system=system_of(300)),
        r"topology has 240 atoms but system has 300 particles.*modeller\.topology",
    ),
    "an unknown selection": (dict(atoms="nam CA"), 'atoms must be.*"nam CA"'),
    "a selection of nothing": (dict(atoms="name XX"), "atoms selects nothing"),
    "an atom that does not exist": (dict(atoms=[0, 240]), "240"),
    "a mask of atoms of another length": (dict(atoms=np.ones(7, bool)), "240 particles"),
    "an unknown weight": (dict(weights="volume"), 'weights must be.*"volume".*mass'),
    "weights that are NaN": (dict(weights=np.full(240, math.nan)), "weights must hold"),
    "weights that sum to zero": (
        dict(weights=np.resize([1.0, -1.0], 240), atoms="all", similarity="inner-product"),
        'weights must have a positive sum, by which similarity="inner-product" divides, found 0',
    ),
    "an atom twice": (dict(atoms=[3, 4, 3]), "more than once"),
    "negative weights under a logarithm": (
        dict(weights=np.linspace(-0.5, 2, 240), atoms="all", similarity="relative-entropy"),
        "negative",
    ),
    "charges without a System": (dict(weights="charge"), "charges of a System: pass system"),
    "charges of a System without any": (dict(weights="charge", system=system_of(240)), "NonbondedForce"),
    "B factors with masses": (dict(b_factors=np.ones(240)), "b_factors"),
    "a mask of another shape": (dict(mask=np.ones((2, 2, 2), bool)), "mask must be"),
    "a mask of nothing": (dict(mask=np.zeros((50, 50, 40), bool)), "no voxel"),
    "a threshold above the map": (dict(similarity="map-potential", threshold=1e3), "threshold"),
    "voxels too coarse": (dict(voxel_size=1.5), "too coarse"),
    "voxels for what takes the map as it is": (
        dict(similarity="map-potential", voxel_size=1.0),
        "takes the map as it is",
    ),
    "an unknown strength": (dict(strength="strong"), 'strength must be.*"strong"'),
    "positions of another length": (
        dict(positions=np.zeros((3, 3))),
        "positions must be one for each of the 240 .*found 3",
    ),
    "a file in place of its topology": (
        dict(topology=Namespace(topology=app.Topology())),
        r"topology must be an .* found a SimpleNamespace: give its \.topology",
    ),
    "no resolution": (dict(resolution=0), "resolution must be positive, found 0: give Å, such as 3.5"),
    "a model outside the map": (
        dict(positions=np.full((240, 3), 900.0)),
        "no fitted atom lies inside the map",
    ),
}


@pytest.mark.parametrize(("arguments", "words"), ERRORS.values(), ids=ERRORS.keys())
def test_what_cannot_be_used_is_told_in_one_sentence(adk_map, fragment, arguments, words):
    settings = dict(density_map=adk_map, topology=fragment.topology, resolution=5.0) | arguments
    with pytest.raises(InputError, match=words) as error:
        DensityFit(**settings)
    assert "\n" not in str(error.value)


def test_an_argument_that_is_not_known_is_named_with_what_it_may_mean(adk_map, fragment):
    with pytest.raises(TypeError, match=r"^DensityFit has no argument strenght: did you mean strength\?$"):
        DensityFit(adk_map, fragment.topology, 5.0, strenght=10)
    with pytest.raises(
        TypeError, match=r"^DensityFit has no argument foo: it takes density_map, .* force_group"
    ):
        DensityFit(adk_map, fragment.topology, 5.0, foo=10)
    assert "strength" in inspect.signature(DensityFit).parameters


def test_a_flat_map_and_one_without_positive_values(adk_map, fragment):
    def shifted(data):
        return DensityMap(data, adk_map.matrix, adk_map.origin)

    with pytest.raises(InputError, match="flat"):
        DensityFit(shifted(np.ones(adk_map.shape)), fragment.topology, 5.0)
    negative = shifted(adk_map.data - 10)
    with pytest.raises(InputError, match="positive"):
        DensityFit(negative, fragment.topology, 5.0, similarity="relative-entropy")
    mask = adk_map.data == 0
    with pytest.raises(InputError, match="flat"):
        DensityFit(adk_map, fragment.topology, 8.0, mask=mask)


def test_positions_of_another_number_of_atoms_are_not_scored(adk_map, fragment):
    fit = DensityFit(adk_map, fragment.topology, 5.0)
    for positions in (fragment.positions[:-1], np.vstack([fragment.positions] * 2)):
        with pytest.raises(InputError):
            fit.similarity(positions)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_similarity_of_atoms_that_are_nowhere_is_refused_by_name(adk_map, fragment, value):
    fit = DensityFit(adk_map, fragment.topology, 5.0, atoms="name CA")
    positions = fragment.positions.copy()
    positions[fit.atoms[3], 1] = value
    atom = list(fragment.topology.atoms())[fit.atoms[3]]
    with pytest.raises(InputError, match=f"positions of .*{atom.residue.id} CA are not numbers"):
        fit.similarity(positions)
    with pytest.raises(InputError, match=f"positions of .*{atom.residue.id} CA are not numbers"):
        DensityFit(adk_map, fragment.topology, 5.0, positions=positions)


@pytest.mark.parametrize(
    ("measure", "change", "why"),
    [
        (
            "least-squares",
            "inverted",
            r"the map correlate by -0\.\d+, so that the best scale of the one is 0",
        ),
        ("least-squares", "away", "the model has no density in the map"),
        ("map-potential", "away", "no fitted atom is where the map rises above the threshold"),
        ("least-squares", None, None),
        ("map-potential", None, None),
    ],
)
def test_no_force_from_the_start_is_warned_of(adk_map, fragment, recwarn, measure, change, why):
    density_map = adk_map.inverted() if change == "inverted" else adk_map
    positions = fragment.positions + (500.0 if change == "away" else 0.0)
    arguments = dict(similarity=measure, positions=positions, crop_margin=None)
    fit = DensityFit(density_map, fragment.topology, 5.0, **arguments)
    force = fit.create_force()
    found = forces_of(context_of(system_of(fragment.n, force), positions))
    assert found.any() == (why is None)
    messages = [str(each.message) for each in recwarn if "has no force" in str(each.message)]
    assert len(messages) == (why is not None)
    if why is not None:
        assert re.search(
            f'^similarity="{measure}" has no force at these positions, because .*{why}', messages[0]
        )
        assert [each.filename for each in recwarn if "has no force" in str(each.message)] == [__file__]


def test_positions_in_nm_are_not_taken_for_angstrom(adk_map, fragment):
    fit = DensityFit(adk_map, fragment.topology, 5.0)
    with pytest.raises(InputError, match="positions look like nm"):
        fit.similarity(fragment.positions / 10)
    with pytest.raises(InputError, match="positions look like nm"):
        DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions / 10)
    similarity = fit.similarity(fragment.positions)
    assert fit.similarity(fragment.positions / 10 * unit.nanometer) == pytest.approx(similarity, rel=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_system_of_another_number_of_particles_is_refused(adk_map, fragment, backend):
    if backend_problem(backend) is not None:
        pytest.skip(f"{backend} does not work here: {backend_problem(backend)}")
    for periodic, measure in ((False, "cross-correlation"), (True, "map-potential")):
        fit = DensityFit(adk_map, fragment.topology, 5.0, periodic=periodic, similarity=measure)
        for n, platform in ((fragment.n + 9, "CPU"), (fragment.n - 9, "Reference")):
            system = system_of(n, fit.create_force(backend))
            system = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(system))
            context = context_of(system, np.zeros((n, 3)), platform)
            words = (
                f"DensityFit was made of a topology of 240 atoms, but the System has {n} particles: "
                r"make it of the topology of the Simulation, such as modeller\.topology, with all its particles\.$"
            )
            with pytest.raises(openmm.OpenMMException, match=words):
                context.getState(energy=True)
            with pytest.raises(openmm.OpenMMException, match=words):
                context.getIntegrator().step(1)


def test_a_mask_leaves_voxels_out(adk_map, fragment):
    mask = adk_map.mask_around(fragment.positions, 8.0)
    fit = DensityFit(adk_map, fragment.topology, 9.0, mask=mask)
    assert not fit.resampled
    density = density_splat(
        torch.tensor(fragment.positions[fragment.heavy]),
        torch.tensor(fragment.masses[fragment.heavy, None]).float(),
        torch.full((len(fragment.heavy), 1), 0.5 / fit.sigma**2),
        fit.cutoff,
        torch.tensor(adk_map.matrix),
        torch.tensor(adk_map.origin),
        list(adk_map.shape),
    ).double()[torch.from_numpy(mask)]
    t = torch.from_numpy(adk_map.data[mask]).double()
    exact = (density * t).sum() / ((density**2).sum() * (t**2).sum()).sqrt()
    assert fit.similarity(fragment.positions) == pytest.approx(float(exact), rel=1e-5)
    # Whatever the map holds outside.
    other = adk_map.data.copy()
    other[~mask] = 7.0
    changed = DensityMap(other, adk_map.matrix, adk_map.origin)
    assert DensityFit(changed, fragment.topology, 9.0, mask=mask).similarity(
        fragment.positions
    ) == pytest.approx(fit.similarity(fragment.positions), rel=1e-6)
    whole = DensityFit(adk_map, fragment.topology, 9.0)
    assert abs(whole.similarity(fragment.positions) - fit.similarity(fragment.positions)) > 1e-3


@pytest.mark.parametrize("measure", MEASURES)
def test_a_mask_survives_cropping_and_resampling(adk_map, fragment, measure):
    mask = adk_map.mask_around(fragment.positions, 9.0)
    fit = DensityFit(
        adk_map,
        fragment.topology,
        5.0,
        mask=mask,
        positions=fragment.positions,
        crop_margin=6.0,
        **measure_arguments(measure),
    )
    assert fit.cropped
    assert fit.resampled == (measure != "map-potential")
    assert math.isfinite(fit.similarity(fragment.positions))
    context = context_of(system_of(fragment.n, fit.create_force()), fragment.positions)
    assert np.isfinite(forces_of(context)).all()


def test_cropping_keeps_all_that_the_margin_says(adk_map, fragment):
    whole = DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions, crop_margin=None)
    assert not whole.cropped
    size = whole.target.size * whole.target.voxel_size
    np.testing.assert_allclose(size, adk_map.size * adk_map.voxel_size)
    fit = DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions, crop_margin=10.0)
    assert fit.cropped
    index = fit.target.to_index(fragment.positions[fragment.heavy])
    room = np.minimum(index.min(axis=0), fit.target.size - 1 - index.max(axis=0)) * fit.target.voxel_size
    edge = adk_map.to_index(fragment.positions[fragment.heavy])
    to_edge = np.minimum(edge.min(axis=0), adk_map.size - 1 - edge.max(axis=0)) * adk_map.voxel_size
    assert (room > np.minimum(10.0 + fit.cutoff, to_edge) - 2.1).all()
    # Without cropping when there are no positions to crop around.
    assert not DensityFit(adk_map, fragment.topology, 5.0).cropped
    # Inside the crop the forces point the same way.
    one, other = (
        forces_of(context_of(system_of(fragment.n, f.create_force()), fragment.positions))
        for f in (whole, fit)
    )
    assert (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


def test_voxels_are_never_so_coarse_that_they_pin_the_atoms(adk_map, fragment):
    for resolution in (4.0, 5.0, 7.0, 12.0):
        fit = DensityFit(
            adk_map, fragment.topology, resolution, positions=fragment.positions, crop_margin=8.0
        )
        assert fit.target.voxel_size.max() <= 1.25 * fit.sigma * (1 + 1e-6)
        needlessly_fine = adk_map.voxel_volume < 0.77 * fit.sigma**3
        assert fit.resampled == (adk_map.voxel_size.max() > 1.25 * fit.sigma or needlessly_fine)


def test_needlessly_fine_voxels_are_left_out_and_change_nothing(fragment):
    fine = DensityMap.simulate(fragment.topology, fragment.positions, 6.0, voxel_size=0.7, margin=10.0)
    moved = np.add(fragment.positions, [0.8, -0.5, 0.3])
    found = {}
    for wanted in (0.7, "auto", 1.4 * unit.angstrom):
        fit = DensityFit(fine, fragment.topology, 6.0, positions=moved, voxel_size=wanted)
        forces = fit.create_module()(torch.tensor(moved / 10), torch.tensor(1.0))[1].numpy()
        found[str(wanted)] = fit, fit.similarity(moved), forces
    (as_read, similarity, gradient), *others = found.values()
    assert not as_read.resampled
    for fit, s, g in others:
        assert fit.resampled and fit.target.data.size < as_read.target.data.size / 5
        assert s == pytest.approx(similarity, abs=1e-4)
        assert np.abs(g - gradient).max() < 0.01 * np.abs(gradient).max()
    assert 0.9 * fit.sigma < found["auto"][0].target.voxel_size.max() <= fit.sigma * (1 + 1e-6)


def test_a_model_in_its_own_map_feels_no_grid(fragment):
    """Moved with its map across the voxels of a coarse grid, its energy does not change."""
    heavy = fragment.heavy
    similarities = []
    fine = DensityMap.simulate(fragment.topology, fragment.positions, 6.0, voxel_size=2.0, margin=16.0)
    for shift in ([0, 0, 0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0], [1.0, 0.0, 0.5]):
        moved = fragment.positions + shift
        data = DensityMap.simulate(fragment.topology, moved, 6.0, like=fine)
        fit = DensityFit(data, fragment.topology, 6.0, weights="electron", positions=fragment.positions)
        assert fit.resampled
        similarities.append(fit.similarity(moved))
    assert len(heavy) > 100
    assert np.ptp(similarities) < 1e-3
    assert min(similarities) > 0.9


BOXES = {
    "orthorhombic": np.diag([9.0, 8.5, 8.0]),
    "triclinic": np.array([[9.0, 0, 0], [2.5, 8.0, 0], [-2.0, 3.0, 8.5]]),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
@pytest.mark.parametrize("measure", ["cross-correlation", "map-potential"])
def test_molecules_wrapped_by_the_box_change_nothing(adk_map, adk, box, measure):
    fragment = Fragment(adk, 240)
    # Two molecules: the bond between two residues is taken away.
    cut = copy.deepcopy(fragment.topology)
    bonds = [(a.index, b.index) for a, b in cut.bonds()]
    by_residue = [atom.residue.index for atom in cut.atoms()]
    cut._bonds = [b for b, (i, j) in zip(cut._bonds, bonds) if {by_residue[i], by_residue[j]} != {6, 7}]
    second = np.array(by_residue) >= 7
    arguments = dict(positions=fragment.positions, similarity=measure)
    free = DensityFit(adk_map, cut, 5.0, periodic=False, **arguments)
    fit = DensityFit(adk_map, cut, 5.0, periodic=True, **arguments)
    assert fit.periodic
    force = fit.create_force()
    assert force.usesPeriodicBoundaryConditions()
    exact = context_of(system_of(fragment.n, free.create_force()), fragment.positions)
    for platform in ("Reference", "CPU"):
        context = context_of(system_of(fragment.n, fit.create_force(), box=box), fragment.positions, platform)
        for one, other in (([0, 0, 0], [0, 0, 0]), ([1, 0, -1], [0, 0, 0]), ([0, 2, 0], [-1, -1, 1])):
            wrapped = fragment.positions / 10 + np.where(second[:, None], other @ box, one @ box)
            context.setPositions(wrapped)
            assert energy_of(context) == pytest.approx(energy_of(exact), rel=1e-7)
            scale = np.abs(forces_of(exact)).max()
            np.testing.assert_allclose(forces_of(context), forces_of(exact), rtol=0, atol=2e-5 * scale)


def test_only_bonds_of_the_system_hold_a_molecule_together(adk_map, adk):
    """A platform wraps what the System's forces bond: a metal that the topology alone ties to a protein goes by itself."""
    fragment = Fragment(adk, 240)
    box = BOXES["orthorhombic"]
    bonds = openmm.HarmonicBondForce()
    bonds.setUsesPeriodicBoundaryConditions(True)
    by_residue = [atom.residue.index for atom in fragment.topology.atoms()]
    second = np.array(by_residue) >= 7
    for a, b in fragment.topology.bonds():
        if second[a.index] == second[b.index]:
            bonds.addBond(a.index, b.index, 0.15, 0.0)
    system = system_of(fragment.n, bonds, box=box)
    fit = DensityFit(adk_map, fragment.topology, 5.0, system=system, positions=fragment.positions)
    assert fit.periodic
    system.addForce(fit.create_force())
    context = context_of(system, fragment.positions)
    assert [len(molecule) for molecule in context.getMolecules()] == [
        second.tolist().count(x) for x in (False, True)
    ]
    energy = energy_of(context)
    context.setPositions(fragment.positions / 10 + second[:, None] * ([1, 0, 0] @ box))
    assert energy_of(context) == pytest.approx(energy, rel=1e-6)


def test_whether_a_system_is_periodic(adk_map, fragment):
    periodic = system_of(fragment.n)
    nonbonded = openmm.NonbondedForce()
    for _ in range(fragment.n):
        nonbonded.addParticle(0.0, 0.1, 0.0)
    nonbonded.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    periodic.addForce(nonbonded)
    arguments = dict(positions=fragment.positions)
    boxed = copy.deepcopy(fragment.topology)
    boxed.setPeriodicBoxVectors(np.diag([9.0, 9.0, 9.0]) * unit.nanometer)
    assert not DensityFit(adk_map, fragment.topology, 5.0, **arguments).periodic
    assert not DensityFit(
        adk_map, boxed, 5.0, **arguments
    ).periodic  # every crystal structure's file has a box
    assert DensityFit(adk_map, boxed, 5.0, periodic=True, **arguments).periodic
    assert DensityFit(adk_map, fragment.topology, 5.0, system=periodic, **arguments).periodic
    assert not DensityFit(adk_map, boxed, 5.0, system=system_of(fragment.n), **arguments).periodic
    assert not DensityFit(adk_map, boxed, 5.0, system=periodic, periodic=False).periodic


def test_the_dummy_cell_of_a_cryo_em_model_is_no_box(adk_map, fragment):
    """A CRYST1 record of 1 Å stands in most models from cryo-EM, and OpenMM takes it for box vectors."""
    boxed = copy.deepcopy(fragment.topology)
    boxed.setPeriodicBoxVectors(np.diag([0.1, 0.1, 0.1]) * unit.nanometer)
    fit = DensityFit(adk_map, boxed, 5.0, positions=fragment.positions)
    system = system_of(fragment.n, fit.create_force(), box=np.diag([0.1, 0.1, 0.1]))
    context = context_of(system, fragment.positions + 1.0)
    per_atom = 1 - fit.similarity(fragment.positions + 1.0)
    assert energy_of(context) == pytest.approx(fit.default_strength * per_atom, rel=1e-6)


@pytest.mark.parametrize(
    ("density", "structure", "resolution", "periodic"),
    [
        ("xray_1g8a_P21/composite_omit_map.mtz", "xray_1g8a_P21/1G8A_refined.pdb", 1.8, True),
        ("xraymap_3pqr_R32/3pqr.ccp4.gz", "xraymap_3pqr_R32/3pqr.pdb", 2.85, False),
    ],
    ids=["monoclinic cell", "piece of a trigonal crystal"],
)
def test_a_real_crystal(small_data, density, structure, resolution, periodic):
    model = read_model(small_data / structure)
    crystal = DensityMap.from_file(small_data / density)
    assert crystal.periodic == periodic
    fit = DensityFit(
        crystal,
        model.topology,
        resolution,
        weights="xray",
        b_factors=model.b_factors,
        occupancies=model.occupancies,
        about_mean=True,
        positions=model.positions,
        periodic=False,
    )
    assert fit.target.periodic == periodic
    similarity = fit.similarity(model.positions)
    assert similarity > 0.4
    assert fit.similarity(model.positions + 3.0) < 0.1
    if periodic:
        cell = crystal.matrix * crystal.size
        moved = model.positions + 2 * cell[:, 1] - cell[:, 2]
        assert fit.similarity(moved) == pytest.approx(similarity, rel=1e-6)
    module, k = fit.create_module(), torch.tensor(1.0)
    x = torch.tensor(model.positions / 10)
    _, forces = module(x, k)
    direction = forces / forces.norm()
    h = 1e-3
    slope = float(module(x - h * direction, k)[0] - module(x + h * direction, k)[0]) / (2 * h)
    assert slope == pytest.approx(float(forces.norm()), rel=1e-3)


def test_what_hinders_a_fit_is_told(adk_map, fragment):
    for incompatible, words in (
        (openmm.CMMotionRemover(), "CMMotionRemover.*removeCMMotion=False"),
        (openmm.MonteCarloBarostat(1.0, 300.0), "MonteCarloBarostat.*constant volume"),
        (openmm.MonteCarloMembraneBarostat(1, 0, 300, 0, 0), "Barostat"),
    ):
        with pytest.warns(UserWarning, match=words) as caught:
            DensityFit(
                adk_map,
                fragment.topology,
                5.0,
                system=system_of(fragment.n, incompatible),
                positions=fragment.positions,
            )
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DensityFit(adk_map, fragment.topology, 5.0, system=system_of(fragment.n))


def test_a_force_whose_fit_was_not_given_the_system_warns_when_a_context_is_made(adk_map, fragment):
    system = system_of(fragment.n, openmm.CMMotionRemover(), openmm.MonteCarloBarostat(1.0, 300.0))
    box = openmm.HarmonicBondForce()
    box.setUsesPeriodicBoundaryConditions(True)
    system.addForce(box)
    reference = openmm.Platform.getPlatformByName("Reference")
    said = ["CMMotionRemover", "MonteCarloBarostat.*constant volume", "periodic.*give DensityFit system="]
    for options, messages in (({}, said), ({"periodic": False}, said[:2])):
        fit = DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions, **options)
        number = system.addForce(fit.create_force("NativeForce"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            openmm.Context(system, openmm.VerletIntegrator(0.001), reference)
        assert len(caught) == len(messages) and {each.filename for each in caught} == {__file__}
        assert all(any(re.search(words, str(each.message)) for each in caught) for words in messages)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(openmm.OpenMMException, match="NativeForce: the System"):
                openmm.Context(system, openmm.VerletIntegrator(0.001), reference)
        system.removeForce(number)


@pytest.fixture(scope="module")
def peptide(tmp_path_factory):
    """Three residues with a force field, and their own map at 3 Å."""
    model = prepare(fragment_of_adk(tmp_path_factory.mktemp("peptide") / "peptide.pdb", residues=3))
    away = model.positions + np.array([0.6, -0.4, 0.5])
    density_map = DensityMap.simulate(model.topology, away, 3.0, margin=12.0)
    return model.topology, model.positions, model.system(constraints=None), density_map


@pytest.mark.parametrize("measure", ["cross-correlation", "relative-entropy"])
def test_energy_is_conserved(peptide, measure):
    topology, positions, bare, density_map = peptide
    system = copy.deepcopy(bare)
    fit = DensityFit(
        density_map, topology, 3.0, atoms="all", positions=positions, strength=30.0, similarity=measure
    )
    system.addForce(fit.create_force(parameter_derivative=False))
    integrator = openmm.VerletIntegrator(0.0005)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, maxIterations=50)
    context.setVelocitiesToTemperature(300, 1)
    integrator.step(500)
    totals, travelled = [], []
    for _ in range(100):
        integrator.step(50)
        state = context.getState(energy=True, positions=True)
        energy = state.getPotentialEnergy() + state.getKineticEnergy()
        totals.append(energy.value_in_unit(unit.kilojoule_per_mole))
        travelled.append(state.getPositions(asNumpy=True)[0]._value)
    time = np.arange(100) * 50 * 0.0005
    drift = np.polyfit(time, totals, 1)[0] * 10  # per 10 ps
    assert np.ptp(np.array(travelled), axis=0).max() > 0.02
    assert abs(drift) / (8.314e-3 * 300) / system.getNumParticles() < 0.01


def test_calibration(peptide):
    topology, positions, bare, density_map = peptide
    system = copy.deepcopy(bare)
    fit = DensityFit(density_map, topology, 3.0, positions=positions, strength="auto", force_group=5)
    assert fit.automatic
    assert fit.default_strength == pytest.approx(10 * fit.n_fitted_atoms)
    system.addForce(fit.create_force())
    context = context_of(system, positions)
    others = forces_of(context, groups={0})[fit.atoms]
    strength = fit.calibrate(context, ratio=0.2, bounds=(0.0, 1e9))
    assert context.getParameter("density_strength") == strength
    density = forces_of(context, groups={5})[fit.atoms]
    assert np.sqrt((density**2).mean() / (others**2).mean()) == pytest.approx(0.2, rel=1e-3)
    # Again, from another strength: the density's own force is not among the others.
    assert fit.calibrate(context, ratio=0.2, bounds=(0.0, 1e9)) == pytest.approx(strength, rel=1e-3)
    assert fit.calibrate(context, ratio=1e9) == pytest.approx(200 * fit.n_fitted_atoms)
    assert fit.calibrate(context, ratio=1e-9) == pytest.approx(5 * fit.n_fitted_atoms)
    context.setPositions(positions / 10 + 50)
    with pytest.raises(InputError, match="no density in the map"):
        fit.calibrate(context)


def test_calibration_of_a_wrapped_periodic_system(adk_map, fragment):
    box = BOXES["triclinic"]
    springs = openmm.CustomExternalForce("50*((x-1)^2+y^2+z^2)")
    for i in range(fragment.n):
        springs.addParticle(i, [])
    fit = DensityFit(adk_map, fragment.topology, 5.0, positions=fragment.positions, periodic=True)
    context = context_of(system_of(fragment.n, springs, fit.create_force(), box=box), fragment.positions)
    strength = fit.calibrate(context, ratio=0.01, bounds=(0.0, 1e9))
    energy = energy_of(context)
    x, k = torch.tensor(fragment.positions / 10), torch.tensor(strength, dtype=torch.float64)
    _, density = fit.create_module()(x, torch.tensor(box), k)
    others = forces_of(context)[fit.atoms] - density.numpy()[fit.atoms]
    np.testing.assert_allclose(
        others, -100 * (fragment.positions[fit.atoms] / 10 - [1, 0, 0]), rtol=1e-4, atol=1e-2
    )
    context.setPositions(fragment.positions / 10 + [1, -1, 0] @ box)
    assert energy_of(context) != energy
    assert fit.calibrate(context, ratio=0.01, bounds=(0.0, 1e9)) > 0
