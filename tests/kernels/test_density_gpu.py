"""The Triton density kernels against the float64 reference: in Triton's interpreter, or on a GPU, with more."""

import importlib.util
import itertools
import math

import pytest
import torch

pytest.importorskip("triton")

from triton import OutOfResources, language

from openmm_density.kernels import library, tuning
from openmm_density.kernels.density import (
    CROSS_CORRELATION,
    gpu,
    gpu_splat,
    reference,
)

from .operators import assert_captured, in_triton
from .test_density import (
    GRADIENT,
    GRIDS,
    MEASURES,
    TIGHT,
    Scene,
    brute_force_density,
    cell_steps,
    deviation,
    measures,
)

ON_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="no GPU")
SHAPE = (14, 17, 20) if ON_GPU else (5, 9, 7)
ATOMS = 16 if ON_GPU else 8
CUTOFF = 3.7 if ON_GPU else 1.8

splat, gather, similarity = (
    in_triton("density", name) for name in ("density_splat", "density_gather", "density_similarity")
)


def small(matrix=GRIDS["orthogonal"], **settings):
    settings = {"shape": SHAPE, "n_atoms": ATOMS, "cutoff": CUTOFF} | settings
    return Scene(matrix, **settings)


def compare(scene, measure, positions=None):
    return scene.similarity(measure, positions, similarity)


def assert_right(scene, measures=(CROSS_CORRELATION,), tolerance=1.0):
    """Density, its derivatives, and similarity and forces, against the reference."""
    density = scene.splat(splat)
    assert density.dtype == torch.float32 and list(density.shape) == list(scene.shape)
    assert deviation(density, scene.splat(reference.density_splat)) < tolerance * TIGHT
    derivatives = scene.gather(gather)
    assert [d.dtype for d in derivatives] == [scene.positions.dtype, torch.float32, torch.float32]
    for found, exact in zip(derivatives, scene.gather(reference.density_gather)):
        assert deviation(found, exact) < tolerance * TIGHT
    for measure in measures:
        assert_similarity_right(scene, measure, tolerance)


def assert_similarity_right(scene, measure, tolerance=1.0):
    exact, exact_gradient = scene.reference_similarity(measure)
    found, gradient = compare(scene, measure)
    assert found.dtype == torch.float64 and found.shape == ()
    assert gradient.dtype == scene.positions.dtype and gradient.is_contiguous()
    assert float(found) == pytest.approx(float(exact), rel=tolerance * TIGHT, abs=1e-7)
    assert deviation(gradient, exact_gradient) < tolerance * GRADIENT[measure]


@pytest.mark.parametrize(
    ("name", "periodic"),
    itertools.product(GRIDS, (False, True))
    if ON_GPU
    else [("orthogonal", False), ("orthogonal", True), ("monoclinic130", True), ("rhombohedral60", False)],
)
def test_matches_the_reference(name, periodic):
    scene = small(GRIDS[name], periodic=periodic, dtype=torch.float64 if periodic else torch.float32)
    assert_right(scene.correlated(), MEASURES.values() if ON_GPU else (CROSS_CORRELATION,))


@measures
def test_every_measure_with_a_mask(measure):
    scene = small() if ON_GPU else small(shape=(4, 5, 7), n_atoms=4, awkward=False)
    scene.correlated()
    scene.target[1:3, :4] = math.nan
    scene.target[0, 0, 0] = math.inf
    assert_similarity_right(scene, measure)


@pytest.mark.parametrize(
    ("gaussians", "skewed"),
    itertools.product(range(1, 6), (False, True)) if ON_GPU else [(1, False), (5, False), (1, True)],
)
def test_any_number_of_gaussians(gaussians, skewed):
    scene = small(GRIDS["triclinic" if skewed else "orthogonal"], gaussians=gaussians)
    if ON_GPU:
        assert_right(scene.correlated(), tolerance=2)
    else:
        assert_similarity_right(scene.correlated(), CROSS_CORRELATION, tolerance=2)


