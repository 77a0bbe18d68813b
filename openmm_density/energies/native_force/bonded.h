// HarmonicAngleForce and PeriodicTorsionForce on the CPU platform by our kernels; by the platform's own for forces that ours do not serve.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "bonded/interface.h"
#include "openmm/HarmonicAngleForce.h"
#include "openmm/Kernel.h"
#include "openmm/KernelFactory.h"
#include "openmm/OpenMMException.h"
#include "openmm/PeriodicTorsionForce.h"
#include "openmm/Platform.h"
#include "openmm/internal/ContextImpl.h"
#include "openmm/kernels.h"
#include "openmm/reference/ReferencePlatform.h"

namespace openmm_density {

int threads_of(OpenMM::ContextImpl& context);

struct Angles {
    using Force = OpenMM::HarmonicAngleForce;
    using Base = OpenMM::CalcHarmonicAngleForceKernel;
    using Kernel = decltype(openmm_density_angles);
    static constexpr int ATOMS = 3;

    std::vector<int32_t> atoms;
    std::vector<double> parameters;

    explicit Angles(const Force& force) {
        for (int i = 0; i < force.getNumAngles(); i++) {
            int a, b, c;
            double ideal, k;
            force.getAngleParameters(i, a, b, c, ideal, k);
            atoms.insert(atoms.end(), {a, b, c});
            parameters.insert(parameters.end(), {ideal, k});
        }
    }
    bool served() const {
        return true;
    }
    std::unique_ptr<BondedTerms> packed(Kernel* kernel) const {
        return std::unique_ptr<BondedTerms>(kernel(atoms.size() / ATOMS, atoms.data(), parameters.data()));
    }
};

struct Torsions {
    using Force = OpenMM::PeriodicTorsionForce;
    using Base = OpenMM::CalcPeriodicTorsionForceKernel;
    using Kernel = decltype(openmm_density_torsions);
    static constexpr int ATOMS = 4;

    std::vector<int32_t> atoms, periodicities;
    std::vector<double> parameters;

    explicit Torsions(const Force& force) {
        for (int i = 0; i < force.getNumTorsions(); i++) {
            int a, b, c, d, periodicity;
            double phase, k;
            force.getTorsionParameters(i, a, b, c, d, periodicity, phase, k);
            atoms.insert(atoms.end(), {a, b, c, d});
            periodicities.push_back(periodicity);
            parameters.insert(parameters.end(), {phase, k});
        }
    }
    bool served() const {
        return std::all_of(periodicities.begin(), periodicities.end(), [](int n) { return n >= 1 && n <= MOST_PERIODS; });
    }
    std::unique_ptr<BondedTerms> packed(Kernel* kernel) const {
        return std::unique_ptr<BondedTerms>(kernel(atoms.size() / ATOMS, atoms.data(), periodicities.data(), parameters.data()));
    }
};

template <typename Terms>
class Bonded : public Terms::Base {
public:
    using Force = typename Terms::Force;

    Bonded(OpenMM::ContextImpl& context, const OpenMM::Platform& platform, const OpenMM::KernelFactory& others, typename Terms::Kernel* kernel)
        : Terms::Base(Terms::Base::Name(), platform), context(context), others(others), kernel(kernel) {}

    void initialize(const OpenMM::System& system, const Force& force) override {
        const Terms terms(force);
        if (terms.served() && !force.usesPeriodicBoundaryConditions()) {
            n_threads = threads_of(context);
            take(terms);
        } else {
            other = std::make_unique<OpenMM::Kernel>(others.createKernelImpl(Terms::Base::Name(), this->getPlatform(), context));
            theirs().initialize(system, force);
        }
    }
    double execute(OpenMM::ContextImpl& context, bool forces, bool energy) override {
        if (other != nullptr)
            return theirs().execute(context, forces, energy);
        const auto* data = reinterpret_cast<OpenMM::ReferencePlatform::PlatformData*>(context.getPlatformData());
        return packed->evaluate(reinterpret_cast<const double*>(data->positions->data()), n_threads,
                                reinterpret_cast<double*>(data->forces->data()));
    }
    void copyParametersToContext(OpenMM::ContextImpl& context, const Force& force, int first, int last) override {
        if (other != nullptr)
            return theirs().copyParametersToContext(context, force, first, last);
        const Terms terms(force);
        if (terms.atoms != atoms)
            throw OpenMM::OpenMMException("updateParametersInContext: The atoms of a term, or the number of terms, have changed");
        if (!terms.served())
            throw OpenMM::OpenMMException("updateParametersInContext: a torsion has another number of periods than this Context serves");
        take(terms);
    }

private:
    typename Terms::Base& theirs() const {
        return other->template getAs<typename Terms::Base>();
    }

    void take(const Terms& terms) {
        atoms = terms.atoms;
        packed = terms.packed(kernel);
    }

    OpenMM::ContextImpl& context;
    const OpenMM::KernelFactory& others;
    typename Terms::Kernel* const kernel;
    std::unique_ptr<OpenMM::Kernel> other;
    std::vector<int32_t> atoms;  // As they were given: they do not change
    std::unique_ptr<BondedTerms> packed;
    int n_threads = 1;
};

}  // namespace openmm_density
