"""Acetamide beside a peptide, and untrained potentials of it, which need no teacher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmm_density.extensions.distillation import Accuracy, Ligand, LigandPotential, Teacher
from openmm_density.models import Model, read_model

from ...fragments import write_fragment
from ...models.test_ligands import BONDS, ELEMENTS, PLACES, SMILES
from ...small_models import hetatm

NAMES = {6: "C", 7: "N", 8: "O", 1: "H"}


def write_model(path: Path, *ligands: tuple[str, int, range, np.ndarray]) -> Path:
    """Write a peptide of 5 residues, and acetamides: residue name and number, the atoms that are there, and where in Å."""
    lines = [line for line in write_fragment(path, residues=5).read_text().splitlines() if line[:4] == "ATOM"]
    for name, number, atoms, place in ligands:
        for k in atoms:
            symbol = NAMES[ELEMENTS[k]]
            atom = hetatm(len(lines) + 100, f"{symbol}{k + 1}", name, number, PLACES[k] + place, symbol)
            lines.append(atom)
    path.write_text("\n".join([*lines, "END", ""]))
    return path


@pytest.fixture(scope="session")
def model_path(tmp_path_factory) -> Path:
    """Return the file of a peptide with two acetamides, of which the second has its hydrogens."""
    path = tmp_path_factory.mktemp("ligands") / "model.pdb"
    places = np.array([40.0, 0.0, 10.0]), np.array([40.0, 0.0, 20.0])
    return write_model(path, ("ACM", 501, range(4), places[0]), ("ACM", 502, range(9), places[1]))


@pytest.fixture(scope="session")
def model(model_path) -> Model:
    return read_model(model_path)


def acetamide(scale: float, seed: int = 0) -> LigandPotential:
    """Return a potential whose students are random, and that times a factor: of 0 they agree that there is no energy."""
    import torch

    from openmm_density.energies.painn_network import PaiNNNetwork

    torch.manual_seed(seed)
    ligand = Ligand(tuple(ELEMENTS), tuple((a, b, 1.0) for a, b in BONDS), 0, SMILES, PLACES / 10, ())
    students = [PaiNNNetwork(ligand.elements, features=32, layers=1, n_radial=4) for _ in range(3)]
    for student in students:
        student.scale.fill_(scale)
    return LigandPotential(
        ligand=ligand,
        charges=np.array([-0.1, 0.5, -0.5, -0.6, 0.02, 0.04, 0.06, 0.28, 0.30]),
        students=tuple(each.tensors() for each in students),
        network=students[0].settings,
        teacher=Teacher("GFN2-xTB", None, "tblite 0.8.0"),
        accuracy=Accuracy(7, 300.0, 0.1, 0.4, 0.5, 3.0, (0.7, 0.6, 0.8), 0.2, 0.9),
        temperatures=(300.0, 1000.0),
        done=True,
        created_by="a test",
    )


@pytest.fixture(scope="session")
def agreed() -> LigandPotential:
    """Return a potential that knows all geometries, and has no energy."""
    return acetamide(0.0)


@pytest.fixture(scope="session")
def unsure() -> LigandPotential:
    """Return a potential whose students never agree."""
    return replace(acetamide(1000.0), accuracy=replace(acetamide(0.0).accuracy, disagreement_worst=1e-6))
