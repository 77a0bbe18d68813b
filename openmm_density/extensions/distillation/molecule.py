"""The molecule that a user names: from a file, a dictionary or a SMILES, with all hydrogens, as RDKit holds it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import InputError, as_argument
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import counted, listing, one_line
from ...models.ligands import dictionary_smiles
from .extra import imported
from .ligand import Ligand

if TYPE_CHECKING:
    from rdkit.Chem import Atom, Mol

PURPOSE = "The distillation of a ligand"
_MODELS = (".pdb", ".ent", ".cif", ".mmcif", ".pdb.gz", ".ent.gz", ".cif.gz", ".mmcif.gz")
_MOLECULES = (".sdf", ".mol", ".mol2")
# Elements that the teacher knows and that bind by pairs of electrons, as the springs of the first geometries assume.
_ELEMENTS = frozenset(["H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I"])
MOST_ATOMS = 200
_ORDERS = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}
# What no name of a component has.
_PUNCTUATION = frozenset("()[]=#@/\\")
_GIVE_SMILES = f"pass its SMILES as {as_argument('smiles')}, in the protonation that is wanted"


def read_molecule(
    source: str | os.PathLike[str],
    *,
    smiles: str | None = None,
    dictionaries: Sequence[str | os.PathLike[str]] = (),
    residue: str | None = None,
) -> Mol:
    """Build the molecule that a source names, with all hydrogens and one set of positions.

    Parameters
    ----------
    source : str or path
        A model (PDB, mmCIF), a molecule (SDF, MOL, MOL2), a dictionary or component file, a SMILES, or the name of a component
        of a dictionary.
    smiles : str, optional
        What a model's atoms are, whose bond orders and charges its file leaves open.
    dictionaries : sequence of paths
        Restraint dictionaries (AceDRG) or wwPDB component files, whose SMILES is taken where none is given.
    residue : str, optional
        The ligand's residue name in a model, where there are several.

    Raises
    ------
    InputError
        If it cannot be read, is more than one molecule or ambiguous, is no molecule that the teacher can have here, or RDKit is
        not installed.
    """
    imported("rdkit", PURPOSE)
    from rdkit import RDLogger

    RDLogger.DisableLog("rdApp.*")
    text = os.fspath(source)
    known = dictionary_smiles(list(dictionaries))
    lower = text.lower()
    if lower.endswith(_MOLECULES):
        molecule = _read_molecule_file(Path(text))
    elif lower.endswith(_MODELS):
        _check_is_there(Path(text))
        own = {} if _has_atoms(text) else dictionary_smiles(text)
        molecule = (
            _from_smiles(smiles or _only(own, text, residue), text)
            if own
            else _from_model(text, smiles, known, residue)
        )
    elif smiles is not None:
        molecule = _from_smiles(smiles, f'"{smiles}"')
    elif text in known:
        molecule = _from_smiles(known[text], text)
    else:
        molecule = _from_smiles(text, f'"{text}"')
    check_molecule(molecule, text)
    _forget_hands_of_like_ends(molecule)
    _name_atoms(molecule)
    return molecule


def ligand_of(molecule: Mol) -> Ligand:
    """Return what a potential's file keeps of a molecule."""
    from rdkit import Chem

    bonds = []
    for bond in molecule.GetBonds():
        first, second = sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        bonds.append((first, second, _ORDERS.get(str(bond.GetBondType()), 1.0)))
    return Ligand(
        elements=tuple(atom.GetAtomicNum() for atom in molecule.GetAtoms()),
        bonds=tuple(sorted(bonds)),
        charge=Chem.GetFormalCharge(molecule),
        smiles=Chem.MolToSmiles(Chem.RemoveHs(molecule)),
        positions=molecule.GetConformer().GetPositions() / ANGSTROM_PER_NANOMETER,
        names=tuple(atom.GetProp("name") for atom in molecule.GetAtoms()),
    )


