"""How operators are found: a folder below kernels/ that holds C++ is one, and no list says so."""

from importlib import import_module

import pytest
import torch

from openmm_density import kernels
from openmm_density.kernels import library
from openmm_density.kernels.compilation import sources


@pytest.mark.parametrize("folder", library.operator_folders())
def test_every_folder_has_an_example_of_every_operator_that_it_defines(folder):
    examples = import_module(f"openmm_density.kernels.{folder}.example").examples()
    assert set(examples) == set(library._names[folder])
    for name in examples:
        assert hasattr(torch.ops.openmm_density, name)


def test_a_folder_with_cpp_is_registered_and_others_are_not(tmp_path, monkeypatch):
    new, other = tmp_path / "distances", tmp_path / "notes"
    new.mkdir()
    other.mkdir()
    (new / "cpu.cpp").touch()
    (new / "__init__.py").write_text(
        "from ..library import define\n"
        'define("distances(Tensor x) -> Tensor", "distances", lambda x: x - x[:1])\n'
    )
    (other / "__init__.py").write_text("raise ImportError\n")
    monkeypatch.setattr(sources, "KERNELS", tmp_path)
    monkeypatch.setattr(kernels, "__path__", [str(tmp_path)])
    assert library.operator_folders() == ("distances",)
    library.register_operators()
    assert torch.ops.openmm_density.distances.default.name() == "openmm_density::distances"
