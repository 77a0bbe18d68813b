// NonbondedForce on the CPU platform by our kernel; by the platform's own for a force that ours does not serve.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "openmm/Kernel.h"
#include "openmm/KernelFactory.h"
#include "openmm/NonbondedForce.h"
#include "openmm/OpenMMException.h"
#include "openmm/Platform.h"
#include "openmm/internal/ContextImpl.h"
#include "openmm/kernels.h"
#include "openmm/reference/ReferencePlatform.h"
#include "openmm/reference/SimTKOpenMMRealType.h"
#include "pairs/interface.h"

namespace openmm_density {

int threads_of(OpenMM::ContextImpl& context);

using NonbondedKernel = decltype(openmm_density_nonbonded);

class Nonbonded : public OpenMM::CalcNonbondedForceKernel {
public:
    Nonbonded(OpenMM::ContextImpl& context, const OpenMM::Platform& platform, const OpenMM::KernelFactory& others, NonbondedKernel* kernel)
        : CalcNonbondedForceKernel(Name(), platform), context(context), others(others), kernel(kernel) {}

    void initialize(const OpenMM::System& system, const OpenMM::NonbondedForce& force) override {
        const bool ours = force.getNonbondedMethod() == OpenMM::NonbondedForce::CutoffNonPeriodic && !force.getUseSwitchingFunction() &&
                          force.getNumParticleParameterOffsets() + force.getNumExceptionParameterOffsets() == 0;
        if (ours) {
            n_threads = threads_of(context);
            settings[0] = force.getCutoffDistance();
            settings[2] = force.getReactionFieldDielectric();
            read_pairs(force);
            read_parameters(force);
        } else {
            other = std::make_unique<OpenMM::Kernel>(others.createKernelImpl(Name(), getPlatform(), context));
            theirs().initialize(system, force);
        }
    }
    double execute(OpenMM::ContextImpl& context, bool forces, bool energy, bool direct, bool reciprocal) override {
        if (other != nullptr)
            return theirs().execute(context, forces, energy, direct, reciprocal);
        if (!direct)
            return 0.0;
        const auto* data = reinterpret_cast<OpenMM::ReferencePlatform::PlatformData*>(context.getPlatformData());
        const NonbondedPairs pairs{(int64_t) offsets.size() - 1, spheres.data(), offsets.data(), excluded.data(),
                                   (int64_t) exceptions.size() / 2, exceptions.data(), exception_parameters.data(),
                                   settings[0], settings};
        return kernel(pairs, memory, reinterpret_cast<const double*>(data->positions->data()), n_threads,
                      reinterpret_cast<double*>(data->forces->data()));
    }
    void copyParametersToContext(OpenMM::ContextImpl& context, const OpenMM::NonbondedForce& force, int first, int last, int first_exception,
                                 int last_exception) override {
        if (other != nullptr)
            theirs().copyParametersToContext(context, force, first, last, first_exception, last_exception);
        else
            read_parameters(force);
    }
    void getPMEParameters(double& alpha, int& nx, int& ny, int& nz) const override {
        theirs().getPMEParameters(alpha, nx, ny, nz);
    }
    void getLJPMEParameters(double& alpha, int& nx, int& ny, int& nz) const override {
        theirs().getLJPMEParameters(alpha, nx, ny, nz);
    }

private:
    CalcNonbondedForceKernel& theirs() const {
        if (other == nullptr)
            throw OpenMM::OpenMMException("this Context does not use PME");
        return other->getAs<CalcNonbondedForceKernel>();
    }

    // What does not change in a Context: which pairs are excluded, and which of them act all the same.
    void read_pairs(const OpenMM::NonbondedForce& force) {
        const int n = force.getNumParticles();
        std::vector<std::pair<int32_t, int32_t>> both;
        for (int i = 0; i < force.getNumExceptions(); i++) {
            int a, b;
            double charge, sigma, epsilon;
            force.getExceptionParameters(i, a, b, charge, sigma, epsilon);
            both.push_back({a, b});
            both.push_back({b, a});
            if (charge == 0 && epsilon == 0)
                continue;
            acting.push_back(i);
            exceptions.insert(exceptions.end(), {a, b});
        }
        std::sort(both.begin(), both.end());
        offsets.assign(n + 1, 0);
        excluded.clear();
        for (const auto& [a, b] : both) {
            offsets[a + 1]++;
            excluded.push_back(b);
        }
        for (int i = 0; i < n; i++)
            offsets[i + 1] += offsets[i];
    }

    // Numbers that may change, with OpenMM's errors if others did.
    void read_parameters(const OpenMM::NonbondedForce& force) {
        const size_t n = offsets.size() - 1;
        if ((size_t) force.getNumParticles() != n)
            throw OpenMM::OpenMMException("updateParametersInContext: The number of particles has changed");
        if (force.getNumParticleParameterOffsets() + force.getNumExceptionParameterOffsets() != 0)
            throw OpenMM::OpenMMException("updateParametersInContext: The number of parameter offsets has changed");
        double charge, sigma, epsilon;
        std::vector<float> found;
        size_t next = 0;
        for (int i = 0; i < force.getNumExceptions(); i++) {
            int a, b;
            force.getExceptionParameters(i, a, b, charge, sigma, epsilon);
            if (next < acting.size() && acting[next] == i) {
                found.insert(found.end(), {(float) sigma, (float) epsilon, (float) charge});
                next++;
            } else if (charge != 0 || epsilon != 0)
                next = acting.size() + 1;
        }
        if (next != acting.size())
            throw OpenMM::OpenMMException("updateParametersInContext: The set of non-excluded exceptions has changed");
        exception_parameters = found;
        spheres.clear();
        for (size_t i = 0; i < n; i++) {
            force.getParticleParameters((int) i, charge, sigma, epsilon);
            spheres.insert(spheres.end(), {(float) sigma, (float) epsilon, (float) charge});
        }
        memory.reset();
    }

    OpenMM::ContextImpl& context;
    const OpenMM::KernelFactory& others;
    NonbondedKernel* const kernel;
    std::unique_ptr<OpenMM::Kernel> other;
    int n_threads = 1;
    std::vector<int> acting;  // Exceptions, in rising order
    std::vector<float> spheres, exception_parameters;
    std::vector<int32_t> offsets, excluded, exceptions;
    double settings[3] = {0, ONE_4PI_EPS0, 1};  // As the kernel takes them
    std::unique_ptr<PairMemory> memory;
};

}  // namespace openmm_density
