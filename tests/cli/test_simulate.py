"""``openmm-density simulate``."""

from .commands import run


def test_simulate_does_not_overwrite(folder, capsys):
    arguments = ("--resolution", 5, "--voxel-size", 1.2, "--output", folder / "target.mrc")
    before = (folder / "target.mrc").read_bytes()
    assert run("simulate", folder / "target.pdb", *arguments) == 2
    assert "target.mrc" in capsys.readouterr().err
    assert (folder / "target.mrc").read_bytes() == before


def test_a_map_too_coarse_for_its_resolution_is_warned_of(folder, tmp_path, capsys):
    arguments = ("--resolution", 4, "--voxel-size", 2.5, "--output", tmp_path / "coarse.mrc")
    assert run("simulate", folder / "target.pdb", *arguments) == 0
    assert capsys.readouterr().err == (
        "openmm-density: warning: voxels of 2.5 Å hold no detail finer than 5 Å: for a resolution of 4 Å they must be no larger "
        "than 2 Å\n"
    )
