// The energy of a molecule by trained networks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "energy.h"
#include "messages/interface.h"

namespace openmm_density {

// One network, of positions of its own atoms alone.
class CommitteeMember {
public:
    explicit CommitteeMember(std::shared_ptr<const Form> given)
        : form(std::move(given)), kernel(form->function<decltype(openmm_density_painn)>()) {
        const Form& parts = *form->part("weights");
        for (size_t i = 0; i < parts.arrays.size(); ++i) weights.push_back(parts.array<float>(std::to_string(i)));
        const int64_t n_layers = (static_cast<int64_t>(weights.size()) - OF_ALL) / OF_A_LAYER;
        if (n_layers < 1 || OF_ALL + n_layers * OF_A_LAYER != static_cast<int64_t>(weights.size()))
            form->refuse("has " + std::to_string(weights.size()) + " weights");
        const int64_t n_kinds = parts.length("0");
        network = {form->length("kinds"), form->indices<int32_t>("kinds", n_kinds), n_kinds, parts.length("0", 1),
                   parts.length(FILTER), n_layers, weights.data(), form->number("cutoff")};
    }
    int64_t n_atoms() const {
        return network.n_atoms;
    }
    // Return the energy in kJ/mol, and take its gradient from forces.
    double evaluate(const double* positions, int n_threads, double* forces) const {
        static thread_local std::vector<double> gradient;
        gradient.resize(3 * network.n_atoms);
        const double scale = form->number("scale");
        const double energy = scale * kernel(network, positions, n_threads, gradient.data()) + form->number("constant");
        for (size_t i = 0; i < gradient.size(); ++i) forces[i] -= scale * gradient[i];
        return energy;
    }

private:
    static constexpr int64_t OF_ALL = 6, OF_A_LAYER = 15;
    static constexpr const char* FILTER = "12";

    const std::shared_ptr<const Form> form;
    decltype(openmm_density_painn)* kernel;
    std::vector<const float*> weights;
    TrainedNetwork network;
};

// k times the mean of the members of a committee.
class PaiNN : public FormEnergy {
public:
    explicit PaiNN(std::shared_ptr<const Form> given) : FormEnergy(std::move(given)), takes_all(form->number("takes_all") != 0) {
        for (const auto& [name, part] : form->part("members")->parts) members.push_back(std::make_unique<CommitteeMember>(part));
        if (members.empty())
            form->refuse("has no member");
        n = members[0]->n_atoms();
        for (const auto& each : members)
            if (each->n_atoms() != n)
                form->refuse("has members of " + std::to_string(n) + " and " + std::to_string(each->n_atoms()) + " atoms");
        if (takes_all ? n_positions() != n : form->length("particles") != n)
            form->refuse("has " + std::to_string(form->length("particles")) + " particles for " + std::to_string(n) + " atoms");
        if (!takes_all)
            particles = form->indices<int64_t>("particles", n_positions());
    }
    bool takes(int64_t n_all) const override {
        return takes_all ? n_all == n : n_all >= n_positions();
    }
    double evaluate(const Configuration& at, double* forces, double* derivatives) const override {
        static thread_local std::vector<double> own, own_forces;
        own.resize(3 * n);
        own_forces.assign(3 * n, 0.0);
        for (int64_t i = 0; i < n; ++i) std::copy_n(at.positions + 3 * (takes_all ? i : particles[i]), 3, own.data() + 3 * i);
        derivatives[0] = 0;
        for (const auto& each : members) derivatives[0] += each->evaluate(own.data(), at.n_threads, own_forces.data());
        derivatives[0] /= members.size();
        const double k = at.strengths[0];
        std::fill_n(forces, 3 * at.n_positions, 0.0);
        for (int64_t i = 0; i < n; ++i)
            for (int axis = 0; axis < 3; ++axis)
                forces[3 * (takes_all ? i : particles[i]) + axis] = own_forces[3 * i + axis] / members.size() * k;
        return k * derivatives[0];
    }

private:
    std::vector<std::unique_ptr<const CommitteeMember>> members;
    const bool takes_all;
    int64_t n = 0;
    const int64_t* particles = nullptr;
};

}  // namespace openmm_density
