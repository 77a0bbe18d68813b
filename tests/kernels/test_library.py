"""How operators are found: a folder below kernels/ that holds an example is one, and no list says so."""

from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import pytest
import torch

from openmm_density import kernels
from openmm_density.kernels import library
from openmm_density.kernels.compilation import sources

from .operators import DEVICE, moved


@pytest.mark.parametrize("folder", library.operator_folders())
def test_every_folder_has_an_example_of_every_operator_that_it_defines(folder):
    examples = import_module(f"openmm_density.kernels.{folder}.example").examples()
    assert set(examples) >= set(library._names.get(folder, ()))
    for name in examples:
        assert hasattr(torch.ops.openmm_density, name)


@pytest.mark.parametrize("folder", library.operator_folders())
def test_a_scale_that_is_not_one_number_in_float64_is_refused_on_a_gpu(folder):
    pytest.importorskip("triton")
    examples = import_module(f"openmm_density.kernels.{folder}.example").examples()
    if find_spec(f"openmm_density.kernels.{folder}.gpu") is None:
        pytest.skip("it has no kernel for a GPU")
    gpu = import_module(f"openmm_density.kernels.{folder}.gpu")
    for name, (_, arguments) in examples.items():
        function = getattr(gpu, name, None)
        if function is not None and "scale" in signature(function).parameters:
            for wrong in (torch.ones(2, dtype=torch.float64), torch.ones(())):
                with pytest.raises(ValueError, match="scale must be one number in float64, not"):
                    function(*moved(arguments, DEVICE), scale=wrong.to(DEVICE))


def test_a_folder_with_an_example_is_registered_and_others_are_not(tmp_path, monkeypatch):
    new, other = tmp_path / "distances", tmp_path / "notes"
    new.mkdir()
    other.mkdir()
    (new / "example.py").touch()
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
