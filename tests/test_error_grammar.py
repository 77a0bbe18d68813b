"""Every error that a user reads is written in one grammar: what, what was found, what to do."""

import ast
import re

import pytest

from .conftest import PROJECT

# What may stand first in a remedy, which is an order, or its condition; add the verb of a new one.
ORDERS = {
    *("add", "build", "call", "check", "choose", "complete", "convert", "copy", "correct", "create", "download", "extract"),
    *("for", "give", "if", "install", "keep", "leave", "lengthen", "look", "lower", "make", "mark", "move", "pass", "pip"),
    *("place", "put", "read", "remove", "rename", "replace", "resample", "resume", "set", "sort", "start", "take", "use", "wait"),
    *("widen", "write"),
}  # fmt: skip
ARGUMENT = re.compile(r"(?<![\w(.])(?<!, )[a-z_]+=")
OPTION = re.compile(r"(?<![\w-])--[a-z]")

FOLDERS = sorted(
    path for path in (PROJECT / "openmm_density").iterdir() if path.is_dir() and path.name != "__pycache__"
)
PLACES = {path.name: [path] for path in FOLDERS}
PLACES |= {
    "kernels": [PROJECT / "kernels"],
    "top level": [
        path for path in sorted((PROJECT / "openmm_density").glob("*.py")) if path.name != "errors.py"
    ],
}


def errors_in(paths):
    """Yield each construction of an InputError, and where it stands."""
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InputError"):
                    yield f"{file.relative_to(PROJECT)}:{node.lineno}", node


def text_of(node):
    """Return what a string says, with … for what is put into it; None where it is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def faults(call, is_command):
    """Yield what is wrong with the words of one error; a command may name its options."""
    parts = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(call.args) != 1:
        yield "has no problem, which stands first"
        return
    problem = text_of(call.args[0])
    if problem is None and not parts:
        return  # a sentence of a report, which says what to do
    if not isinstance(parts.get("remedy"), ast.expr) or ast.unparse(parts["remedy"]) == "None":
        yield "has no remedy"
    for name, text in (("problem", problem), ("remedy", text_of(parts.get("remedy")))):
        if not text:
            continue
        if re.match(r"[A-Z][a-z]*\b", text):  # but names such as OpenMM and MAPC
            yield f"{name} begins with a capital"
        if text[-1] in ".:;," and not text.endswith("..."):
            yield f"{name} ends with {text[-1]}"
        if ", found" in text or "; found" in text:
            yield f"{name} says what was found, which is for found="
        if ARGUMENT.search(text):
            yield f"{name} names an argument, which is for as_argument"
        if OPTION.search(text) and not is_command:
            yield f"{name} names an option, which is for as_argument"
    if problem is not None and (problem.startswith("…: ") or re.match(r"(it must|…=)", problem)):
        yield "problem begins with a file or an argument, which is for source= and argument="
    remedy = text_of(parts.get("remedy"))
    if remedy and not remedy.startswith("…") and remedy.split()[0].rstrip(",") not in ORDERS:
        yield f'remedy begins with "{remedy.split()[0]}", which is no order'
    argument = text_of(parts.get("argument"))
    if argument is not None and not argument.isidentifier():
        yield "argument is no name"
    if argument and problem and problem.split()[0] == argument:
        yield "problem repeats the argument"


@pytest.mark.parametrize("place", PLACES)
def test_errors_say_what_was_found_and_what_to_do(place):
    wrong = [
        f"{where}: {fault}: {ast.unparse(call)}"
        for where, call in errors_in(PLACES[place])
        for fault in faults(call, is_command=place == "cli")
    ]
    assert not wrong, "\n".join(wrong)
