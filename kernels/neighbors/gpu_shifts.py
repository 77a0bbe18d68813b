"""The packed shifts of a list, decoded in Triton: how many lattice vectors are between an atom and its neighbour."""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl


@triton.jit
def lattice_steps(code):
    """Return the three steps that a packed shift holds, ten bits each, as whole numbers."""
    x = ((code + 512) & 1023) - 512
    rest = (code - x) >> 10
    y = ((rest + 512) & 1023) - 512
    return x, y, (rest - y) >> 10


@triton.jit
def imaged(dx, dy, dz, shifts, entry, is_there, box):
    """Return vectors to some entries' atoms, moved by the lattice vectors that the list has for them."""
    x, y, z = lattice_steps(tl.load(shifts + entry, mask=is_there, other=0))
    dx += x * tl.load(box) + y * tl.load(box + 3) + z * tl.load(box + 6)
    dy += x * tl.load(box + 1) + y * tl.load(box + 4) + z * tl.load(box + 7)
    dz += x * tl.load(box + 2) + y * tl.load(box + 5) + z * tl.load(box + 8)
    return dx, dy, dz


@triton.jit
def moved(dx, dy, dz, code, ax, ay, az, bx, by, bz, cx, cy, cz):
    """Return vectors moved by the lattice vectors of packed shifts, with the lattice in registers."""
    # All three steps are made positive at once, and become floats by their bits, as the last ones of 2^23's.
    code += 512 * 1049601
    x = ((code & 1023) | 0x4B000000).to(tl.float32, bitcast=True) - 8389120.0
    y = (((code >> 10) & 1023) | 0x4B000000).to(tl.float32, bitcast=True) - 8389120.0
    z = ((code >> 20) | 0x4B000000).to(tl.float32, bitcast=True) - 8389120.0
    dx, dy, dz = dx + x * ax, dy + x * ay, dz + x * az
    dx, dy, dz = dx + y * bx, dy + y * by, dz + y * bz
    return dx + z * cx, dy + z * cy, dz + z * cz
