"""Corrections that a user asks for when a map is read: its voxel size, its handedness, its contrast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.units import takes_units

if TYPE_CHECKING:
    from .density_map import DensityMap


@takes_units("voxel_size")
@dataclass(frozen=True)
class MapCorrections:
    """Corrections of a map as it was read, made in this order.

    Attributes
    ----------
    voxel_size : float or tuple of three float, optional
        The right lengths in Å of the steps along x, y and z, see `DensityMap.with_voxel_size`.
    mirror : bool
        Whether the map has the wrong handedness, see `DensityMap.mirrored`.
    invert : bool
        Whether density is negative in it, see `DensityMap.inverted`.
    """

    voxel_size: float | tuple[float, float, float] | None = None
    mirror: bool = False
    invert: bool = False

    def __bool__(self) -> bool:
        """Return whether there is anything to correct."""
        return self.voxel_size is not None or self.mirror or self.invert

    def apply(self, density_map: DensityMap) -> DensityMap:
        """Return the map as it should have been read.

        Raises
        ------
        InputError
            If the voxel size is none, or one for three different ones.
        """
        if self.voxel_size is not None:
            density_map = density_map.with_voxel_size(self.voxel_size)
        if self.mirror:
            density_map = density_map.mirrored()
        return density_map.inverted() if self.invert else density_map

    def sentences(self, corrected: DensityMap) -> list[str]:
        """Return a sentence on each correction, with the ChimeraX command that makes the same one.

        Parameters
        ----------
        corrected : DensityMap
            The map that `apply` returned.
        """
        said = []
        if self.voxel_size is not None:
            sizes = ",".join(f"{size:.6g}" for size in corrected.voxel_size)
            said.append(
                f"The map was read with voxels of {' × '.join(sizes.split(','))} Å in place of those of its header (in ChimeraX: "
                f"volume #1 voxelSize {sizes})."
            )
        if self.mirror:
            flip = "volume flip #1 axis z" if corrected.is_orthogonal else "volume flip #1 axis xyz"
            said.append(f"The map was mirrored when it was read (in ChimeraX: {flip}).")
        if self.invert:
            said.append(
                "The map's sign was changed when it was read (in ChimeraX: volume scale #1 factor -1)."
            )
        return said

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"voxel_size": self.voxel_size, "mirror": self.mirror, "invert": self.invert}
