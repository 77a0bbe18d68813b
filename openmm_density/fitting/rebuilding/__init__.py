"""What no dynamics of picoseconds finds: side chains in other rotamers, and stretches a residue farther on."""

from .rebuilding import Rebuilding

__all__ = ["Rebuilding"]
