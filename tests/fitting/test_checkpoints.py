"""States of a fit in progress, and the trajectory that belongs to them."""

import io
import json
import math
import zipfile

import mdtraj
import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.fitting.adaptive_strength import AdaptiveStrength
from openmm_density.fitting.checkpoints import PREVIOUS, STATE, RunFolder, Trajectory, cut_trajectory
from openmm_density.fitting.convergence import Plateau
from openmm_density.fitting.fit_result import Row
from openmm_density.fitting.run_state import RunState

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
    rows = [Row(step, "a", -1.0, 2.0, 3.0, 0.4, 0.1 + 0.2, 300.0, math.nan)]
    return RunState(**arrays, step=step, rows=rows, **changes)


def same(a, b):
    # As text, which has every bit, and in which a number that is none equals itself.
    return plain(a) == plain(b)


def plain(value):
    return json.dumps(
        value, default=lambda part: part.tolist() if isinstance(part, np.ndarray) else vars(part)
    )


def test_a_state_comes_back_bit_for_bit(tmp_path, topology):
    folder = RunFolder(tmp_path / "run")
    plateau = Plateau(previous=(0.1, np.array([[0.7, 0.8, 0.9]])), total=np.full((1, 3), 1 / 3), at_rest=1)
    adaptive = AdaptiveStrength(factor=1.5, average=0.1 + 0.2)
    written = state(7, box=np.eye(3) * 4.2, strength=1 / 3, plateau=plateau, adaptive=adaptive)
    assert not folder.holds_a_state
    folder.save(written, topology, np.zeros(ATOMS))
    assert folder.holds_a_state and same(folder.load(), written)
    model = mdtraj.load(str(folder.last_good))
    assert np.abs(model.xyz[0] - written.positions).max() < 1e-4


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


def write_state(path, **changes):
    """Write a whole archive, with sums that are right, whose entries are others."""
    with np.load(path) as archive:
        entries = dict(archive)
    plain = json.loads(entries.pop("plain").tobytes())
    arrays = {name: value for name, value in changes.items() if isinstance(value, np.ndarray)}
    plain |= {name: value for name, value in changes.items() if name not in arrays}
    np.savez(path, plain=np.frombuffer(json.dumps(plain).encode(), np.uint8), **entries | arrays)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"positions": np.zeros((ATOMS, 3), np.float32)}, "positions is of float32, not of float64"),
        ({"velocities": np.zeros((ATOMS, 3), np.complex128)}, "velocities is of complex128"),
        ({"velocities": np.zeros((ATOMS, 2))}, r"velocities has the shape \(5, 2\), not \(5, 3\)"),
        ({"relaxed": np.zeros((ATOMS - 1, 3))}, "relaxed has the shape"),
        ({"positions": np.zeros(15)}, "positions has the shape"),
        ({"positions": np.full((ATOMS, 3), np.nan)}, "positions has values that are not numbers"),
        ({"velocities": np.full((ATOMS, 3), np.inf)}, "velocities has values"),
        ({"box": np.eye(2)}, "box has the shape"),
        ({"other": np.eye(3)}, "another version"),
        ({"step": "7"}, "step is '7'"),
        ({"step": -7}, "step is -7"),
        ({"stage": 1.0}, "stage is 1.0"),
        ({"frames": True}, "frames is True"),
        ({"frames": 10**30}, "frames is 1000"),
        ({"strength": [3.0]}, "strength is"),
        ({"strength": math.nan}, "strength is nan"),
        ({"seconds": None}, "seconds is None"),
        ({"seconds": math.inf}, "seconds is inf"),
        ({"blow_ups": [1]}, "blow_ups is"),
        ({"ended": {"name": "a"}}, "ended is"),
        ({"adaptive": {"factor": "1"}}, "factor is '1'"),
        ({"adaptive": {"bounds": [1.0]}}, "bounds is"),
        ({"adaptive": {"speed": 1.0}}, "another version"),
        ({"adaptive": [1.0]}, r"AdaptiveStrength is \[1.0\]"),
        ({"plateau": 3}, "Plateau is 3"),
        ({"plateau": {"previous": ["0.1", [[0, 1, 2]]]}}, "previous is"),
        ({"rows": {"step": 1}}, "rows is"),
        ({"rows": [3]}, "Row is 3"),
        ({"plateau": {"total": [[0.0, 1.0]]}}, "no shape"),
        ({"plateau": {"previous": [0.1, [[0, 1, "2"]]]}}, "no shape"),
        ({"plateau": {"previous": [0.1, [[0, 1, 2]]], "total": [[0.0, 1.0, 2.0]] * 2}}, "no shape"),
        ({"rows": [{"step": 1}]}, "another version"),
        ({"format": 1}, "another version"),
        ({"positions": [[0, 0, 0]]}, "another version"),
    ],
)
def test_a_state_that_no_fit_can_have_saved_is_damaged(tmp_path, topology, changes, part):
    folder = RunFolder(tmp_path / "run")
    folder.save(state(1), topology, np.zeros(ATOMS))
    write_state(folder.path / STATE, **changes)
    with pytest.raises(
        InputError, match=rf"run: the fit cannot be resumed, because {STATE} is damaged \(.*{part}"
    ):
        folder.load()
    folder.save(state(2), topology, np.zeros(ATOMS))
    folder.save(state(3), topology, np.zeros(ATOMS))
    write_state(folder.path / STATE, **changes)
    assert same(folder.load(), state(2))


