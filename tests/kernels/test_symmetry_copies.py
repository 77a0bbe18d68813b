"""Copies by symmetry operators and their gradients, C++ and Triton: against the reference and autograd in float64."""

import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.molecules import folded_copies, reference, symmetry_copies

from . import operators

both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def case(dtype, n=70, fitted=45, copies=11):
    generator = torch.Generator().manual_seed(3)
    positions = torch.randn(n, 3, generator=generator, dtype=torch.float64).to(dtype) * 5
    atoms = torch.randperm(n, generator=generator)[:fitted]
    rotations = torch.linalg.qr(torch.randn(copies, 3, 3, generator=generator, dtype=torch.float64))[0]
    translations = torch.randn(copies, 3, generator=generator, dtype=torch.float64) * 8
    gradient = torch.randn(copies * fitted, 3, generator=generator, dtype=torch.float64).to(dtype)
    return positions, atoms, rotations.contiguous(), translations, gradient


def assert_right(copied, folded, positions, atoms, rotations, translations, gradient):
    """Against the reference with the same numbers in float64."""
    tight = 1e-12 if positions.dtype == torch.float64 else 2e-6
    expected = reference.symmetry_copies(positions.double(), atoms, rotations, translations)
    assert copied.dtype == folded.dtype == positions.dtype
    torch.testing.assert_close(copied.double(), expected, rtol=tight, atol=tight)
    expected = reference.folded_copies(gradient.double(), atoms, rotations, len(positions))
    torch.testing.assert_close(folded.double(), expected, rtol=tight, atol=tight)


@pytest.fixture
def compiled():
    if not compilation.load("molecules"):
        pytest.skip("no C++ compiler")


@both_types
@pytest.mark.parametrize("fitted", [45, 70])
@pytest.mark.parametrize(
    "functions",
    [
        (symmetry_copies, folded_copies),
        [operators.in_triton("molecules", name) for name in ("symmetry_copies", "folded_copies")],
    ],
    ids=["C++", "Triton"],
)
def test_the_kernels_are_the_reference(compiled, functions, dtype, fitted):
    positions, atoms, rotations, translations, gradient = case(dtype, fitted=fitted)
    copied = functions[0](positions, atoms, rotations, translations)
    folded = functions[1](gradient, atoms, rotations, len(positions))
    assert_right(copied, folded, positions, atoms, rotations, translations, gradient)


def test_gradients_by_copies_are_folded_as_autograd_does():
    positions, atoms, rotations, translations, gradient = case(torch.float64)
    positions.requires_grad_()
    moved = torch.einsum("gij,aj->gai", rotations, positions[atoms]) + translations[:, None]
    torch.testing.assert_close(
        reference.symmetry_copies(positions, atoms, rotations, translations), moved.reshape(-1, 3)
    )
    (expected,) = torch.autograd.grad(moved, positions, gradient.reshape(moved.shape))
    torch.testing.assert_close(reference.folded_copies(gradient, atoms, rotations, len(positions)), expected)


def sentence(function, *arguments):
    """Return what a function says of arguments that it refuses."""
    with pytest.raises(ValueError) as refused:
        function(*arguments)
    return str(refused.value)


WRONG = {
    "positions must be a tensor of torch.float32": (0, torch.zeros(70, 2)),
    "positions must be a tensor of torch.float64": (0, torch.zeros(70, 2, dtype=torch.float64)),
    "rotations must be": (2, torch.zeros(11, 3, 3)),
    "translations must be": (3, torch.zeros(10, 3, dtype=torch.float64)),
    "atoms must be": (1, torch.zeros(5, dtype=torch.int32)),
    "atoms holds index 70, but there are 70 particles": (1, torch.tensor([0, 70])),
    "atoms holds index 9 twice": (1, torch.tensor([3, 9, 5, 9, 5])),
}


@pytest.mark.parametrize(("message", "change"), WRONG.items(), ids=WRONG.keys())
def test_bad_arguments_of_copies_are_refused(compiled, message, change):
    arguments = [*case(torch.float32)[:4]]
    arguments[change[0]] = change[1]
    said = sentence(symmetry_copies, *arguments)
    assert said.startswith(f"symmetry_copies: {message}")
    assert sentence(reference.symmetry_copies, *arguments) == said


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("gradient must be", (0, torch.zeros(494, 3))),
        ("atoms must be", (1, torch.zeros(45, dtype=torch.int32))),
        # Else a GPU would leave rows of some particles as they are in new memory.
        ("atoms holds index 0 twice", (1, torch.zeros(45, dtype=torch.int64))),
    ],
)
def test_bad_arguments_of_folds_are_refused(compiled, message, change):
    _, atoms, rotations, _, gradient = case(torch.float32)
    arguments = [gradient, atoms, rotations, 70]
    arguments[change[0]] = change[1]
    said = sentence(folded_copies, *arguments)
    assert said.startswith(f"folded_copies: {message}")
    assert sentence(reference.folded_copies, *arguments) == said
