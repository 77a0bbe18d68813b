// The energies of this package on plain memory: what its torch modules compute, by the same kernels, without torch.
//
// An energy is made of a Form, which Python fills in with the tensors and numbers of a module (forms.py): `energy_of` says which
// kinds there are. The kernels are functions in libraries of their own, see interface.h in the folders of kernels/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "energy.h"
#include "mate_contacts.h"
#include "painn.h"
#include "symmetry_mates.h"

#include "density/interface.h"
#include "interpolation/interface.h"
#include "molecules/interface.h"
#include "planarity/interface.h"
#include "torsion_maps/interface.h"

namespace openmm_density {

// k (largest S - S).
class SimilarityEnergy : public FormEnergy {
public:
    using FormEnergy::FormEnergy;
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        const double k = at.strengths[0];
        derivatives[0] = form->number("max_similarity") - similarity(at, k, forces);
        return k * derivatives[0];
    }

protected:
    virtual double similarity(const Configuration& at, double scale, double* gradient) const = 0;
};

// The density of n atoms, by their indices, and the target of a form.
inline Comparison comparison_of(const Form& form, int64_t n, const int64_t* atoms) {
    return {n,
            static_cast<int>(form.length("amplitudes", 1)),
            atoms,
            form.array<float>("amplitudes"),
            form.array<float>("exponents"),
            form.number("cutoff"),
            form.array<float>("target"),
            form.array<double>("moments"),
            form.array<double>("matrix"),
            form.array<double>("origin"),
            {form.length("target", 0), form.length("target", 1), form.length("target", 2)},
            form.number("periodic") != 0,
            static_cast<int>(form.number("measure")),
            form.number("total_weight")};
}

class DensityEnergy : public SimilarityEnergy {
public:
    explicit DensityEnergy(std::shared_ptr<const Form> given)
        : SimilarityEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_similarity)>()),
          compared(comparison_of(*form, form->length("atoms"), form->indices<int64_t>("atoms", n_positions()))) {}

protected:
    double similarity(const Configuration& at, double scale, double* gradient) const override {
        return kernel(compared, at.positions, at.n_positions, scale, at.n_threads, gradient);
    }

private:
    decltype(openmm_density_similarity)* kernel;
    const Comparison compared;
};

// k (largest S - S) of the mean density of several models, each in a frame of its own, by k and the weight of each.
class EnsembleDensity : public Energy {
public:
    explicit EnsembleDensity(std::shared_ptr<const Form> given)
        : form(std::move(given)),
          kernel(form->function<decltype(openmm_density_similarity)>()),
          n(form->length("amplitudes")),
          n_components(form->length("amplitudes", 1)),
          n_replicas(form->length("displacements")),
          atoms(form->indices<int64_t>("atoms", n_positions())),
          own_atoms(form->indices<int64_t>("own_atoms", n)),
          replicas(form->indices<int64_t>("replicas", n_replicas)),
          displacements(form->array<double>("displacements")),
          amplitudes(form->array<float>("amplitudes")),
          compared(comparison_of(*form, n, own_atoms)) {
        if (form->length("atoms") != n || form->length("own_atoms") != n || form->length("replicas") != n)
            form->refuse("has " + std::to_string(form->length("atoms")) + " atoms with " + std::to_string(n) + " amplitudes");
    }
    int64_t n_positions() const override {
        return static_cast<int64_t>(form->number("n_particles"));
    }
    int n_strengths() const override {
        return static_cast<int>(1 + n_replicas);
    }
    // The derivatives with respect to weights are not computed here, and are 0.
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> own, gradient;
        static thread_local std::vector<float> weighted;
        own.resize(3 * n);
        gradient.resize(3 * n);
        weighted.resize(n * n_components);
        for (int64_t i = 0; i < n; ++i) {
            const int64_t replica = replicas[i];
            const float weight = static_cast<float>(at.strengths[1 + replica]);
            for (int axis = 0; axis < 3; ++axis)
                own[3 * i + axis] = at.positions[3 * atoms[i] + axis] - displacements[3 * replica + axis];
            for (int64_t c = 0; c < n_components; ++c) weighted[i * n_components + c] = weight * amplitudes[i * n_components + c];
        }
        Comparison here = compared;
        here.amplitudes = weighted.data();
        const double k = at.strengths[0];
        std::fill_n(derivatives, n_strengths(), 0.0);
        derivatives[0] = form->number("max_similarity") - kernel(here, own.data(), n, k, at.n_threads, gradient.data());
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t i = 0; i < n; ++i) std::copy_n(gradient.data() + 3 * i, 3, forces + 3 * atoms[i]);
        return k * derivatives[0];
    }

