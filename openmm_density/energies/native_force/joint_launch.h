// All graphs of a Context in one launch, which runs beside OpenMM's own kernels.
//
// OpenMM announces an evaluation before its neighbour list and its forces, and once more when all of them are launched. The graphs
// are independent of each other and of these, and add to the same sums in fixed point: they are launched together as parallel
// branches, in a stream of their own, at the first of the two moments, and awaited at the second. Small kernels, of which a molecule
// without solvent has nothing else, then share the GPU. Sums of energies are no fixed point: where one is wanted, OpenMM waits. So it
// does where the System has a force whose kernels may add to the sums of forces by reading and writing them, and not atomically, or
// one that adds derivatives as these graphs do.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "openmm/AndersenThermostat.h"
#include "openmm/CMAPTorsionForce.h"
#include "openmm/CMMotionRemover.h"
#include "openmm/CustomAngleForce.h"
#include "openmm/CustomBondForce.h"
#include "openmm/CustomCompoundBondForce.h"
#include "openmm/CustomExternalForce.h"
#include "openmm/CustomNonbondedForce.h"
#include "openmm/CustomTorsionForce.h"
#include "openmm/GBSAOBCForce.h"
#include "openmm/HarmonicAngleForce.h"
#include "openmm/HarmonicBondForce.h"
#include "openmm/MonteCarloBarostat.h"
#include "openmm/NonbondedForce.h"
#include "openmm/PeriodicTorsionForce.h"
#include "openmm/RBTorsionForce.h"
#include "openmm/System.h"
#include "openmm/common/ComputeContext.h"
#include "openmm/common/ContextSelector.h"
#include "openmm/cuda/CudaContext.h"
#include "openmm/cuda/CudaPlatform.h"
#include "rebuilt_graph.h"

namespace openmm_density {

template <class... Kinds>
bool is_any_of(const OpenMM::Force& force) {
    return ((dynamic_cast<const Kinds*>(&force) != nullptr) || ...);
}

// Whether OpenMM's kernels for a force add to the sums of forces atomically, as those of bonds and of neighbours do, or not at all.
inline bool adds_atomically(const OpenMM::Force& force, const OpenMM::CudaPlatform::PlatformData& data) {
    using namespace OpenMM;
    if (auto* nonbonded = dynamic_cast<const NonbondedForce*>(&force)) {
        const auto method = nonbonded->getNonbondedMethod();
        // Those of Ewald's reciprocal space never do, those of PME only in the stream of their own that they have by default.
        if (method == NonbondedForce::Ewald)
            return false;
        if (method == NonbondedForce::PME || method == NonbondedForce::LJPME)
            return !data.disablePmeStream && !data.useCpuPme;
        return true;
    }
    return is_any_of<HarmonicBondForce, HarmonicAngleForce, PeriodicTorsionForce, RBTorsionForce, CMAPTorsionForce, CustomBondForce,
                     CustomAngleForce, CustomTorsionForce, CustomCompoundBondForce, CustomExternalForce,
                     CustomNonbondedForce, GBSAOBCForce, CMMotionRemover, AndersenThermostat, MonteCarloBarostat>(force);
}

// Several graphs, side by side in one.
class JointGraph {
public:
    explicit JointGraph(const std::vector<const RebuiltGraph*>& graphs) {
        check(cuGraphCreate(&joint, 0), "making a graph");
        CUresult result = CUDA_SUCCESS;
        for (const RebuiltGraph* each : graphs) {
            CUgraphNode added;
            if (result == CUDA_SUCCESS)
                result = cuGraphAddChildGraphNode(&added, joint, nullptr, 0, each->definition());
        }
        if (result == CUDA_SUCCESS)
            result = cuGraphInstantiate(&executable, joint, 0);
        if (result != CUDA_SUCCESS)
            cuGraphDestroy(joint);
        check(result, "joining graphs");
    }
    ~JointGraph() {
        cuGraphExecDestroy(executable);
        cuGraphDestroy(joint);
    }
    JointGraph(const JointGraph&) = delete;
    JointGraph& operator=(const JointGraph&) = delete;

    void launch(CUstream stream) const {
        check(cuGraphLaunch(executable, stream), "launching the graphs");
    }

private:
    CUgraph joint = nullptr;
    CUgraphExec executable = nullptr;
};

// Whether an energy of OpenMM's has derivatives with respect to parameters.
template <class... Kinds>
bool has_derivatives(const OpenMM::Force& force) {
    const auto counted = [](const auto* kind) { return kind != nullptr && kind->getNumEnergyParameterDerivatives() > 0; };
    return (counted(dynamic_cast<const Kinds*>(&force)) || ...);
}

inline bool adds_derivatives(const OpenMM::Force& force) {
    using namespace OpenMM;
    return has_derivatives<CustomBondForce, CustomAngleForce, CustomTorsionForce, CustomCompoundBondForce, CustomNonbondedForce>(force);
}

// What launches the graphs of one Context on one GPU.
class JointLaunch {
public:
    // One of the Context's forces: records its graph when it is first asked for, and sends its parameters to the GPU.
    struct Member {
        std::function<bool(int groups)> acts;
        std::function<const RebuiltGraph&(bool wants_forces, bool wants_energy)> prepared;
    };

