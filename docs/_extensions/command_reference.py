"""A directive that documents a command from its parser: ``.. command-reference:: fit``; ``:option:`` links to its options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from openmm_density.cli import build_parser


class CommandReference(SphinxDirective):
    """What a command does, how it is called, and each of its arguments by group."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what the command's parser says."""
        parser = parsers()[self.arguments[0]]
        container = nodes.container()
        nested_parse_with_titles(self.state, StringList([*described(parser)], source=parser.prog), container)
        return container.children


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all commands by their names."""
    subparsers = next(
        each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    return dict(subparsers.choices)


def described(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield reStructuredText that describes a command."""
    positional = " ".join(usage_of(each) for each in parser._get_positional_actions())
    yield from (f".. program:: {parser.prog}", "", plain(parser.description or ""), "", "::", "")
    yield from (f"    {parser.prog} {positional} [OPTIONS]", "")
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if each.help != argparse.SUPPRESS]
        if not actions or all(isinstance(each, argparse._HelpAction) for each in actions):
            continue
        title = {"positional arguments": "Arguments", "options": "Options"}.get(group.title, group.title)
        yield from (f".. rubric:: {title[0].upper()}{title[1:]}", "")
        for action in actions:
            if not isinstance(action, argparse._HelpAction):
                yield from (f".. option:: {signature(action)}", "", f"   {explained(action, parser)}", "")


def usage_of(action: argparse.Action) -> str:
    """Return how an argument without a name stands in a command."""
    name = action.metavar or action.dest.upper()
    return f"[{name}]" if action.nargs == "?" else str(name)


def signature(action: argparse.Action) -> str:
    """Return an argument with what it takes, as users type it."""
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else "")
    if action.nargs == 0:
        value = ""
    return ", ".join(f"{name} {value}".strip() for name in action.option_strings)


def explained(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return the help of an argument, as a sentence, with what must be given said."""
    text = plain((action.help or "") % {**vars(action), "prog": parser.prog})
    sentence = f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
    return f"{sentence} Required." if action.required and action.option_strings else sentence


def plain(text: str) -> str:
    """Return text with what reStructuredText would read as markup escaped, and options as code."""
    escaped = "".join(f"\\{letter}" if letter in "*`|_\\" else letter for letter in text)
    return " ".join(
        f"``{word}``" if word.startswith("--") and word[2:].replace("-", "").isalpha() else word
        for word in escaped.split()
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