private:
    const std::shared_ptr<const Form> form;
    decltype(openmm_density_similarity)* kernel;
    const int64_t n;
    const int64_t n_components;
    const int64_t n_replicas;
    const int64_t* const atoms;
    const int64_t* const own_atoms;
    const int64_t* const replicas;
    const double* const displacements;
    const float* const amplitudes;
    const Comparison compared;
};

class MapPotentialEnergy : public SimilarityEnergy {
public:
    explicit MapPotentialEnergy(std::shared_ptr<const Form> given)
        : SimilarityEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_map_potential)>()),
          potential{form->length("atoms"),
                    form->indices<int64_t>("atoms", n_positions()),
                    form->array<float>("weights"),
                    form->array<float>("potential"),
                    form->array<double>("matrix"),
                    form->array<double>("origin"),
                    {form->length("potential", 0), form->length("potential", 1), form->length("potential", 2)},
                    form->number("periodic") != 0} {}

protected:
    double similarity(const Configuration& at, double scale, double* gradient) const override {
        return kernel(potential, at.positions, at.n_positions, scale, at.n_threads, gradient);
    }

private:
    decltype(openmm_density_map_potential)* kernel;
    const Potential potential;
};

// An energy of some particles, whose molecules are put back whole.
class WholeMolecules : public FormEnergy {
public:
    explicit WholeMolecules(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_whole_molecules)>()),
          energy(energy_within(*form, form->length("particles"))),
          molecules{form->length("references"), form->indices<int64_t>("particles", n_positions()),
                    form->indices<int64_t>("order", form->length("particles")), form->array<int64_t>("offsets"),
                    form->array<double>("references")} {}
    int n_strengths() const override {
        return energy->n_strengths();
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> whole, own;
        const int64_t n = form->length("particles");
        whole.resize(3 * n);
        own.resize(3 * n);
        kernel(molecules, at.positions, at.box, at.n_threads, whole.data());
        const double found = energy->evaluate({whole.data(), n, at.box, at.strengths, at.n_threads}, own.data(), derivatives);
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t i = 0; i < n; ++i) std::copy_n(own.data() + 3 * i, 3, forces + 3 * molecules.particles[i]);
        return found;
    }

private:
    decltype(openmm_density_whole_molecules)* kernel;
    const EnergyPointer energy;
    const Molecules molecules;
};

// k kT sum of (d / sigma)^2 / 2.
class PlanarityEnergy : public FormEnergy {
public:
    explicit PlanarityEnergy(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_planarity)>()),
          groups{form->length("offsets") - 1,
                 form->array<int32_t>("members"),
                 form->array<int32_t>("offsets"),
                 form->array<float>("inverse_sigmas"),
                 form->length("atom_offsets") - 1,
                 form->array<int32_t>("atom_offsets"),
                 form->array<int32_t>("atom_members"),
                 form->number("constants") != 0} {}
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        const double k = at.strengths[0], thermal = form->number("thermal_energy");
        derivatives[0] = thermal * kernel(groups, at.positions, at.n_positions, -thermal * k, at.n_threads, forces);
        return k * derivatives[0];
    }

private:
    decltype(openmm_density_planarity)* kernel;
    const FlatGroups groups;
};

