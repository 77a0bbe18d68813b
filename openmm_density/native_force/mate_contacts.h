// The contacts of a unit with its symmetry mates: what mate_contacts.py computes, with pairs that are found by cells.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "energy.h"

namespace openmm_density {

class MateContacts : public FormEnergy {
public:
    explicit MateContacts(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          n(form->length("spheres")),
          n_copies(form->length("rotations")),
          n_excluded(form->length("excluded")),
          is_crystal(form->number("is_crystal") != 0),
          spheres(form->array<double>("spheres")),
          rotations(form->array<double>("rotations")),
          translations(form->array<double>("translations")),
          lattice(form->array<double>("lattice")),
          inverse(form->array<double>("inverse")),
          excluded(form->array<int64_t>("excluded")),
          cutoff(form->number("cutoff")),
          field(form->number("field")),
          shift(form->number("shift")),
          coulomb(form->number("coulomb")) {
        if (n != n_positions() || form->length("translations") != n_copies)
            form->refuse("has " + std::to_string(n) + " spheres of " + std::to_string(n_positions()) + " particles");
        if (is_crystal && !std::isfinite(cutoff))
            form->refuse("needs a cutoff in a crystal");
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        derivatives[0] = 0;
        static thread_local std::vector<Image> images;
        Box unit;
        if (!unit.around(at.positions, n, nullptr)) return 0;
        find_images(at.positions, unit, images);
        if (images.empty()) return 0;
        const Cells cells(images, cutoff);
        const double k = at.strengths[0];
        double energy = 0;
        for (int64_t i = 0; i < n; ++i) energy += of_atom(i, at.positions + 3 * i, images, cells, k, forces + 3 * i);
        derivatives[0] = 0.5 * energy;
        return k * derivatives[0];
    }

private:
    // An atom of a mate, that is near enough to the unit to matter.
    struct Image {
        double position[3];
        int64_t atom;
        int64_t copy;
    };

    // The least and the largest coordinates of atoms, Cartesian or in fractions of a cell.
    struct Box {
        double low[3], high[3];

        bool around(const double* positions, int64_t n, const double* inverse) {
            std::fill_n(low, 3, INFINITY);
            std::fill_n(high, 3, -INFINITY);
            for (int64_t i = 0; i < n; ++i) {
                double x[3] = {positions[3 * i], positions[3 * i + 1], positions[3 * i + 2]};
                if (inverse) times(inverse, positions + 3 * i, x);
                for (int axis = 0; axis < 3; ++axis) {
                    low[axis] = std::min(low[axis], x[axis]);
                    high[axis] = std::max(high[axis], x[axis]);
                    // What has blown up has no contacts: other forces tell.
                    if (!(std::fabs(x[axis]) < 1e6)) return false;
                }
            }
            return n > 0;
        }
        void widen(int axis, double by) {
            low[axis] -= by;
            high[axis] += by;
        }
    };

    // Images sorted by cells at least as wide as the cut-off.
    struct Cells {
        double low[3], width[3];
        int64_t count[3];
        std::vector<int64_t> first, sorted;

        Cells(const std::vector<Image>& images, double cutoff) {
            double high[3];
            std::copy_n(images[0].position, 3, low);
            std::copy_n(images[0].position, 3, high);
            for (const Image& image : images)
                for (int axis = 0; axis < 3; ++axis) {
                    low[axis] = std::min(low[axis], image.position[axis]);
                    high[axis] = std::max(high[axis], image.position[axis]);
                }
            for (int axis = 0; axis < 3; ++axis) {
                const double length = high[axis] - low[axis];
                count[axis] = std::isfinite(cutoff) ? std::clamp<int64_t>(static_cast<int64_t>(length / cutoff), 1, 64) : 1;
                width[axis] = std::max(length / count[axis], 1e-9);
            }
            std::vector<int64_t> cell_of(images.size());
            first.assign(count[0] * count[1] * count[2] + 1, 0);
            for (size_t i = 0; i < images.size(); ++i) {
                int64_t at[3];
                for (int axis = 0; axis < 3; ++axis)
                    at[axis] = std::clamp<int64_t>(static_cast<int64_t>((images[i].position[axis] - low[axis]) / width[axis]), 0, count[axis] - 1);
                cell_of[i] = number(at[0], at[1], at[2]);
                ++first[cell_of[i] + 1];
            }
            for (size_t cell = 1; cell < first.size(); ++cell) first[cell] += first[cell - 1];
            std::vector<int64_t> next(first.begin(), first.end() - 1);
            sorted.resize(images.size());
            for (size_t i = 0; i < images.size(); ++i) sorted[next[cell_of[i]]++] = i;
        }
        int64_t number(int64_t x, int64_t y, int64_t z) const {
            return (z * count[1] + y) * count[0] + x;
        }
        // The cells along an axis that a distance from a coordinate reaches; none where begin is behind end.
        std::pair<int64_t, int64_t> reached(int axis, double x, double distance) const {
            if (!std::isfinite(distance)) return {0, count[axis] - 1};
            const double begin = std::floor((x - distance - low[axis]) / width[axis]), end = std::floor((x + distance - low[axis]) / width[axis]);
            return {static_cast<int64_t>(std::max(begin, 0.0)), static_cast<int64_t>(std::min(end, static_cast<double>(count[axis] - 1)))};
        }
    };

    static void times(const double* matrix, const double* x, double* product) {
        for (int row = 0; row < 3; ++row) product[row] = matrix[3 * row] * x[0] + matrix[3 * row + 1] * x[1] + matrix[3 * row + 2] * x[2];
    }

    void find_images(const double* positions, Box unit, std::vector<Image>& images) const {
        images.clear();
        if (is_crystal) unit.around(positions, n, inverse);
        for (int axis = 0; axis < 3; ++axis) {
            const double* const row = inverse + 3 * axis;
            unit.widen(axis, is_crystal ? cutoff * std::sqrt(row[0] * row[0] + row[1] * row[1] + row[2] * row[2]) + 1e-9 : cutoff);
        }
        for (int64_t copy = is_crystal ? 0 : 1; copy < n_copies; ++copy)
            for (int64_t j = 0; j < n; ++j) {
                Image image{{}, j, copy};
                times(rotations + 9 * copy, positions + 3 * j, image.position);
                for (int axis = 0; axis < 3; ++axis) image.position[axis] += translations[3 * copy + axis];
                if (is_crystal)
                    add_translated(image, unit, images);
                else if (inside(image.position, unit))
                    images.push_back(image);
            }
    }

    static bool inside(const double* x, const Box& box) {
        return x[0] >= box.low[0] && x[0] <= box.high[0] && x[1] >= box.low[1] && x[1] <= box.high[1] && x[2] >= box.low[2] &&
               x[2] <= box.high[2];
    }

    // Add all images by steps of the lattice that are within bounds in fractions.
    void add_translated(const Image& image, const Box& bounds, std::vector<Image>& images) const {
        double fraction[3];
        int64_t begin[3], end[3];
        times(inverse, image.position, fraction);
        for (int axis = 0; axis < 3; ++axis) {
            begin[axis] = static_cast<int64_t>(std::ceil(bounds.low[axis] - fraction[axis]));
            end[axis] = static_cast<int64_t>(std::floor(bounds.high[axis] - fraction[axis]));
        }
        for (int64_t a = begin[0]; a <= end[0]; ++a)
            for (int64_t b = begin[1]; b <= end[1]; ++b)
                for (int64_t c = begin[2]; c <= end[2]; ++c) {
                    if (image.copy == 0 && a == 0 && b == 0 && c == 0) continue;
                    const double steps[3] = {static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)};
                    Image moved = image;
                    double step[3];
                    times(lattice, steps, step);
                    for (int axis = 0; axis < 3; ++axis) moved.position[axis] += step[axis];
                    images.push_back(moved);
                }
    }

