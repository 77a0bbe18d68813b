"""Errors that users read: one sentence, with the names that its reader types."""

import copy
import errno
import pickle
from pathlib import Path

import numpy as np
import pytest

from openmm_density.base.atomic_files import write_text
from openmm_density.base.errors import InputError, as_argument, is_of_machine

OPTIONS = {
    "strength": "--strength",
    "density_map": "MAP",
    "restrain_to": "--restrain-to",
    "solvent": "--solvent",
    "allow_scripts": "--allow-scripts",
}


STRENGTH, SCRIPTS = as_argument("strength", 2.0), as_argument("allow_scripts", True)


@pytest.mark.parametrize(
    ("parts", "in_python", "in_a_command"),
    [
        (
            dict(argument="density_map", found="a shape of (3, 3)", remedy="give a DensityMap."),
            "density_map must be right, found a shape of (3, 3): give a DensityMap.",
            "MAP must be right, found a shape of (3, 3): give a DensityMap.",
        ),
        (
            dict(source="strength/a.mtz", argument="strength", remedy=f"pass {SCRIPTS}"),
            "strength/a.mtz: strength must be right: pass allow_scripts=True.",
            "strength/a.mtz: --strength must be right: pass --allow-scripts.",
        ),
        (
            dict(found=np.float32(0.5), remedy=f"give {STRENGTH}, or is it right?"),
            "must be right, found 0.5: give strength=2, or is it right?",
            "must be right, found 0.5: give --strength 2, or is it right?",
        ),
    ],
)
def test_a_sentence_is_made_of_what_was_found_and_what_to_do(parts, in_python, in_a_command):
    error = InputError("must be right", **parts)
    assert str(error) == in_python
    assert error.spelled(OPTIONS) == in_a_command


def test_a_whole_sentence_is_the_message_and_english_words_are_no_arguments():
    error = InputError("strength and density_map do not go together; give others")
    assert str(error) == error.spelled(OPTIONS) == "strength and density_map do not go together; give others"
    assert error.argument is error.found is error.remedy is None
    assert str(InputError()) == ""


def test_what_stands_in_a_file_is_named_as_in_the_file():
    error = InputError("must be right", argument="strength", found="nothing", remedy="give 10").within(
        "a.toml"
    )
    assert str(error) == error.spelled(OPTIONS) == "a.toml: strength must be right, found nothing: give 10."
    assert (error.argument, error.source, error.remedy) == ("strength", "a.toml", "give 10")


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


@pytest.mark.parametrize(
    ("number", "of_machine"), [(errno.ENOSPC, True), (errno.EIO, True), (errno.EACCES, False)]
)
def test_what_a_machine_could_not_do_is_told_from_what_was_given(tmp_path, monkeypatch, number, of_machine):
    def fails(*_, **__):
        raise OSError(number, "it did not work")

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(InputError, match="it did not work") as raised:
        write_text(tmp_path / "a.txt", "text")
    assert is_of_machine(raised.value) is of_machine
    assert not is_of_machine(InputError("there is no such file", source="a.pdb"))
