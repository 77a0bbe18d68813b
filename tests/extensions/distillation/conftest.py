import numpy as np
import pytest

from openmm_density.energies.painn_network import PaiNNNetwork
from openmm_density.extensions.distillation import Accuracy, Ligand, LigandPotential, Teacher


@pytest.fixture
def potential():
    """Return an untrained potential of methanol: its students' weights are random."""
    import torch

    bonds = ((0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0), (0, 4, 1.0), (1, 5, 1.0))
    # All within the reach of each other.
    positions = np.random.default_rng(0).normal(scale=0.1, size=(6, 3))
    names = ("C1", "O1", "H1", "H2", "H3", "H4")
    ligand = Ligand((6, 8, 1, 1, 1, 1), bonds, 0, "CO", positions, names)
    torch.manual_seed(0)
    students = [PaiNNNetwork(ligand.elements, features=32, layers=1, n_radial=4) for _ in range(3)]
    accuracy = Accuracy(7, 300.0, 0.1, 0.4, 0.5, 3.0, (0.6, 0.7, 0.6), 0.2, 0.9)
    return LigandPotential(
        ligand=ligand,
        charges=np.array([0.1, -0.5, 0.05, 0.05, 0.05, 0.25]),
        students=tuple(each.tensors() for each in students),
        network=students[0].settings,
        teacher=Teacher("GFN2-xTB", "water", "tblite 0.8.0"),
        accuracy=accuracy,
        temperatures=(300.0, 1000.0),
        done=True,
        created_by="openmm-density 0.1.0",
    )