    bool is_excluded(int64_t i, const Image& image) const {
        int64_t begin = 0, end = n_excluded;
        const int64_t wanted[3] = {i, image.copy, image.atom};
        while (begin < end) {
            const int64_t middle = (begin + end) / 2;
            if (std::lexicographical_compare(excluded + 3 * middle, excluded + 3 * middle + 3, wanted, wanted + 3))
                begin = middle + 1;
            else
                end = middle;
        }
        return begin < n_excluded && std::equal(wanted, wanted + 3, excluded + 3 * begin);
    }

    // Return the energy of an atom with all images, and store k times the force on it.
    double of_atom(int64_t i, const double* x, const std::vector<Image>& images, const Cells& cells, double k, double* force) const {
        const double* const own = spheres + 3 * i;
        const double farthest = cutoff * cutoff;
        double energy = 0, total[3] = {};
        std::pair<int64_t, int64_t> range[3];
        for (int axis = 0; axis < 3; ++axis) range[axis] = cells.reached(axis, x[axis], cutoff);
        for (int64_t c = range[2].first; c <= range[2].second; ++c)
            for (int64_t b = range[1].first; b <= range[1].second; ++b)
                for (int64_t a = range[0].first; a <= range[0].second; ++a) {
                    const int64_t cell = cells.number(a, b, c);
                    for (int64_t at = cells.first[cell]; at < cells.first[cell + 1]; ++at) {
                        const Image& image = images[cells.sorted[at]];
                        const double vector[3] = {x[0] - image.position[0], x[1] - image.position[1], x[2] - image.position[2]};
                        const double square = vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2];
                        if (!(square < farthest) || (n_excluded && is_excluded(i, image))) continue;
                        const double* const other = spheres + 3 * image.atom;
                        const double inverse_square = 1 / square, distance = std::sqrt(square);
                        const double sigma = 0.5 * (own[0] + other[0]), depth = own[1] * other[1], charges = coulomb * own[2] * other[2];
                        const double ratio = sigma * sigma * inverse_square, sixth = ratio * ratio * ratio;
                        energy += 4 * depth * (sixth * sixth - sixth) + charges * (1 / distance + field * square - shift);
                        const double slope = 24 * depth * (2 * sixth * sixth - sixth) * inverse_square +
                                             charges * (inverse_square / distance - 2 * field);
                        for (int axis = 0; axis < 3; ++axis) total[axis] += slope * vector[axis];
                    }
                }
        for (int axis = 0; axis < 3; ++axis) force[axis] = k * total[axis];
        return energy;
    }

    const int64_t n;
    const int64_t n_copies;
    const int64_t n_excluded;
    const bool is_crystal;
    const double* const spheres;
    const double* const rotations;
    const double* const translations;
    const double* const lattice;
    const double* const inverse;
    const int64_t* const excluded;
    const double cutoff;
    const double field;
    const double shift;
    const double coulomb;
};

}  // namespace openmm_density
