"""`MonomerLibrary`: residue types, links, and the modifications that links make, read by gemmi."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from functools import cache, cached_property
from pathlib import Path

import gemmi

from ....base.cif_files import read_cif
from ....base.errors import InputError
from ....base.given_files import check_given_file
from .components import group_of, restrain
from .templates import Template, bond_key

FOLDER_VARIABLE = "CLIBD_MON"
"""The environment variable that names the folder of CCP4's monomer library."""
TABLE = Path(__file__).with_name("standard.cif")
"""Values for common residues, their ends and links, extracted from the library by ``examples/monomer_table.py``."""

_FIVE_PRIME_END = "5*END"
_LIST = os.path.join("list", "mon_lib_list.cif")
_REMEDY = "give a restraint dictionary of CCP4, such as AceDRG's"
_Group = gemmi.ChemComp.Group
_KINDS = {
    **dict.fromkeys((gemmi.ResidueKind.AA, gemmi.ResidueKind.AAD), "PEPTIDE"),
    **dict.fromkeys((gemmi.ResidueKind.PYR, gemmi.ResidueKind.KET), "SACCHARIDE"),
    gemmi.ResidueKind.RNA: "RNA",
    gemmi.ResidueKind.DNA: "DNA",
}
_MEMBERS = {
    _Group.Peptide: (_Group.Peptide, _Group.PPeptide, _Group.MPeptide),
    _Group.DnaRna: (_Group.DnaRna, _Group.Dna, _Group.Rna),
}


class MonomerLibrary:
    """Ideal geometry of residue types and of all links, from `source`: a folder, or None for the table.

    `folder` of CCP4's monomer library: by default what the environment variable ``CLIBD_MON`` names. Where there is none, or it
    lacks a residue type, `TABLE` serves, and D-amino acids without an entry of their own are mirror images of the L forms.
    `dictionaries` go before the library: restraint dictionaries, and wwPDB component files by their ideal coordinates.
    Raises InputError if the folder is no monomer library, or a dictionary cannot be read.
    """

    def __init__(
        self,
        names: Iterable[str],
        folder: str | os.PathLike[str] | None = None,
        dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
    ) -> None:
        names = set(names)
        self.source = folder or os.environ.get(FOLDER_VARIABLE) or None
        self._library = _read(self.source, sorted({*names, *map(_mirror_image, names)} - {""}))
        if isinstance(dictionaries, str | os.PathLike):
            dictionaries = (dictionaries,)
        own = dict(self._library.monomers.items())
        for path in dictionaries:
            own |= _components(path)
        self._components: dict[str, gemmi.ChemComp] = {**dict(_table().monomers.items()), **own}
        self.borrowed = frozenset(self._components.keys() - own.keys())
        """The residue types that only the package's table has."""
        self._templates: dict[tuple[str, ...], Template] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._components or _mirror_image(name) in self._components

    def _component(self, name: str) -> gemmi.ChemComp:
        return self._components.get(name) or self._components[_mirror_image(name)]

    def template(self, name: str, changes: tuple[str, ...] = ()) -> Template:
        """Return the template of a residue type with some modifications, by their names."""
        key = (name, *changes)
        if key not in self._templates:
            if changes:
                change = self._library.get_mod(changes[-1])
                before = self.template(name, changes[:-1])
                self._templates[key] = before.modified(change) if change is not None else before
            else:
                template = Template.of_component(self._component(name))
                self._templates[key] = template if name in self._components else template.mirrored()
        return self._templates[key]

    def bonds(self, name: str, atoms: Set[str]) -> set[tuple[str, str]] | None:
        """Return the bonds of a residue type between some of its atoms; None if it lacks one of these."""
        template = self.template(name)
        if not atoms <= {known for _, known in template.atoms}:
            return None
        return {bond_key(a, b) for (_, a), (_, b) in template.bonds if {a, b} <= atoms}

    def end(self, name: str, atoms: Iterable[str]) -> tuple[str, ...]:
        """Return the modifications that a residue's atoms imply: a nucleotide without phosphate."""
        is_nucleotide = self._component(name).group in _MEMBERS[_Group.DnaRna]
        return (_FIVE_PRIME_END,) if is_nucleotide and "P" not in atoms else ()

    def links_of(
        self, first: tuple[str, str], second: tuple[str, str], is_cis: bool
    ) -> list[tuple[gemmi.ChemLink, bool]]:
        """Return the links that fit two residue types' atoms best (`is_cis` for peptides), and which are reversed."""
        found = []
        for swapped, (one, other) in enumerate(((first, second), (second, first))):
            for link in self._by_atoms.get((one[1], other[1]), ()):
                fits = self._fit(link.side1, one[0]), self._fit(link.side2, other[0])
                wrong = link.id.endswith("TRANS" if is_cis else "CIS")
                if all(fits) and not wrong:
                    found.append((sum(fits), link, bool(swapped)))
        best = max((fit for fit, *_ in found), default=0)
        return [(link, swapped) for fit, link, swapped in found if fit == best]

    def _fit(self, side: gemmi.ChemLink.Side, name: str) -> int:
        """Return how well a residue type fits one side of a link: 3 by name, 2 by group, 1 by a wider group, else 0."""
        if side.comp:
            return 3 if side.comp == name else 0
        group = self._component(name).group
        if side.group == group:
            return 2
        return int(group in _MEMBERS.get(side.group, ()))

    @cached_property
    def _by_atoms(self) -> dict[tuple[str, str], list[gemmi.ChemLink]]:
        links: dict[tuple[str, str], list[gemmi.ChemLink]] = {}
        for link in self._library.links.values():
            if len(link.rt.bonds) == 1:
                ends = sorted((i.comp, i.atom) for i in (link.rt.bonds[0].id1, link.rt.bonds[0].id2))
                links.setdefault((ends[0][1], ends[1][1]), []).append(link)
        return links


