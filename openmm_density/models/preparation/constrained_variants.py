"""Systems of one topology with and without constraints, derived from one System that has all terms of both.

OpenMM takes seconds to match templates and find the terms of a large model, each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openmm
from openmm import app, unit

from ..chemistry.topologies import are_among, bonded_pairs, pair_keys
from ..merging import call_for_each, constraints_of, copied_force, copied_system, masses_of, terms_of

_FREE = (None, False)
_DERIVED = ((app.HBonds, None), _FREE)
"""Constraints and rigid water of the derived Systems; the force field makes all others itself."""


class ConstrainedVariants:
    """Systems of a topology from `create` (``createSystem``), called once for all options other than constraints and masses."""

    def __init__(
        self, topology: app.Topology, forcefield: app.ForceField, create: Callable[..., openmm.System]
    ) -> None:
        self._topology, self._create = topology, create
        # Constraints of such templates, which OpenMM has since 8.5, hold with any options.
        self._has_own = any(
            getattr(template, "constraints", ()) for template in forcefield._templates.values()
        )
        self._known: dict[str, openmm.System] = {}
        self._parts: dict[str, tuple[openmm.System | None, list[openmm.Force]]] = {}
        self._without: dict[tuple[str, int], openmm.Force] = {}

    def whole(self, options: dict[str, Any]) -> openmm.System:
        """Return a System with all terms, those between constrained atoms among them."""
        constrained = _beside_constraints(options) | {"constraints": app.HBonds}
        try:
            return self._created(constrained | {"flexibleConstraints": True})
        except ValueError as error:
            if "flexibleConstraints" not in str(error):
                raise
            # OpenMM refuses unused options, and no bond can be constrained
            return self._created(constrained)

    def _created(self, options: dict[str, Any]) -> openmm.System:
        key = repr(options)
        if key not in self._known:
            self._known[key] = self._create(**options)
        return self._known[key]

    def system(self, options: dict[str, Any]) -> openmm.System:
        """Return the System that ``createSystem`` makes with these options."""
        asked = options.get("constraints"), options.get("rigidWater")
        if asked not in _DERIVED or self._has_own or "flexibleConstraints" in options:
            return copied_system(self._created(options))
        key = repr(options)
        if key not in self._parts:
            self._parts[key] = self._found_parts(options, free=asked == _FREE)
        bare, forces = self._parts[key]
        if bare is None:
            return copied_system(self._created(options))
        system = openmm.System(bare)
        for force in forces:
            system.addForce(copied_force(force))
        return system

    def _found_parts(
        self, options: dict[str, Any], free: bool
    ) -> tuple[openmm.System | None, list[openmm.Force]]:
        """Return a System of particles and constraints alone, as OpenMM copies safely, and what forces it has copies of."""
        whole = self.whole(options)
        count = whole.getNumParticles()
        if any(map(whole.isVirtualSite, range(count))):  # OpenMM cannot copy virtual sites
            return None, []
        pairs, lengths = constraints_of(whole)
        keys = pair_keys(pairs, count)
        bare, forces = openmm.System(), whole.getForces()
        bare.setDefaultPeriodicBoxVectors(*whole.getDefaultPeriodicBoxVectors())
        masses = self._masses(whole, options.get("hydrogenMass"), () if free else keys)
        call_for_each(bare, "addParticle", masses)
        if free:
            return bare, forces
        call_for_each(bare, "addConstraint", pairs, lengths)
        for index, force in enumerate(forces):
            if type(force) in _FLEXIBLE:
                key = repr(_beside_constraints(options)), index
                forces[index] = self._constrained(force, key, keys, count)
        return bare, forces

    def _constrained(
        self, force: openmm.Force, key: tuple[str, int], constrained: np.ndarray, count: int
    ) -> openmm.Force:
        """Return a force without its terms between atoms whose distance is constrained."""
        if key not in self._without:
            kind, size = _FLEXIBLE[type(force)]
            particles, numbers = terms_of(force, kind, size)
            acting = ~are_among(pair_keys(particles[:, [0, -1]], count), constrained)
            if acting.all():
                return force
            bare = type(force)()
            bare.setName(force.getName())
            bare.setForceGroup(force.getForceGroup())
            bare.setUsesPeriodicBoundaryConditions(force.usesPeriodicBoundaryConditions())
            call_for_each(bare, f"add{kind}", particles[acting], numbers[acting])
            self._without[key] = bare
        return self._without[key]

    def _masses(
        self, whole: openmm.System, of_hydrogen: Any, constrained: np.ndarray | tuple[()]
    ) -> np.ndarray:
        """Return masses in Da, repartitioned from heavy atoms to their hydrogens except in rigid water."""
        masses = masses_of(whole)
        if of_hydrogen is None:
            return masses
        if unit.is_quantity(of_hydrogen):
            of_hydrogen = of_hydrogen.value_in_unit(unit.dalton)
        light = np.array([atom.element is app.element.hydrogen for atom in self._topology.atoms()])
        known = np.array([atom.element is not None for atom in self._topology.atoms()])
        water = np.array([atom.residue.name == "HOH" for atom in self._topology.atoms()])
        bonds = bonded_pairs(self._topology)
        bonds = np.where(light[bonds[:, :1]], bonds[:, ::-1], bonds)
        bonds = bonds[light[bonds[:, 1]] & ~light[bonds[:, 0]] & known[bonds[:, 0]]]
        if len(constrained):
            pairs = np.stack(np.divmod(constrained, len(masses)), axis=1)
            rigid = np.zeros(len(masses), dtype=bool)
            # The distance between a water's hydrogens is fixed only if the water is rigid.
            rigid[pairs[light[pairs].all(axis=1)]] = True
            bonds = bonds[~(rigid & water)[bonds[:, 1]]]
        given = of_hydrogen - masses[bonds[:, 1]]
        masses[bonds[:, 1]] = of_hydrogen
        np.subtract.at(masses, bonds[:, 0], given)
        return masses


_FLEXIBLE = {openmm.HarmonicBondForce: ("Bond", 2), openmm.HarmonicAngleForce: ("Angle", 3)}


def _beside_constraints(options: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in options.items()
        if key not in ("constraints", "rigidWater", "hydrogenMass")
    }
