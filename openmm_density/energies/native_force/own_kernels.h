// OpenMM's CPU platform with our kernels for some of its forces, in those Contexts for which they are asked.
//
// The platform's own factories make all other kernels, and these for forces that ours do not serve. So Systems, their files and
// changes of parameters stay as they are.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "bonded.h"
#include "nonbonded.h"
#include "openmm/KernelFactory.h"
#include "openmm/Platform.h"

namespace openmm_density {

// What Contexts that this thread makes evaluate by; null: as the platform does.
struct OwnKernels {
    NonbondedKernel* nonbonded = nullptr;
    Angles::Kernel* angles = nullptr;
    Torsions::Kernel* torsions = nullptr;
};
inline thread_local OwnKernels own_kernels;

using Factories = std::map<std::string, OpenMM::KernelFactory*>;
Factories& factories_of(OpenMM::Platform& platform);
// A platform does not say what makes its kernels; an explicit instantiation may name what is private.
template <Factories OpenMM::Platform::*member>
struct Member {
    friend Factories& factories_of(OpenMM::Platform& platform) {
        return platform.*member;
    }
};
template struct Member<&OpenMM::Platform::kernelFactories>;

// Kernel: ours for a force; `chosen`: where `own_kernels` has what it evaluates by.
template <typename Kernel, auto chosen>
class OwnFactory : public OpenMM::KernelFactory {
public:
    explicit OwnFactory(const OpenMM::KernelFactory& others) : others(others) {}
    OpenMM::KernelImpl* createKernelImpl(std::string name, const OpenMM::Platform& platform, OpenMM::ContextImpl& context) const override {
        if (own_kernels.*chosen == nullptr)
            return others.createKernelImpl(name, platform, context);
        return new Kernel(context, platform, others, own_kernels.*chosen);
    }

    // Also after another library has put its own factory in place of this one.
    static void join(OpenMM::Platform& platform) {
        OpenMM::KernelFactory*& factory = factories_of(platform)[Kernel::Name()];
        if (dynamic_cast<OwnFactory*>(factory) == nullptr)
            factory = new OwnFactory(*factory);
    }

private:
    const OpenMM::KernelFactory& others;
};

inline void join_own_factories(OpenMM::Platform& platform) {
    static std::mutex joining;
    const std::lock_guard<std::mutex> alone(joining);
    OwnFactory<Nonbonded, &OwnKernels::nonbonded>::join(platform);
    OwnFactory<Bonded<Angles>, &OwnKernels::angles>::join(platform);
    OwnFactory<Bonded<Torsions>, &OwnKernels::torsions>::join(platform);
}

}  // namespace openmm_density