def monomer_library(
    names: Iterable[str],
    folder: str | os.PathLike[str] | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> MonomerLibrary:
    """Return a `MonomerLibrary`; the package's table is read only once, since its templates take long."""
    if folder or dictionaries or os.environ.get(FOLDER_VARIABLE):
        return MonomerLibrary(names, folder, dictionaries)
    return _of_table()


@cache
def _of_table() -> MonomerLibrary:
    return MonomerLibrary(())


@cache
def _table() -> gemmi.MonLib:
    library = gemmi.MonLib()
    library.read_monomer_doc(read_cif(os.fspath(TABLE)))
    return library


@cache
def _mirror_image(name: str) -> str:
    """Return the L-amino acid of a D-amino acid, and nothing for other residues."""
    residue = gemmi.find_tabulated_residue(name)
    if residue.kind != gemmi.ResidueKind.AAD:
        return ""
    return gemmi.expand_one_letter(residue.one_letter_code.upper(), gemmi.ResidueKind.AA) or ""


def _read(folder: str | os.PathLike[str] | None, names: list[str]) -> gemmi.MonLib:
    if folder is None:
        return _table()
    library = gemmi.MonLib()
    try:
        library.read_monomer_lib(os.path.join(folder, ""), names)
    except (OSError, RuntimeError, ValueError) as error:
        known = Path(folder, _LIST).exists()
        raise InputError(
            f"it cannot be read ({error})" if known else f"it is not a monomer library: it has no {_LIST}",
            source=folder,
            remedy=f"give the folder of CCP4's monomer library, or unset {FOLDER_VARIABLE} to use the package's own values",
        ) from None
    return library


def _components(path: str | os.PathLike[str]) -> dict[str, gemmi.ChemComp]:
    """Return the residue types of a dictionary that have values, or ideal coordinates that tell these."""
    check_given_file(path, _REMEDY)
    library = gemmi.MonLib()
    try:
        document = read_cif(os.fspath(path))
        library.read_monomer_doc(document)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"cannot be read ({error})", source=path, remedy=_REMEDY) from None
    found = {}
    for name, component in library.monomers.items():
        if any(bond.esd > 0 for bond in component.rt.bonds):
            if component.group in (_Group.Null, _Group.NonPolymer):  # AceDRG's of sugars and proline's kin
                component.set_group(group_of(_kind_of(name, document), component))
            found[name] = component
        elif (block := document.find_block(name)) is not None and restrain(component, block):
            found[name] = component
    return found


def _kind_of(name: str, document: gemmi.cif.Document) -> str:
    """Return the wwPDB's kind of a common residue; of others what a dictionary says."""
    if known := _KINDS.get(gemmi.find_tabulated_residue(name).kind):
        return known
    block = document.find_block("comp_list")
    rows = block.find("_chem_comp.", ["id", "group"]) if block is not None else ()
    return next((row.str(1) for row in rows if row.str(0) == name), "")