def check_molecule(molecule: Mol, source: str) -> None:
    """Refuse what is more than one molecule, ambiguous, or nothing that the teacher can have here."""
    from rdkit import Chem

    pieces = len(Chem.GetMolFrags(molecule))
    if pieces != 1:
        raise InputError(
            "the ligand must be one molecule",
            source=source,
            found=counted(pieces, "piece"),
            remedy="give one without its ions and waters",
        )
    others = sorted({atom.GetSymbol() for atom in molecule.GetAtoms()} - _ELEMENTS)
    if others:
        raise InputError(
            f"the ligand must be of {', '.join(sorted(_ELEMENTS))}",
            source=source,
            found=listing(others),
            remedy="keep it rigid in fits, as metals and what binds them are",
        )
    n = molecule.GetNumAtoms()
    if not 2 <= n <= MOST_ATOMS:
        raise InputError(
            f"the ligand must have 2 to {MOST_ATOMS} atoms with its hydrogens",
            source=source,
            found=n,
            remedy="keep it rigid in fits",
        )
    if sum(atom.GetNumRadicalElectrons() for atom in molecule.GetAtoms()):
        raise InputError(
            "it has unpaired electrons", source=source, remedy="correct its hydrogens and charges"
        )
    _check_stereo(molecule, source)


def _check_stereo(molecule: Mol, source: str) -> None:
    """Refuse a molecule whose chiral centres or double bonds may be either way."""
    from rdkit import Chem

    open_centres = [
        centre
        for centre, label in Chem.FindMolChiralCenters(
            molecule, includeUnassigned=True, useLegacyImplementation=False
        )
        if label == "?" and not _has_like_ends(molecule.GetAtomWithIdx(centre))
    ]
    if open_centres:
        centre = molecule.GetAtomWithIdx(open_centres[0])
        raise InputError(
            f"the handedness of {counted(len(open_centres), 'chiral centre')} is not given, of {centre.GetSymbol()}"
            f"{centre.GetIdx() + 1} first",
            source=source,
            remedy="give a SMILES that says it by @ or @@, or a file with positions",
        )
    open_bonds = [
        molecule.GetBondWithIdx(each.centeredOn)
        for each in Chem.FindPotentialStereo(molecule)
        if each.type == Chem.StereoType.Bond_Double and each.specified == Chem.StereoSpecified.Unspecified
    ]
    for bond in open_bonds:
        ends = bond.GetBeginAtom(), bond.GetEndAtom()
        # The hydrogen of an imine is built in a fit, as others are.
        if all(sum(each.GetAtomicNum() > 1 for each in end.GetNeighbors()) > 1 for end in ends):
            names = "=".join(f"{end.GetSymbol()}{end.GetIdx() + 1}" for end in ends)
            raise InputError(
                f"which groups are on one side of the double bond {names} is open",
                source=source,
                remedy="give a SMILES that says it by / and \\, or a file with positions",
            )


def _has_like_ends(centre: Atom) -> bool:
    """Return whether two oxygens of a centre differ only in which of them the charge is written on, as those of a phosphate."""
    ends = [each.GetSymbol() for each in centre.GetNeighbors() if each.GetDegree() == 1]
    return any(ends.count(symbol) > 1 for symbol in ("O", "S"))


def _forget_hands_of_like_ends(molecule: Mol) -> None:
    """Take the handedness from centres that have none but by where a charge is written: positions or a SMILES may say one."""
    from rdkit import Chem

    for atom in molecule.GetAtoms():
        if atom.GetChiralTag() != Chem.ChiralType.CHI_UNSPECIFIED and _has_like_ends(atom):
            atom.SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)
            atom.ClearProp("_CIPCode")


