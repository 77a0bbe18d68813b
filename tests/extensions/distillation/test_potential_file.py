"""The file of a ligand's potential: what was saved is read, and nothing else is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from openmm_density.base.errors import InputError
from openmm_density.extensions.distillation import read_potential, write_potential

safetensors_torch = pytest.importorskip("safetensors.torch", reason="the extra [ligands] is not installed")


def test_what_was_saved_is_read(potential, tmp_path):
    path = tmp_path / "methanol.safetensors"
    write_potential(path, potential)
    read = read_potential(path)
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    (tmp_path / "other").unlink()
    assert [name.name for name in tmp_path.iterdir()] == [path.name]
    for name in ("network", "teacher", "accuracy", "temperatures", "done", "created_by"):
        assert getattr(read, name) == getattr(potential, name)
    for name in ("elements", "bonds", "charge", "smiles", "names"):
        assert getattr(read.ligand, name) == getattr(potential.ligand, name)
    np.testing.assert_array_equal(read.charges, potential.charges)
    np.testing.assert_array_equal(read.ligand.positions, potential.ligand.positions)
    positions = torch.rand((2, 6, 3))
    energies = [network(positions) for network in potential.networks()]
    for one, other in zip(energies, read.networks()):
        assert torch.equal(one, other(positions))
    assert not torch.equal(energies[0], energies[1])


def changed(path, **texts):
    """Write the file again with other metadata."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        said = file.metadata() | texts
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    safetensors_torch.save_file(tensors, path, {name: text for name, text in said.items() if text})


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"format": "something else"}, "it is no potential of a ligand"),
        ({"format_version": "2"}, "its format must have the version 1, found 2"),
        ({"teacher": ""}, "it lacks teacher"),
        ({"teacher": "{"}, "cannot be read"),
        ({"teacher": '{"name": 1}'}, "cannot be read"),
        ({"accuracy": "[]"}, "cannot be read"),
        ({"network": json.dumps({"elements": [6, 8, 1, 1, 1, 1], "features": 7})}, "it is damaged"),
        ({"network": json.dumps({"elements": [6, 8, 1, 1, 1, 7]})}, "the same elements"),
    ],
)
def test_other_metadata_are_refused_in_one_sentence(potential, tmp_path, texts, said):
    path = tmp_path / "methanol.safetensors"
    write_potential(path, potential)
    changed(path, **texts)
    with pytest.raises(InputError, match=said) as error:
        read_potential(path)
    assert str(path) in str(error.value)


def test_files_of_other_kinds_are_refused(potential, tmp_path):
    path = tmp_path / "methanol.safetensors"
    with pytest.raises(InputError, match="no such file"):
        read_potential(path)
    write_potential(path, potential)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="no safetensors file, or not a whole one"):
        read_potential(path)
    path.write_bytes(b"ATOM      1  N   ALA A   1")
    with pytest.raises(InputError, match="no safetensors file, or not a whole one"):
        read_potential(path)
    safetensors_torch.save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="no potential of a ligand"):
        read_potential(path)


def test_numbers_that_are_none_are_refused(potential, tmp_path):
    path = tmp_path / "methanol.safetensors"
    write_potential(path, replace(potential, charges=np.full(6, np.nan)))
    with pytest.raises(InputError, match="must be finite"):
        read_potential(path)


def test_without_safetensors_one_sentence_says_what_installs_it(potential, tmp_path, monkeypatch):
    import sys

    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: write_potential(tmp_path / "x", potential), lambda: read_potential(tmp_path / "x")):
        with pytest.raises(InputError, match=r'needs safetensors.*: pip install "openmm-density\[ligands\]"'):
            call()