def replace_member(path, name, contents, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()} | {name: contents}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for each, held in members.items():
            archive.writestr(each, held)


def array_header(shape, descr="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue()


@pytest.mark.parametrize(
    "damage", ["petabytes", "negative", "pickle", "deep header", "no header", "packed", "deep plain", "plain"]
)
def test_a_state_that_promises_what_it_has_not(tmp_path, topology, damage):
    folder = RunFolder(tmp_path / "run")
    folder.save(state(2), topology, np.zeros(ATOMS))
    folder.save(state(3), topology, np.zeros(ATOMS))
    path, zeros = folder.path / STATE, bytes(24 * ATOMS)
    if damage == "packed":
        replace_member(path, "velocities.npy", array_header((ATOMS, 3)) + zeros, zipfile.ZIP_DEFLATED)
    elif "plain" in damage:
        text = b"[" * 100_000 if "deep" in damage else b"3"
        replace_member(path, "plain.npy", array_header((len(text),), "|u1") + text)
    else:
        header = {
            "petabytes": array_header((2**48, 3)),
            "negative": array_header((-ATOMS, -3)),
            "pickle": array_header((ATOMS, 3), "|O"),
            "deep header": array_header((1,)).replace(b"(1,)", b"(" * 40 + b"1" + b")" * 40),
            "no header": b"",
        }[damage]
        replace_member(path, "velocities.npy", header + zeros)
    assert same(folder.load(), state(2))


def test_a_trajectory_of_other_atoms_is_not_that_of_a_state(tmp_path, topology):
    folder = RunFolder(tmp_path / "run")
    with Trajectory(folder.trajectory, topology, 0.004, 10, 0) as trajectory:
        for _ in range(4):
            trajectory.add(np.zeros((ATOMS, 3)), None)
    contents = bytearray(folder.trajectory.read_bytes())
    folder.save(state(1, frames=2), topology, np.zeros(ATOMS))
    for count in (ATOMS - 1, -ATOMS, 0):
        contents[268:272] = count.to_bytes(4, "little", signed=True)
        folder.trajectory.write_bytes(contents)
        with pytest.raises(InputError, match="fewer than the 2 frames"):
            folder.load()
        assert folder.trajectory.read_bytes() == contents


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


def test_a_trajectory_has_the_bytes_of_openmm(tmp_path, topology):
    rng = np.random.default_rng(0)
    frames = rng.normal(size=(3, topology.getNumAtoms(), 3))
    with Trajectory(tmp_path / "own.dcd", topology, 0.004, 10, 0) as trajectory:
        for frame in frames[:2]:
            trajectory.add(frame, None)
    with Trajectory(tmp_path / "own.dcd", topology, 0.004, 10, 2) as trajectory:
        trajectory.add(frames[2], None)
    with open(tmp_path / "openmm.dcd", "wb+") as file:
        dcd = app.DCDFile(file, topology, 0.004, firstStep=10, interval=10)
        for frame in frames:
            dcd.writeModel(frame)
    own, theirs = ((tmp_path / f"{name}.dcd").read_bytes() for name in ("own", "openmm"))
    # But for when it was created.
    assert own[:180] == theirs[:180] and own[264:] == theirs[264:]
    with (
        Trajectory(tmp_path / "own.dcd", topology, 0.004, 10, 3) as trajectory,
        pytest.raises(ValueError, match="no number"),
    ):
        trajectory.add(np.full_like(frames[0], np.nan), None)


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


def test_a_full_disk_is_told_of(topology):
    with (
        Trajectory("/dev/full", topology, 0.004, 10, 0) as trajectory,
        pytest.raises(InputError, match="free some disk space"),
    ):
        trajectory.add(np.zeros((ATOMS, 3)), None)
