"""A crystal of a peptide whose truth is known."""

import gemmi
import numpy as np
import pytest

from ..crystals.simulated import simulated, usual_columns, write_mtz


@pytest.fixture(scope="package")
def folder(small_data, tmp_path_factory):
    """Return the folder of a peptide's crystal in P 21 21 21; ``start.pdb`` is 0.5 Å off what ``data.mtz`` was made of."""
    path = tmp_path_factory.mktemp("peptide")
    structure = gemmi.read_structure(str(small_data / "xray_1g8a_P21" / "1G8A_refined.pdb"))
    structure.setup_entities()
    structure.remove_ligands_and_waters()
    structure.remove_hydrogens()
    structure.remove_alternative_conformations()
    chain = structure[0][0]
    del chain[14:]
    places = np.array([cra.atom.pos.tolist() for cra in structure[0].all()])
    sides = np.ptp(places, axis=0) + 7.0
    shift = sides / 4 - places.mean(axis=0)
    structure.cell, structure.spacegroup_hm = (
        gemmi.UnitCell(*np.round(sides * 1.2, 2), 90, 90, 90),
        "P 21 21 21",
    )
    move(structure, lambda position: position + shift)
    structure.setup_cell_images()
    hkl, amplitudes, _ = simulated(structure, 2.4, error=0.1)
    free = np.arange(len(hkl)) % 12 == 5
    write_mtz(path / "data.mtz", structure, hkl, usual_columns(amplitudes, free))
    write_mtz(path / "no_flags.mtz", structure, hkl, usual_columns(amplitudes, None))
    structure.write_pdb(str(path / "true.pdb"))
    move(structure, lambda position: position + 0.7 * np.sin(position / 3.0)[[1, 2, 0]])
    structure.write_pdb(str(path / "start.pdb"))
    return path


def move(structure, to):
    for cra in structure[0].all():
        cra.atom.pos = gemmi.Position(*to(np.array(cra.atom.pos.tolist())))