// An energy of the members of planes, each at its image beside the first member of its plane.
class WholePlanes : public FormEnergy {
public:
    explicit WholePlanes(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          n(form->length("members")),
          energy(energy_within(*form, n)),
          members(form->indices<int64_t>("members", n_positions())),
          anchors(form->indices<int64_t>("anchors", n_positions())),
          particles(form->indices<int64_t>("particles", n_positions())),
          rows(form->indices<int64_t>("rows", n + 1)),
          n_rows(form->length("rows")),
          n_columns(form->length("rows", 1)) {
        if (form->length("anchors") != n)
            form->refuse("has " + std::to_string(form->length("anchors")) + " anchors of " + std::to_string(n) + " members");
        if (form->length("particles") != n_rows)
            form->refuse("has " + std::to_string(n_rows) + " rows of " + std::to_string(form->length("particles")) + " particles");
    }
    int n_strengths() const override {
        return energy->n_strengths();
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> whole, own;
        whole.resize(3 * n);
        own.resize(3 * n);
        double inverse[3][3];
        invert(at.box, inverse);
        for (int64_t i = 0; i < n; ++i) {
            const double* const position = at.positions + 3 * members[i];
            const double* const anchor = at.positions + 3 * anchors[i];
            const double away[3] = {position[0] - anchor[0], position[1] - anchor[1], position[2] - anchor[2]};
            double images[3];
            for (int j = 0; j < 3; ++j)
                images[j] = std::nearbyint(away[0] * inverse[0][j] + away[1] * inverse[1][j] + away[2] * inverse[2][j]);
            for (int j = 0; j < 3; ++j)
                whole[3 * i + j] = position[j] - (images[0] * at.box[j] + images[1] * at.box[3 + j] + images[2] * at.box[6 + j]);
        }
        const double found = energy->evaluate({whole.data(), n, at.box, at.strengths, at.n_threads}, own.data(), derivatives);
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t i = 0; i < n_rows; ++i)
            for (int64_t column = 0; column < n_columns && rows[i * n_columns + column] < n; ++column)
                for (int j = 0; j < 3; ++j) forces[3 * particles[i] + j] += own[3 * rows[i * n_columns + column] + j];
        return found;
    }

private:
    static void invert(const double* box, double (&inverse)[3][3]) {
        double volume = 0;
        for (int row = 0; row < 3; ++row) {
            const double* const b = box + (row + 1) % 3 * 3;
            const double* const c = box + (row + 2) % 3 * 3;
            for (int axis = 0; axis < 3; ++axis) {
                const int j = (axis + 1) % 3, k = (axis + 2) % 3;
                inverse[axis][row] = b[j] * c[k] - b[k] * c[j];
            }
        }
        for (int axis = 0; axis < 3; ++axis) volume += box[axis] * inverse[axis][0];
        for (auto& row : inverse)
            for (double& element : row) element /= volume;
    }

    const int64_t n;
    const EnergyPointer energy;
    const int64_t* const members;
    const int64_t* const anchors;
    const int64_t* const particles;
    const int64_t* const rows;
    const int64_t n_rows;
    const int64_t n_columns;
};

// k sum of map(phi, psi).
class TorsionMapEnergy : public FormEnergy {
public:
    explicit TorsionMapEnergy(std::shared_ptr<const Form> given)
        : FormEnergy(std::move(given)),
          kernel(form->function<decltype(openmm_density_torsion_maps)>()),
          terms{form->length("map_of_term"),
                form->array<int32_t>("members"),
                form->array<int32_t>("map_of_term"),
                form->array<float>("handedness"),
                form->length("atom_offsets") - 1,
                form->array<int32_t>("atom_offsets"),
                form->array<int32_t>("atom_members"),
                form->array<float>("nodes"),
                form->length("nodes", 1)} {}
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        const double k = at.strengths[0];
        derivatives[0] = kernel(terms, at.positions, at.n_positions, -k, at.n_threads, forces);
        return k * derivatives[0];
    }

private:
    decltype(openmm_density_torsion_maps)* kernel;
    const TorsionTerms terms;
};

