"""A series of three volumes of a hairpin that bends, and what came of it, which several test files look at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.series import InternalCoordinate, Series
from openmm_density.fitting import find_protocol
from openmm_density.models import read_model

from ...fragments import write_with_alternates

RESOLUTION, RESIDUES, HINGE = 5.0, 24, 12
DEGREES = (0.0, 4.0, 8.0)
DISTANCE = InternalCoordinate("distance", ("resid 0 to 5", "resid 18 to 23"))


def bent(model, degrees):
    """Return the positions of a model whose second half is turned about the Cα of residue 12."""
    places, turn = model.positions.copy(), Rotation.from_rotvec([0, 0, np.radians(degrees)])
    moving = [atom.index for atom in model.topology.atoms() if atom.residue.index >= HINGE]
    (hinge,) = (
        atom.index for atom in model.topology.atoms() if atom.residue.index == HINGE and atom.name == "CA"
    )
    places[moving] = turn.apply(places[moving] - places[hinge]) + places[hinge]
    return places


@pytest.fixture(scope="session")
def volumes(tmp_path_factory):
    """Return a folder with a model, one side chain of it with an alternate conformer, and three volumes."""
    folder = tmp_path_factory.mktemp("volumes")
    model = read_model(write_with_alternates(folder / "model.pdb", residues=RESIDUES))
    grid = None
    for number, degrees in enumerate(DEGREES, start=1):
        made = DensityMap.simulate(
            model.topology,
            bent(model, degrees),
            RESOLUTION,
            None if grid else 1.25,
            like=grid,
            noise=0.1,
            seed=number,
        )
        grid = grid or made
        made.write(folder / f"vol_{number}.mrc")
    return folder


def series_in(volumes, output, **options):
    """Return a short series of the volumes."""
    quick = replace(find_protocol("quick", RESOLUTION), strength=200.0, minimize_last=200).with_steps(40)
    maps = [volumes / f"vol_{number}.mrc" for number in (1, 2, 3)]
    given = {
        "start_at": 2,
        "threads": 1,
        "workers": 1,
        "report_interval": 20,
        "save_interval": 20,
        "coordinates": [DISTANCE],
        **options,
    }
    return Series(volumes / "model.pdb", maps, RESOLUTION, output, protocols=(quick, quick), **given)


@pytest.fixture(scope="session")
def finished(volumes, tmp_path_factory):
    """Return a finished series and its result."""
    series = series_in(volumes, tmp_path_factory.mktemp("finished") / "out")
    lines = []
    return series, series.run(lambda *line: lines.append(line)), lines


@pytest.fixture(scope="module", autouse=True)
def _forked(forked):
    """Fork the processes of all files here."""
