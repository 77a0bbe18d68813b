"""The teacher's labels: units, what is kept, and what is put aside."""

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.distillation import Ligand
from openmm_density.extensions.distillation.labels import Labeller

WATER = Ligand(
    (8, 1, 1),
    ((0, 1, 1.0), (0, 2, 1.0)),
    0,
    "O",
    np.array([[0.0, 0.0, 0.0], [0.0959, 0.0, 0.0], [-0.0240, 0.0928, 0.0]]),
)


def spring(positions):
    """A teacher whose numbers are known."""
    return float((positions**2).sum()), -2 * positions, np.arange(3.0)


def test_gfn2_has_openmm_s_units_and_the_published_dipole_s_charges():
    pytest.importorskip("tblite", reason="the extra [ligands] is not installed")
    moves = np.zeros((3, 3, 3))
    moves[1, 1, 0], moves[2, 1, 0] = 1e-4, -1e-4
    labels = Labeller(WATER, threads=2)(WATER.positions + moves)
    # xtb 6.4 gives -5.0705 hartree for water's minimum.
    assert labels.energies[0] / 2625.49964 == pytest.approx(-5.0705, abs=5e-4)
    slope = -(labels.energies[1] - labels.energies[2]) / 2e-4
    assert labels.forces[0, 1, 0] == pytest.approx(slope, abs=0.5)
    assert labels.charges.sum(-1) == pytest.approx(0.0, abs=1e-9)
    assert labels.charges[0, 0] == pytest.approx(-0.565, abs=0.02)
    assert labels.usable.all()


def test_atoms_on_one_another_are_put_aside():
    pytest.importorskip("tblite", reason="the extra [ligands] is not installed")
    pressed = WATER.positions.copy()
    pressed[2] = pressed[1] + 1e-3
    labels = Labeller(WATER)(np.stack([WATER.positions, pressed]))
    assert labels.usable.tolist() == [True, False]


def test_labels_are_kept_and_not_computed_again(tmp_path):
    asked = []

    def teacher(positions):
        asked.append(1)
        return spring(positions)

    path = tmp_path / "some" / "water.labels"
    geometries = WATER.positions + np.random.default_rng(0).normal(size=(5, 3, 3))
    told = []
    first = Labeller(WATER, path=path, threads=2, evaluate=teacher)(geometries[:3], told.append)
    assert (len(asked), told) == (3, [1, 2, 3])
    again = Labeller(WATER, path=path, evaluate=teacher)
    labels = again(geometries)
    assert (len(asked), again.n_computed) == (5, 2)
    np.testing.assert_array_equal(labels.energies[:3], first.energies)
    np.testing.assert_array_equal(labels.forces, -2 * geometries)
    np.testing.assert_array_equal(labels.charges, np.tile(np.arange(3.0), (5, 1)))
    charged = Ligand(WATER.elements, WATER.bonds, 1, "[OH2+]", WATER.positions)
    Labeller(charged, path=path, evaluate=teacher)(geometries[:1])
    assert len(asked) == 6


def test_what_is_no_file_of_labels_is_refused(tmp_path):
    path = tmp_path / "water.labels"
    path.write_text("ATOM" * 1000)
    with pytest.raises(InputError, match="cannot be used as a file of labels"):
        Labeller(WATER, path=path, evaluate=spring)


def test_unknown_solvents_are_refused():
    with pytest.raises(InputError, match='solvent must be a known solvent, found "ink": use one of water'):
        Labeller(WATER, "ink", evaluate=spring)
