"""What Python and C++ pass each other has the same names, order and types on both sides."""

import ctypes
import re

import pytest

from openmm_density.energies.native_force import slots
from openmm_density.energies.native_force.compiled import SOURCE

CPP = SOURCE.with_name("openmm_force.h").read_text()
TYPES = {
    "int": ctypes.c_int,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "void*": ctypes.c_void_p,
    "const int*": ctypes.POINTER(ctypes.c_int),
    "const void*": ctypes.c_char_p,
    "const char*": ctypes.c_char_p,
    "const double*": ctypes.POINTER(ctypes.c_double),
    "const Binary*": ctypes.POINTER(slots.Binary),
}


def body_of(struct):
    return re.search(rf"^struct {struct} {{\n(.*?)^}};", CPP, re.DOTALL | re.MULTILINE)[1]


def test_parameters_have_the_same_slots():
    values = {
        name: int(value) for name, value in re.findall(r"^constexpr int (\w+) = (\d+);", CPP, re.MULTILINE)
    }
    box = slots.BOX
    assert values == {
        "BOX": box.start,
        **{name: getattr(slots, name) for name in ("STRENGTHS", "WANTS_FORCES", "WANTS_ENERGY")},
    }
    used = [*range(box.start, box.stop), slots.WANTS_FORCES, slots.WANTS_ENERGY]
    assert used == list(range(slots.STRENGTHS))


@pytest.mark.parametrize("struct", [slots.Arrays, slots.Recording, slots.Binary])
def test_structures_have_the_same_fields(struct):
    fields = re.findall(r"^    ([\w ]+\*?) (\w+);", body_of(struct.__name__), re.MULTILINE)
    assert [(name, TYPES[kind]) for kind, name in fields] == list(struct._fields_)


def test_callbacks_have_the_same_names_and_numbers_of_arguments():
    found = re.findall(r"void \(\*(\w+)\)\(([^)]*)\);", body_of("Callbacks"))
    ours = [(name, len(kind._argtypes_)) for name, kind in slots.Callbacks._fields_]
    assert [(name, arguments.count(",") + 1) for name, arguments in found] == ours
