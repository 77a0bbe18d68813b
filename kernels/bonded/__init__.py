"""Bonded terms of a force field on the CPU: its angles and torsions, for which OpenMM's CPU platform takes a third of a step.

The energy, in kJ/mol, with positions in nm, is that of

==========  ===========  ===================
terms       parameters   energy of each
==========  ===========  ===================
angles      θ₀, k        ½ k (θ − θ₀)²
torsions    n, δ, k      k (1 + cos(n φ − δ))
==========  ===========  ===================

with n from 1 to 6 and IUPAC's sign of φ. Terms of the same four atoms are one Fourier series, whose cosines and sines follow from
those of φ: no angle is found. Of an angle, its difference from θ₀ is found, with the digits of float32 however small it is.

As many terms as a register has lanes are evaluated at once, in float32 from differences of float64 positions; forces and energy
are added up in float64. Terms lie in blocks by their first atoms, and no atom belongs to two of every second block: these are
evaluated side by side, then the others, then the few terms of atoms that are far apart in the order of the System. So forces are
added up in an order that does not depend on threads: the same input gives the same bits.

There is no operator for torch: `openmm_density.energies.native_force.own_kernels` puts them in the place of OpenMM's.
"""
