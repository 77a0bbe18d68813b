"""Errors that users read: one sentence, with the names that its reader types."""

import copy
import pickle

import numpy as np
import pytest

from openmm_density.base.errors import InputError

OPTIONS = {
    "strength": "--strength",
    "density_map": "MAP",
    "restrain_to": "--restrain-to",
    "solvent": "--solvent",
    "allow_scripts": "--allow-scripts",
}


def test_an_error_is_one_line_whatever_was_found():
    found = "A\x1b[2J\nH\u2028é\x00Å\ufdd0solvent"
    sentence = r"a.cif: it is wrong, found A\x1b[2J\nH\u2028é\x00Å\ufdd0solvent: correct it."
    error = InputError("it is wrong", source="a.cif", found=found, remedy="correct it")
    assert str(error) == error.spelled(OPTIONS) == sentence
    assert str(InputError(f"a.cif: {found!s}; correct it.")).startswith(r"a.cif: A\x1b[2J\nH\u2028é\x00Å")
    message = str(InputError("it is wrong", source="a.cif", found="9" * 5000, remedy="correct it"))
    assert len(message) < 1600 and " … " in message
    assert message.startswith("a.cif: it is wrong, found 999") and message.endswith("999: correct it.")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_copies_know_as_much(copied):
    error = copied(
        InputError("must be right", argument="strength", source="a", found=np.float64(-3), remedy="give 10")
    )
    assert str(error) == "a: strength must be right, found -3: give 10."
    assert error.spelled(OPTIONS) == "a: --strength must be right, found -3: give 10."
    assert (error.argument, error.source, error.found, error.remedy) == ("strength", "a", -3, "give 10")
    assert copied(InputError("a")).args == ("a",)
