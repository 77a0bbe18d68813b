"""States of a fit in progress, and the trajectory that belongs to them."""

from dataclasses import replace

import mdtraj
import numpy as np
import pytest
from openmm import app

from openmm_density.errors import InputError
from openmm_density.fitting.checkpoints import (
    LOG,
    PREVIOUS,
    STATE,
    RunFolder,
    RunState,
    Trajectory,
    cut_trajectory,
)

ATOMS = 5


@pytest.fixture
def topology():
    topology = app.Topology()
    chain = topology.addChain("A")
    for number in range(ATOMS):
        residue = topology.addResidue("GLY", chain, str(number + 1))
        topology.addAtom("CA", app.element.carbon, residue)
    return topology


def state(step, **changes):
    rng = np.random.default_rng(step)
    arrays = {name: rng.normal(size=(ATOMS, 3)) for name in ("positions", "velocities", "relaxed")}
    return RunState(**arrays, step=step, rows=[{"step": step, "cc": 0.1 + 0.2}], **changes)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_a_state_comes_back_bit_for_bit(tmp_path, topology):
    folder = RunFolder(tmp_path / "run")
    written = state(7, box=np.eye(3) * 4.2, strength=1 / 3, plateau={"previous": [0.1, [[0.7]]]})
    assert not folder.holds_a_state
    folder.save(written, topology, np.zeros(ATOMS))
    assert folder.holds_a_state and same(folder.load(), written)
    model = mdtraj.load(str(folder.last_good))
    assert np.abs(model.xyz[0] - written.positions).max() < 1e-4


def test_a_state_comes_with_its_log(tmp_path, topology):
    folder = RunFolder(tmp_path / "run")
    rows = [{"step": step, "cc": 0.1 + step, "ca_rmsd": None} for step in (0, 40)]
    folder.save(state(0), topology, np.zeros(ATOMS))
    folder.save(replace(state(40), rows=rows), topology, np.zeros(ATOMS))
    assert (folder.path / LOG).read_text() == "step,cc\n0,0.1\n40,40.1\n"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "gone", "rubbish"])
def test_a_damaged_state_falls_back_to_the_one_before(tmp_path, topology, damage):
    folder = RunFolder(tmp_path / "run")
    for step in (1, 2, 3):
        folder.save(state(step), topology, np.zeros(ATOMS))
    path = folder.path / STATE
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = bytearray(whole)
        flipped[whole.index(state(3).positions.tobytes()) + 50] ^= 64
        path.write_bytes(
            {"truncated": whole[:-50], "flipped": bytes(flipped), "empty": b"", "rubbish": b"x" * 999}[damage]
        )
    assert same(folder.load(), state(2))
    (folder.path / PREVIOUS).write_bytes(b"")
    with pytest.raises(InputError, match="cannot be resumed"):
        folder.load()


def test_frames_that_no_state_knows_are_cut_off(tmp_path, topology):
    frames = np.random.default_rng(0).normal(size=(6, ATOMS, 3)).astype(np.float32)
    path, whole = tmp_path / "trajectory.dcd", tmp_path / "whole.dcd"
    with Trajectory(whole, topology, 0.004, 10, 0) as trajectory:
        for frame in frames:
            trajectory.add(frame, None)
    with Trajectory(path, topology, 0.004, 10, 0) as trajectory:
        for frame in frames[:5]:
            trajectory.add(frame, None)
    with open(path, "ab") as file:
        file.write(b"half a frame")
    assert cut_trajectory(path, 4)
    model = mdtraj.Topology.from_openmm(topology)
    assert np.allclose(mdtraj.load(str(path), top=model).xyz, frames[:4], atol=1e-6)
    with Trajectory(path, topology, 0.004, 10, 4) as trajectory:
        for frame in frames[4:]:
            trajectory.add(frame, None)
    # All but the date.
    assert (
        path.read_bytes()[276:] == whole.read_bytes()[276:]
        and path.read_bytes()[:92] == whole.read_bytes()[:92]
    )
    assert not cut_trajectory(path, 7)
    assert cut_trajectory(path, 0) and not path.exists()
    assert not cut_trajectory(path, 1)


def test_a_frame_holds_its_box(tmp_path, topology):
    topology.setPeriodicBoxVectors(np.eye(3) * 3.0)
    path = tmp_path / "trajectory.dcd"
    with Trajectory(path, topology, 0.004, 10, 0) as trajectory:
        for side in (3.0, 3.1, 3.2):
            trajectory.add(np.zeros((ATOMS, 3)), np.eye(3) * side)
    assert cut_trajectory(path, 2)
    read = mdtraj.load(str(path), top=mdtraj.Topology.from_openmm(topology))
    assert read.unitcell_lengths[:, 0] == pytest.approx([3.0, 3.1])


def test_a_state_without_its_frames_is_not_taken(tmp_path, topology):
    folder = RunFolder(tmp_path / "run")
    folder.save(state(1, frames=3), topology, np.zeros(ATOMS))
    with pytest.raises(InputError, match="fewer than the 3 frames"):
        folder.load()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        RunFolder(tmp_path / "file" / "run")


def test_a_full_disk_is_told_of(topology):
    with (
        Trajectory("/dev/full", topology, 0.004, 10, 0) as trajectory,
        pytest.raises(InputError, match="make room"),
    ):
        trajectory.add(np.zeros((ATOMS, 3)), None)