@pytest.mark.parametrize("name", GRIDS if ON_GPU else ["orthogonal", "rhombohedral60"])
def test_images_of_an_atom_larger_than_the_cell(name):
    n_atoms = 8 if ON_GPU else 2
    scene = Scene(
        GRIDS[name],
        shape=(4, 5, 3),
        periodic=True,
        cutoff=6.5 if ON_GPU else 4.0,
        n_atoms=n_atoms,
        awkward=False,
        reach=3.0,
    )
    assert deviation(scene.splat(splat), torch.from_numpy(brute_force_density(scene))) < TIGHT
    for found, exact in zip(scene.gather(gather), scene.gather(reference.density_gather)):
        assert deviation(found, exact) < TIGHT
    assert_similarity_right(scene, CROSS_CORRELATION)


@pytest.mark.parametrize("periodic", [False, True], ids=["finite", "periodic"])
def test_atoms_that_reach_no_voxel(periodic):
    scene = Scene(shape=(4, 3, 8), n_atoms=5, awkward=False, cutoff=0.6, periodic=periodic)
    scene.exponents = 12 * scene.exponents
    corner = torch.tensor([7.5, 2.5, 3.5], dtype=torch.float64)
    scene.positions[0] = scene.origin + scene.matrix @ corner
    scene.positions[1] = scene.origin + scene.matrix @ (corner - 8.0)
    scene.positions[2] = scene.origin + scene.matrix @ torch.tensor([2.1, 1.1, 3.0], dtype=torch.float64)
    # The exponents of such steep Gaussians are rounded twelve times as coarsely.
    assert_similarity_right(scene, CROSS_CORRELATION, 12)


def test_a_thousand_cells_away_is_the_same_as_here():
    scene = small(GRIDS["triclinic"], periodic=True, n_atoms=8 if ON_GPU else 2, awkward=False)
    cell = scene.matrix * torch.tensor(scene.shape[::-1])
    here, here_gradient = compare(scene, CROSS_CORRELATION)
    away = scene.positions + cell @ torch.tensor([1000.0, -1000.0, 1000.0], dtype=torch.float64)
    there, there_gradient = compare(scene, CROSS_CORRELATION, away)
    assert float(there) == pytest.approx(float(here), rel=1e-7)
    assert deviation(there_gradient, here_gradient) < TIGHT


def test_more_candidates_than_the_buffer_holds(monkeypatch):
    """More atoms than the buffer of a tile holds, so that it is flushed more than once."""
    if not ON_GPU:
        monkeypatch.setattr(gpu_splat, "BUFFER", language.constexpr(gpu_splat.SEARCH_STEP.value + 32))
    n_atoms = 700 if ON_GPU else 80
    assert n_atoms > gpu_splat.BUFFER.value - gpu_splat.SEARCH_STEP.value
    scene = Scene(shape=(3, 4, 5), n_atoms=n_atoms, gaussians=1, cutoff=1.2, awkward=False)
    exact = scene.splat(reference.density_splat)
    assert deviation(scene.splat(splat), exact) < 2 * TIGHT


def test_the_same_bits_every_time_and_whatever_the_order_of_arrival():
    scene = small()
    first = compare(scene, CROSS_CORRELATION)
    for _ in range(50 if ON_GPU else 1):
        again = compare(scene, CROSS_CORRELATION)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


@needs_gpu
def test_a_grid_of_more_than_two_to_the_31st_voxels():
    shape = [1300, 1290, 1288]
    if torch.cuda.mem_get_info()[1] < 3 * 4 * math.prod(shape):
        pytest.skip("too little memory")
    scene = Scene(shape=(12, 12, 12), n_atoms=8, awkward=False, cutoff=2.5, reach=-0.3)
    corner = torch.tensor(shape[::-1], dtype=torch.float64) - 12
    moved = (scene.positions + scene.matrix @ corner).cuda()
    model = [x.cuda() if isinstance(x, torch.Tensor) else x for x in (*scene.model, *scene.place)]
    density = gpu.density_splat(moved, *model, shape, False)
    assert deviation(density[-12:, -12:, -12:].cpu(), scene.splat(reference.density_splat)) < 10 * TIGHT
    assert not density[:600].any()


