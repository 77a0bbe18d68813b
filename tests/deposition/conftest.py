"""The figures of a small real model, computed once."""

import pytest

from openmm_density import DensityMap
from openmm_density.deposition.figures import FiguresOfModel, deposition_figures
from openmm_density.deposition.table import TableInput, crystal_of
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
    crystal = crystal_of(density_map, model.cell, model.space_group)
    return TableInput(
        figures, geometry, 3.2, "5ni1_updated.cif", "emd_3488.mrc", density_map.voxel_size, crystal, "1.2"
    )
