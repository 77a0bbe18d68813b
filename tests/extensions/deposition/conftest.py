"""The figures of a small real model, computed once."""

import pytest

from openmm_density import DensityMap
from openmm_density.extensions.deposition.diffraction import Crystal, DiffractionFigures, DiffractionShell
from openmm_density.extensions.deposition.figures import FiguresOfModel, deposition_figures
from openmm_density.extensions.deposition.table import TableInput
from openmm_density.models.structures import read_model
from openmm_density.validation.geometry import geometry_report


@pytest.fixture(scope="session")
def haemoglobin(small_data):
    folder = small_data / "emd3488_5ni1"
    return read_model(folder / "5ni1_updated.cif"), DensityMap.from_file(folder / "emd_3488.mrc")


@pytest.fixture(scope="session")
def known(haemoglobin):
    model, density_map = haemoglobin
    shown = FiguresOfModel(model.topology, model.positions, model.b_factors, model.occupancies)
    figures = deposition_figures(
        shown, density_map, 3.2, residue_q_scores=[0.6] * model.topology.getNumResidues()
    )
    geometry = geometry_report(model.topology, model.positions).as_dict()
    return TableInput(
        figures, geometry, 3.2, "5ni1_updated.cif", "emd_3488.mrc", density_map.voxel_size, "1.2"
    )


@pytest.fixture(scope="session")
def crystal():
    """Return a crystal whose data are known."""
    whole = DiffractionShell(20.0, 1.5, 9500, 500, 0.985, 21.25, 0.1853, 0.1843, 0.2149)
    finest = DiffractionShell(1.55, 1.5, 950, 50, 0.877, 2.5, 0.301, 0.3, 0.35)
    data = DiffractionFigures(whole, finest, 14.25, 0.35, 45.5)
    return Crystal("P 1 21 1", (10, 20, 30, 90, 95.5, 90), data)