// Energies of positions that come one after the other, with a strength each.
class SideBySide : public Energy {
public:
    explicit SideBySide(const std::shared_ptr<const Form>& form) {
        for (const auto& [name, part] : form->part("energies")->parts) {
            energies.push_back(energy_of(part));
            if (energies.back()->n_strengths() != 1)
                form->refuse("has a part with " + std::to_string(energies.back()->n_strengths()) + " strengths");
        }
    }
    int n_strengths() const override {
        return static_cast<int>(energies.size());
    }
    int64_t n_positions() const override {
        int64_t n = 0;
        for (const EnergyPointer& each : energies) n += each->n_positions();
        return n;
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        double found = 0;
        int64_t first = 0;
        for (size_t i = 0; i < energies.size(); ++i) {
            const int64_t n = energies[i]->n_positions();
            found += energies[i]->evaluate({at.positions + 3 * first, n, at.box, at.strengths + i, at.n_threads}, forces + 3 * first,
                                           derivatives + i);
            first += n;
        }
        return found;
    }

private:
    std::vector<EnergyPointer> energies;
};

// k sum of x^2 of any particles, to see whether a force works.
class ProbeEnergy : public Energy {
public:
    explicit ProbeEnergy(const std::shared_ptr<const Form>&) {}
    int64_t n_positions() const override {
        return 0;
    }
    bool takes(int64_t) const override {
        return true;
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        derivatives[0] = 0;
        for (int64_t i = 0; i < 3 * at.n_positions; ++i) {
            derivatives[0] += at.positions[i] * at.positions[i];
            forces[i] = -2 * at.strengths[0] * at.positions[i];
        }
        return at.strengths[0] * derivatives[0];
    }
};

// An energy of some of all particles.
class OfParticles : public Energy {
public:
    explicit OfParticles(std::shared_ptr<const Form> given)
        : form(std::move(given)),
          energy(energy_of(form->part("energy"))),
          n(form->length("particles")),
          particles(form->indices<int64_t>("particles", std::numeric_limits<int64_t>::max())),
          n_least(n == 0 ? 0 : 1 + *std::max_element(particles, particles + n)) {}
    int64_t n_positions() const override {
        return n;
    }
    bool takes(int64_t n_all) const override {
        return n_all >= n_least && energy->takes(n);
    }
    int n_strengths() const override {
        return energy->n_strengths();
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> taken, own;
        taken.resize(3 * n);
        own.resize(3 * n);
        for (int64_t i = 0; i < n; ++i) std::copy_n(at.positions + 3 * particles[i], 3, taken.data() + 3 * i);
        const double found = energy->evaluate({taken.data(), n, at.box, at.strengths, at.n_threads}, own.data(), derivatives);
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t i = 0; i < n; ++i) std::copy_n(own.data() + 3 * i, 3, forces + 3 * particles[i]);
        return found;
    }

private:
    const std::shared_ptr<const Form> form;
    const EnergyPointer energy;
    const int64_t n;
    const int64_t* const particles;
    const int64_t n_least;
};

template <class Kind>
EnergyPointer made(std::shared_ptr<const Form> form) {
    return std::make_shared<Kind>(std::move(form));
}

inline EnergyPointer energy_of(std::shared_ptr<const Form> form) {
    static const std::map<std::string, EnergyPointer (*)(std::shared_ptr<const Form>)> kinds = {
        {"DensityEnergy", made<DensityEnergy>},
        {"EnsembleDensity", made<EnsembleDensity>},
        {"MapPotentialEnergy", made<MapPotentialEnergy>},
        {"MateContacts", made<MateContacts>},
        {"SymmetryMates", made<SymmetryMates>},
        {"WholeMolecules", made<WholeMolecules>},
        {"PlanarityEnergy", made<PlanarityEnergy>},
        {"WholePlanes", made<WholePlanes>},
        {"TorsionMapEnergy", made<TorsionMapEnergy>},
        {"SideBySide", made<SideBySide>},
        {"PaiNN", made<PaiNN>},
        {"OfParticles", made<OfParticles>},
        {"ProbeEnergy", made<ProbeEnergy>},
    };
    const auto found = kinds.find(form->kind);
    if (found == kinds.end())
        throw std::invalid_argument(form->kind + " is no energy of this package");
    return found->second(std::move(form));
}

}  // namespace openmm_density
