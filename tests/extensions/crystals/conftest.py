"""A crystal whose truth is known: a part of a protein in its own cell."""

import gemmi
import numpy as np
import pytest

from .simulated import simulated, usual_columns, write_mtz


@pytest.fixture(scope="session")
def protein(small_data) -> gemmi.Structure:
    """Return 120 residues in the cell of their crystal (P 1 21 1), without waters and hydrogens."""
    structure = gemmi.read_structure(str(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb"))
    structure.setup_entities()
    structure.remove_ligands_and_waters()
    structure.remove_hydrogens()
    structure.setup_cell_images()
    return structure


@pytest.fixture(scope="session")
def crystal(protein, tmp_path_factory):
    """Return the folder of ``model.pdb`` and ``data.mtz``, to 3 Å with errors of a fifth, and the true structure factors."""
    folder = tmp_path_factory.mktemp("crystal")
    protein.write_pdb(str(folder / "model.pdb"))
    hkl, amplitudes, true = simulated(protein, 3.0, error=0.2)
    free = np.random.default_rng(5).random(len(hkl)) < 0.08
    write_mtz(folder / "data.mtz", protein, hkl, usual_columns(amplitudes, free))
    return folder, hkl, amplitudes, true, free