@needs_gpu
@pytest.mark.parametrize("gaussians", [1, 5])
def test_every_configuration_gives_the_same_bits(gaussians, monkeypatch):
    scene = small(GRIDS["triclinic"], gaussians=gaussians).correlated()
    first = compare(scene, CROSS_CORRELATION)
    for configuration in gpu._CANDIDATES:
        monkeypatch.setattr(gpu, "_default_configuration", lambda *problem, chosen=configuration: chosen)
        again = compare(scene, CROSS_CORRELATION)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cutoff": -1.0}, "cutoff must be positive"),
        ({"shape": (0, 3, 3)}, "three sizes"),
        ({"positions": torch.zeros(8, 2)}, "positions must be"),
        ({"amplitudes": torch.zeros(8, 6), "exponents": torch.zeros(8, 6)}, "between 1 and 5"),
        ({"matrix": torch.eye(3)}, "matrix must be float64"),
    ],
)
def test_bad_arguments_are_named(wrong, says):
    scene = small(n_atoms=8)
    for name, value in wrong.items():
        setattr(scene, name, value)
    with pytest.raises(ValueError, match=says):
        scene.splat(splat)


@needs_gpu
@measures
def test_every_measure_is_captured_in_a_cuda_graph(measure):
    scene = Scene(cell_steps(1.0, 0.9, 1.1), shape=(40, 41, 44), n_atoms=500, dtype=torch.float32)
    given = scene.correlated().similarity(measure, where=lambda *arguments: arguments)
    assert_captured(torch.ops.openmm_density.density_similarity.default, [*given, None])


@needs_gpu
def test_nothing_waits_for_the_gpu():
    scene = small()
    arguments = [x.cuda() if isinstance(x, torch.Tensor) else x for x in (scene.positions, *scene.model)]
    place = [x.cuda() for x in scene.place]
    gpu.density_splat(*arguments, *place, scene.shape, False)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        gpu.density_splat(*arguments, *place, scene.shape, False)
        gpu.density_gather(torch.zeros(scene.shape, device="cuda"), *arguments, *place, False)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_gpu_without_triton_is_told_clearly(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "triton" else find(name))
    monkeypatch.setattr(library, "_on_gpu", set())
    with pytest.raises(RuntimeError, match="pip install triton"):
        library._serve_gpu("density")


def test_a_gpu_that_the_kernels_were_not_tuned_on_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENMM_DENSITY_CACHE", str(tmp_path))
    monkeypatch.delenv("OPENMM_DENSITY_AUTOTUNE", raising=False)
    monkeypatch.setattr(tuning, "_chosen", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU/1")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    default, fast, slow, broken = (gpu.Configuration(128, 128, n) for n in (1, 2, 4, 8))
    calls = []

    def run(configuration):
        calls.append(configuration)
        if configuration == broken:
            raise OutOfResources(1, 0, "registers")

    monkeypatch.setattr(tuning, "_milliseconds", lambda run, c: run(c) or {fast: 1.0, slow: 2.0}[c])
    arguments = ("kernel", (1, 17), default, (slow, broken, fast), run)
    assert tuning.choose(*arguments) == default and not calls
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert tuning.choose(*arguments) == fast
    assert set(calls) == {slow, broken, fast}
    calls.clear()
    assert tuning.choose(*arguments) == fast
    monkeypatch.setattr(tuning, "_chosen", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert tuning.choose(*arguments) == fast and isinstance(tuning.choose(*arguments), gpu.Configuration)
    assert not calls and [path.suffix for path in tmp_path.iterdir()] == [".json"]
    next(tmp_path.iterdir()).write_text("not what it was")
    monkeypatch.setattr(tuning, "_chosen", {})
    assert tuning.choose(*arguments) == default
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert tuning.choose(*arguments) == default
    monkeypatch.setenv("OPENMM_DENSITY_AUTOTUNE", "0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert tuning.choose(*arguments) == default