    static std::shared_ptr<JointLaunch> of(OpenMM::CudaContext* cuda) {
        static std::mutex mutex;
        static std::map<OpenMM::CudaContext*, std::weak_ptr<JointLaunch>> all;
        std::lock_guard<std::mutex> lock(mutex);
        std::shared_ptr<JointLaunch> found = all[cuda].lock();
        if (found == nullptr) {
            found = std::shared_ptr<JointLaunch>(new JointLaunch(cuda));
            all[cuda] = found;
            cuda->addPreComputation(new Before(found));
            cuda->addPostComputation(new After(found));
        }
        return found;
    }
    ~JointLaunch() {
        OpenMM::ContextSelector selector(*cuda);
        cuCtxSynchronize();
        joint.clear();
        cuEventDestroy(ready);
        cuEventDestroy(done);
        cuStreamDestroy(beside);
    }
    JointLaunch(const JointLaunch&) = delete;
    JointLaunch& operator=(const JointLaunch&) = delete;

    // The System is the same for all of them.
    template <class Own>
    void add(const Member* member, const OpenMM::System& system, bool with_derivatives) {
        members.push_back(member);
        for (int i = 0; i < system.getNumForces(); i++) {
            const OpenMM::Force& other = system.getForce(i);
            alone |= !is_any_of<Own>(other) && !adds_atomically(other, cuda->getPlatformData());
            alone |= with_derivatives && adds_derivatives(other);
        }
    }
    size_t n_members() const {
        return members.size();
    }
    // Before the member's graph is destroyed.
    void remove(const Member* member) {
        OpenMM::ContextSelector selector(*cuda);
        // The graphs may be running.
        cuCtxSynchronize();
        joint.clear();
        members.erase(std::remove(members.begin(), members.end(), member), members.end());
    }

private:
    using Computed = OpenMM::ComputeContext;

    struct Before : Computed::ForcePreComputation {
        explicit Before(std::weak_ptr<JointLaunch> launch) : launch(std::move(launch)) {}
        void computeForceAndEnergy(bool includeForces, bool includeEnergy, int groups) override {
            if (auto found = launch.lock())
                found->start(includeForces, includeEnergy, groups);
        }
        std::weak_ptr<JointLaunch> launch;
    };
    struct After : Computed::ForcePostComputation {
        explicit After(std::weak_ptr<JointLaunch> launch) : launch(std::move(launch)) {}
        double computeForceAndEnergy(bool, bool, int) override {
            if (auto found = launch.lock())
                found->finish();
            return 0.0;
        }
        std::weak_ptr<JointLaunch> launch;
    };

    explicit JointLaunch(OpenMM::CudaContext* cuda) : cuda(cuda) {
        OpenMM::ContextSelector selector(*cuda);
        int least = 0, greatest = 0;
        check(cuCtxGetStreamPriorityRange(&least, &greatest), "reading the priorities of streams");
        // Where OpenMM's kernels fill the GPU with blocks that run long, those of the graphs need not wait for all of them.
        check(cuStreamCreateWithPriority(&beside, CU_STREAM_NON_BLOCKING, greatest), "making a stream");
        check(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING), "making an event");
        check(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING), "making an event");
    }

    void start(bool wants_forces, bool wants_energy, int groups) {
        std::vector<bool> acting(members.size());
        std::vector<const RebuiltGraph*> graphs;
        OpenMM::ContextSelector selector(*cuda);
        CUstream stream = cuda->getCurrentStream();
        // An evaluation that another force broke off.
        finish();
        for (size_t i = 0; i < members.size(); i++)
            if (members[i]->acts(groups)) {
                acting[i] = true;
                graphs.push_back(&members[i]->prepared(wants_forces, wants_energy));
            }
        if (graphs.empty())
            return;
        if (wants_energy) {
            // One after the other, and before OpenMM's: all add to the same floating-point numbers.
            for (const RebuiltGraph* each : graphs)
                each->launch(stream);
            return;
        }
        if (alone) {
            launch(graphs, acting, stream);
            return;
        }
        check(cuEventRecord(ready, stream), "recording an event");
        check(cuStreamWaitEvent(beside, ready, 0), "waiting for an event");
        launch(graphs, acting, beside);
        check(cuEventRecord(done, beside), "recording an event");
        running = true;
    }

    void launch(const std::vector<const RebuiltGraph*>& graphs, const std::vector<bool>& acting, CUstream stream) {
        if (graphs.size() == 1) {
            graphs[0]->launch(stream);
            return;
        }
        std::unique_ptr<JointGraph>& found = joint[acting];
        if (found == nullptr)
            found = std::make_unique<JointGraph>(graphs);
        found->launch(stream);
    }

    void finish() {
        if (!running)
            return;
        OpenMM::ContextSelector selector(*cuda);
        check(cuStreamWaitEvent(cuda->getCurrentStream(), done, 0), "waiting for an event");
        running = false;
    }

    OpenMM::CudaContext* cuda;
    CUstream beside = nullptr;
    CUevent ready = nullptr, done = nullptr;
    bool running = false;
    // Whether OpenMM's kernels have to wait.
    bool alone = false;
    // In the order of the System's forces.
    std::vector<const Member*> members;
    // By which of the members are in it.
    std::map<std::vector<bool>, std::unique_ptr<JointGraph>> joint;
};

}  // namespace openmm_density
