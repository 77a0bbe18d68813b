"""What every operator promises, tried with the example in its folder."""

import os
import warnings
from importlib import import_module

import pytest
import torch

from openmm_density.kernels import compilation, library
from openmm_density.kernels.compilation import sources

from ..seeds import shift_seeds
from .children import Child
from .operators import Calls, scripted, tensors_of

# But for lists of neighbours, which change with each call.
FOLDERS = sorted({*library.operator_folders()} - {"neighbors"})
operators = pytest.mark.parametrize("folder", FOLDERS)


def examples_of(folder):
    return import_module(f"openmm_density.kernels.{folder}.example").examples()


def results_of(folder):
    return [each for function, given in examples_of(folder).values() for each in tensors_of(function(*given))]


def calls_of(folder):
    """Return the operators of a folder with the arguments that its examples call them with."""
    examples = examples_of(folder)
    with Calls() as calls:
        for function, arguments in examples.values():
            function(*arguments)
    return calls.found


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in sources.KERNELS.glob("*/cpu.cpp")))
def test_compiled_code_serves_unless_it_is_left_out_on_purpose(folder):
    loaded = compilation.load(folder)
    assert loaded == (os.environ.get("CXX") != "/nonexistent"), compilation.error_text(folder)


@operators
def test_in_torchscript_it_is_the_same_after_saving_and_loading(folder):
    for operator, arguments in calls_of(folder):
        for found, expected in zip(
            tensors_of(scripted(operator)(*arguments)), tensors_of(operator(*arguments))
        ):
            assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("density", "density_similarity"),
        ("interpolation", "map_potential"),
        ("pairs", "pairs"),
        ("pairs", "mate_contacts"),
        ("planarity", "planarity"),
        ("torsion_maps", "torsion_maps"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_derivative_of_an_energy_is_its_gradient(folder, name, dtype):
    function, (first, *others) = examples_of(folder)[name]
    for call in (function, torch.jit.script(function)):
        positions = first.to(dtype, copy=True).requires_grad_()
        energy, gradient, *_ = call(positions, *others)
        (3 * energy + 1).backward()
        assert positions.grad.dtype == dtype and not gradient.requires_grad
        torch.testing.assert_close(positions.grad, 3 * gradient)


def results_without_a_compiler(file):
    shift_seeds()  # as those of the tests are
    warnings.simplefilter("ignore")
    torch.save({folder: results_of(folder) for folder in FOLDERS}, file)
    return [folder for folder in FOLDERS if compilation.load(folder)]


def test_without_a_compiler_the_references_serve(tmp_path):
    file = tmp_path / "results.pt"
    child = Child(results_without_a_compiler, file, cache=tmp_path / "cache", CXX="/nonexistent")
    assert child.result() == []
    for folder, found in torch.load(file).items():
        for one, other in zip(found, results_of(folder), strict=True):
            assert one.dtype == other.dtype
            assert one.allclose(other, rtol=0, atol=1e-5 * float(other.abs().max())), folder
