"""Any torch module as a force, on the CPU: what it is given, what it may return, and what is refused."""

import numpy as np
import openmm
import pytest
import torch

from openmm_density.energies.forces import backend_problem
from openmm_density.energies.native_force import CudaGraphForce

from ...contexts import context_of, energy_of, forces_of, system_of
from ..test_forces import BOX, POSITIONS, context_with, energy_and_forces

pytestmark = [
    pytest.mark.skipif(
        backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
    ),
    pytest.mark.filterwarnings("ignore:a module that is none of this package's"),
]


class Quartic(torch.nn.Module):
    """E = a Σ x⁴ + b Σ x², by a weight that is trained, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, positions: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.weight * (a * (positions**4).sum() + b * (positions**2).sum())


def test_forces_and_derivatives_come_from_autograd():
    force = CudaGraphForce(Quartic(), {"a": 3.0, "b": 0.5}, particles=[0, 2], parameter_derivatives=["b"])
    assert isinstance(force, openmm.Force) and not force.isEvaluatedNatively()
    assert [force.getGlobalParameterName(i) for i in range(2)] == ["a", "b"]
    assert force.getNumEnergyParameterDerivatives() == 1
    system = system_of(3, force)
    read = openmm.XmlSerializer.deserialize(openmm.XmlSerializer.serialize(system))
    x = POSITIONS[[0, 2]]
    for each in (system, read):
        context = context_of(each)
        context.setPositions(POSITIONS)
        for a, b in ((3.0, 0.5), (0.0, -2.0)):
            context.setParameter("a", a)
            context.setParameter("b", b)
            assert energy_of(context) == pytest.approx(2 * (a * (x**4).sum() + b * (x**2).sum()), rel=1e-5)
            expected = np.zeros((3, 3))
            expected[[0, 2]] = -2 * (4 * a * x**3 + 2 * b * x)
            np.testing.assert_allclose(forces_of(context), expected, rtol=1e-5, atol=1e-6)
            slopes = context.getState(parameterDerivatives=True).getEnergyParameterDerivatives()
            assert slopes["b"] == pytest.approx(2 * (x**2).sum(), rel=1e-5)


class Boxed(torch.nn.Module):
    def forward(self, positions, box):
        assert positions.dtype == box.dtype == torch.float32
        return box[1, 1] * positions.sum(), -box[1, 1] * torch.ones_like(positions)


def test_a_box_comes_behind_the_positions_and_forces_may_be_its_own():
    energy, found = energy_and_forces(context_with(CudaGraphForce(Boxed(), periodic=True), box=BOX))
    assert energy == pytest.approx(3.1 * POSITIONS.sum(), rel=1e-5)
    np.testing.assert_allclose(found, -3.1, rtol=1e-6)


class Returning(torch.nn.Module):
    def __init__(self, returned) -> None:
        super().__init__()
        self.returned = returned

    def forward(self, positions):
        return self.returned(positions)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda x: x, r"not a tensor of the shape \(3, 3\)"),
        (
            lambda x: (x.sum(), x[:2]),
            r"forces of the shape \(3, 3\), not \(a tensor of the shape \(\), a tensor of",
        ),
        (lambda x: float(x.sum()), "not float"),
        (lambda x: None, "not NoneType"),
    ],
)
def test_what_is_no_energy_is_refused(returned, words):
    context = context_with(CudaGraphForce(Returning(returned)))
    with pytest.raises(
        openmm.OpenMMException, match=f"must return the energy as a tensor of one number.*{words}"
    ):
        energy_of(context)


def test_an_energy_that_does_not_depend_on_the_positions_has_no_force():
    context = context_with(CudaGraphForce(Returning(lambda x: torch.tensor([4.0]))))
    assert energy_of(context) == 4.0 and not forces_of(context).any()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((lambda x: x.sum(),), {}, TypeError, "must be a torch.nn.Module, not function"),
        ((Quartic(),), {}, TypeError, r"is called with \(positions\), but its forward has missing .*'a'"),
        ((Boxed(), {"k": 1.0}), {"periodic": True}, TypeError, "positions, box, a parameter.*too many"),
        (
            (Quartic(), {"a": 1.0, "b": 1.0}),
            {"parameter_derivatives": ["c"]},
            ValueError,
            "names c, not among",
        ),
        (
            (Boxed(),),
            {"periodic": True, "particles": [1, 1]},
            ValueError,
            "indices from 0 on, each at most once",
        ),
        ((Boxed(),), {"periodic": True, "particles": [0.5]}, ValueError, "indices from 0 on"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, options, error, words):
    with pytest.raises(error, match=words):
        CudaGraphForce(*arguments, **options)
