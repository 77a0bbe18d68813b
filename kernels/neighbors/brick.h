// The rectangular unit cell of a lattice, or the space that atoms without a lattice take up: see __init__.py.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace openmm_density {
namespace {

constexpr double FARTHEST_BOX = 200;
constexpr double MOST_HEIGHTS = 100;
// The largest coordinate whose square, and that of a distance, is a float32.
constexpr double FARTHEST = 1e18;

// Steps along the lattice vectors in one number. It is linear: sums and differences of steps are those of numbers, also where one
// of them wraps around on the way to a step that fits.
inline int32_t packed(int64_t x, int64_t y, int64_t z) {
    return static_cast<int32_t>(static_cast<uint32_t>(x) + (static_cast<uint32_t>(y) << 10) + (static_cast<uint32_t>(z) << 20));
}

inline std::array<int32_t, 3> unpacked(int32_t code) {
    const int32_t x = ((code + 512) & 1023) - 512;
    code = (code - x) >> 10;
    const int32_t y = ((code + 512) & 1023) - 512;
    return {x, y, (code - y) >> 10};
}

struct Brick {
    bool periodic = false;
    double box[3][3] = {};                              // as it was given, rows
    double inverse[3][3] = {};                          // of it
    double turn[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};  // rows: the directions of x, y and z
    double origin[3] = {};
    double size[3] = {};       // a_x, b_y, c_z
    double bx = 0, cx = 0, cy = 0;
    double smallest_height = std::numeric_limits<double>::infinity();  // 0 for a flat box

    Brick() = default;

    explicit Brick(const double* given) : periodic(true) {
        std::copy(given, given + 9, &box[0][0]);
        double length[3], volume = 0, largest_area = 0;
        for (int row = 0; row < 3; ++row) {
            const double* const b = box[(row + 1) % 3];
            const double* const c = box[(row + 2) % 3];
            double area = 0;
            for (int axis = 0; axis < 3; ++axis) {
                const int j = (axis + 1) % 3, k = (axis + 2) % 3;
                inverse[axis][row] = b[j] * c[k] - b[k] * c[j];
                area += inverse[axis][row] * inverse[axis][row];
            }
            largest_area = std::max(largest_area, std::sqrt(area));
            length[row] = std::sqrt(dot(box[row], box[row]));
        }
        for (int axis = 0; axis < 3; ++axis) volume += box[0][axis] * inverse[axis][0];
        if (!(std::abs(volume) > 1e-12 * length[0] * length[1] * length[2]) || !std::isfinite(volume)) {
            smallest_height = 0;
            return;
        }
        smallest_height = std::abs(volume) / largest_area;
        for (auto& row : inverse)
            for (double& element : row) element /= volume;
        size[0] = length[0];
        for (int axis = 0; axis < 3; ++axis) turn[0][axis] = box[0][axis] / size[0];
        bx = dot(box[1], turn[0]);
        cx = dot(box[2], turn[0]);
        double rest[3];
        for (int axis = 0; axis < 3; ++axis) rest[axis] = box[1][axis] - bx * turn[0][axis];
        size[1] = std::sqrt(dot(rest, rest));
        for (int axis = 0; axis < 3; ++axis) turn[1][axis] = rest[axis] / size[1];
        cy = dot(box[2], turn[1]);
        for (int axis = 0; axis < 3; ++axis) rest[axis] = box[2][axis] - cx * turn[0][axis] - cy * turn[1][axis];
        size[2] = std::sqrt(dot(rest, rest));
        for (int axis = 0; axis < 3; ++axis) turn[2][axis] = rest[axis] / size[2];
    }

    static double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

    bool is_usable(const double* position) const {
        for (int axis = 0; axis < 3; ++axis)
            if (!(std::abs(position[axis]) <= FARTHEST)) return false;
        if (!periodic) return true;
        for (int i = 0; i < 3; ++i) {
            double fraction = 0;
            for (int axis = 0; axis < 3; ++axis) fraction += position[axis] * inverse[axis][i];
            if (!(std::abs(std::floor(fraction)) <= FARTHEST_BOX)) return false;
        }
        return true;
    }

    // Where a position is in the brick; its steps from there, packed.
    int32_t bring_in(const double* position, double inside[3]) const {
        double x = dot(position, turn[0]), y = dot(position, turn[1]), z = dot(position, turn[2]);
        if (!periodic) {
            inside[0] = x - origin[0], inside[1] = y - origin[1], inside[2] = z - origin[2];
            return 0;
        }
        const double nz = std::floor(z / size[2]);
        x -= nz * cx, y -= nz * cy, z -= nz * size[2];
        const double ny = std::floor(y / size[1]);
        x -= ny * bx, y -= ny * size[1];
        const double nx = std::floor(x / size[0]);
        inside[0] = x - nx * size[0], inside[1] = y, inside[2] = z;
        return packed(static_cast<int64_t>(nx), static_cast<int64_t>(ny), static_cast<int64_t>(nz));
    }

    // The squared distance from one given position to an image of another.
    template <typename Real>
    double squared_distance(const Real* from, const Real* to, int32_t shift) const {
        double vector[3];
        for (int axis = 0; axis < 3; ++axis) vector[axis] = static_cast<double>(to[axis]) - static_cast<double>(from[axis]);
        if (periodic) {
            const auto steps = unpacked(shift);
            for (int axis = 0; axis < 3; ++axis)
                vector[axis] += steps[0] * box[0][axis] + steps[1] * box[1][axis] + steps[2] * box[2][axis];
        }
        return dot(vector, vector);
    }
};

}  // namespace
}  // namespace openmm_density
