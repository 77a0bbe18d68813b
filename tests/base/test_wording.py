"""How sentences for users name and count things."""

from openmm_density.base.wording import counted, listing, one_line


def test_one_is_no_plural():
    assert [counted(n, "heavy atom") for n in (0, 1, 2)] == ["0 heavy atoms", "1 heavy atom", "2 heavy atoms"]


def test_a_long_list_ends_with_a_number():
    assert listing(["a", "b"]) == "a, b"
    assert listing(["a", "b", "c", "d"], longest=2) == "a, b and 2 more"


def test_another_librarys_message_stands_inside_a_sentence():
    assert one_line(ValueError("it is\n  wrong.")) == "it is wrong"
    assert one_line(KeyError()) == "KeyError"