def _from_smiles(smiles: str, source: str) -> Mol:
    from rdkit import Chem
    from rdkit.Chem import AllChem

    molecule = _parsed(smiles, source)
    molecule = Chem.AddHs(molecule)
    check_molecule(molecule, source)
    if AllChem.EmbedMolecule(molecule, randomSeed=1) < 0:
        # RDKit takes Ctrl-C for itself meanwhile: it then finds none, and does not say why.
        if AllChem.EmbedMolecule(molecule, randomSeed=1) >= 0:
            raise KeyboardInterrupt
        raise InputError(
            "RDKit finds no geometry for it", source=source, remedy="give a file that has its positions"
        )
    return molecule


def _parsed(smiles: str, source: str) -> Mol:
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None and Path(smiles).is_dir():
        raise InputError(
            "it is a folder",
            source=smiles,
            remedy="give a file of one molecule, a model with its SMILES, or a SMILES",
        )
    if molecule is None and _PUNCTUATION & set(smiles):
        raise InputError(
            f"RDKit cannot read it as a SMILES ({_fault_of(smiles)})", source=source, remedy="correct it"
        )
    if molecule is None or not molecule.GetNumAtoms():
        raise InputError(
            "a ligand must be a SMILES, the name of a component of a dictionary, or a file ending in "
            f"{', '.join((*_MOLECULES, *_MODELS[:4]))}",
            source=source,
            remedy="correct it",
        )
    return molecule


def _fault_of(smiles: str) -> str:
    """Return what is wrong with a SMILES: its text, or the chemistry that it says."""
    from rdkit import Chem

    plain = Chem.MolFromSmiles(smiles, sanitize=False)
    if plain is None:
        return "its brackets, ring numbers, bonds or symbols do not go together"
    return Chem.DetectChemistryProblems(plain)[0].Message().strip()


def _read_molecule_file(path: Path) -> Mol:
    """Read the one molecule of an SDF, MOL or MOL2 file; hydrogens that it lacks are added."""
    from rdkit import Chem

    _check_is_there(path)
    try:
        if path.suffix.lower() == ".mol2":
            molecules = [Chem.MolFromMol2File(str(path), removeHs=False)]
        else:
            molecules = list(Chem.SDMolSupplier(str(path), removeHs=False))
    except OSError as error:
        raise InputError(f"it cannot be read ({one_line(error)})", source=path, remedy="check it") from None
    if len(molecules) != 1:
        raise InputError(
            "the file must hold one molecule",
            source=path,
            found=len(molecules),
            remedy="give each a file of its own",
        )
    if molecules[0] is None:
        raise InputError(
            "RDKit cannot read a molecule from it", source=path, remedy="correct its atoms and bonds"
        )
    conformer = molecules[0].GetConformer() if molecules[0].GetNumConformers() else None
    if conformer is None or not conformer.Is3D():
        return _from_smiles(Chem.MolToSmiles(Chem.RemoveHs(molecules[0])), str(path))
    molecule = Chem.AddHs(molecules[0], addCoords=True)
    Chem.AssignStereochemistryFrom3D(molecule)
    return molecule


