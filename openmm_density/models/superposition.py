"""The rigid motion that best superposes points on others."""

from __future__ import annotations

import numpy as np


def rotation_onto(moving: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Return the rotation that best superposes vectors on others (Kabsch)."""
    u, _, vt = np.linalg.svd(moving.T @ fixed)
    sign = np.sign(np.linalg.det(vt.T @ u.T))
    return vt.T @ np.diag([1.0, 1.0, sign]) @ u.T


def superposition(moving: np.ndarray, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotation and shift that superpose points on others; only a shift for fewer than three, neither for none."""
    if len(moving) == 0:
        return np.eye(3), np.zeros(3)
    centre, target = moving.mean(axis=0), fixed.mean(axis=0)
    rotation = np.eye(3)
    if len(moving) >= 3:
        rotation = rotation_onto(moving - centre, fixed - target)
    return rotation, target - rotation @ centre