def _from_model(path: str, smiles: str | None, known: dict[str, str], residue: str | None) -> Mol:
    """Return a ligand of a model, whose chemistry is that of a SMILES, with hydrogens."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    name, elements, names, positions, pairs = _ligand_in(path, residue)
    text = smiles or known.get(name)
    if text is None:
        raise InputError(
            f"it does not say the bond orders and hydrogens of {name}",
            source=path,
            remedy=f"{_GIVE_SMILES}, or a dictionary of it as {as_argument('dictionaries')}",
        )
    own = Chem.RWMol()
    for element, atom_name in zip(elements, names):
        atom = Chem.Atom(element)
        atom.SetProp("name", atom_name)
        own.AddAtom(atom)
    for i, j in pairs:
        own.AddBond(i, j, Chem.BondType.SINGLE)
    conformer = Chem.Conformer(len(elements))
    for k, place in enumerate(positions):
        conformer.SetAtomPosition(k, place.tolist())
    own.AddConformer(conformer)
    template = Chem.RemoveHs(_parsed(text, f'"{text}"'))
    try:
        if template.GetNumAtoms() != len(elements):
            raise ValueError
        molecule = AllChem.AssignBondOrdersFromTemplate(template, own.GetMol())
        Chem.SanitizeMol(molecule)
    except ValueError:
        raise InputError(
            f"the {len(elements)} heavy atoms of {name} and their bonds are not the {template.GetNumAtoms()} "
            f'of the SMILES "{text}"',
            source=path,
            remedy=f"{_GIVE_SMILES}, with the atoms that the model has, or complete the model",
        ) from None
    molecule = Chem.AddHs(molecule, addCoords=True)
    Chem.AssignStereochemistryFrom3D(molecule)
    return molecule


def _ligand_in(path: str, residue: str | None) -> tuple[str, list[int], list[str], np.ndarray, Any]:
    """Return the name, elements, atom names, positions in Å and bonds of a ligand's heavy atoms in a model."""
    from ...models.chemistry.residue_names import standard_residue_names
    from ...models.structures import read_model

    model = read_model(path)
    ligands = [
        each
        for each in model.topology.residues()
        if each.name not in standard_residue_names() and len(list(each.atoms())) > 1
    ]
    if not ligands:
        raise InputError("it has no ligand of two atoms or more", source=path, remedy="give a SMILES instead")
    kinds = sorted({each.name for each in ligands})
    if residue is None and len(kinds) > 1:
        raise InputError(
            f"it has several ligands ({listing(kinds)})",
            source=path,
            remedy=f"choose one by {as_argument('residue')}",
        )
    wanted = residue or kinds[0]
    chosen = [each for each in ligands if each.name == wanted]
    if not chosen:
        raise InputError(
            f'it has no ligand "{wanted}"', source=path, remedy=f"choose one of {listing(kinds)}"
        )
    # Of several copies the first of the most complete: models often lack what their maps do not show.
    best = max(chosen, key=lambda each: len(list(each.atoms())))
    atoms = [atom for atom in best.atoms() if atom.element is not None and atom.element.symbol != "H"]
    place = {atom.index: k for k, atom in enumerate(atoms)}
    pairs = [
        (place[a.index], place[b.index])
        for a, b in model.topology.bonds()
        if a.index in place and b.index in place
    ]
    return (
        wanted,
        [atom.element.atomic_number for atom in atoms],
        [atom.name for atom in atoms],
        np.asarray(model.positions)[[atom.index for atom in atoms]],
        pairs,
    )


def _has_atoms(path: str) -> bool:
    """Return whether a file is a model, as one that is no CIF is taken to be."""
    from ...base.cif_files import read_cif

    if not path.lower().removesuffix(".gz").endswith(("cif",)):
        return True
    return any(block.find_values("_atom_site.id") for block in read_cif(path))


def _only(known: dict[str, str], path: str, residue: str | None) -> str:
    """Return the SMILES of a dictionary's one component, or of that of a name."""
    if residue is None and len(known) == 1:
        return next(iter(known.values()))
    if residue in known:
        return known[residue]
    raise InputError(
        f"it has the components {listing(sorted(known))}",
        source=path,
        remedy=f"choose one by {as_argument('residue')}",
    )


def _check_is_there(path: Path) -> None:
    if not path.is_file():
        raise InputError("there is no such file", source=path, remedy="check its path, or give a SMILES")


def _name_atoms(molecule: Mol) -> None:
    """Name atoms that have no name by their element and number, no two alike."""
    taken = {atom.GetProp("name") for atom in molecule.GetAtoms() if atom.HasProp("name")}
    for atom in molecule.GetAtoms():
        if not atom.HasProp("name"):
            number = 1
            while (name := f"{atom.GetSymbol()}{number}") in taken:
                number += 1
            taken.add(name)
            atom.SetProp("name", name)
