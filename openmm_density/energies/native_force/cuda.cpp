// A force of this package on OpenMM's CUDA platform: a graph, recorded once by torch, launched in OpenMM's own context and stream.
//
// Torch works in the primary context of a device and OpenMM in one that it makes. A GPU that turns from one to the other waits for
// a quarter of a millisecond, and what hands positions and forces across waits for the GPU. Here the recorded graph is rebuilt in
// OpenMM's context: an evaluation is one launch, waits for nothing and runs no Python.
//
// Derivatives of the energy are added to a buffer on the GPU of which OpenMM takes the sum when a State asks for it.
//
// The Python side (recording.py) records the graphs and owns their memory.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openmm/OpenMMException.h"
#include "openmm/System.h"
#include "openmm/common/ContextSelector.h"
#include "openmm/cuda/CudaArray.h"
#include "openmm/cuda/CudaContext.h"
#include "openmm/cuda/CudaPlatform.h"
#include "openmm/internal/ContextImpl.h"
#include "joint_launch.h"
#include "openmm_force.h"
#include "rebuilt_graph.h"
#include "unlike_chains.h"

using namespace OpenMM;
using std::string;
using std::vector;

namespace openmm_density {
namespace {

// Torch's context for as long as this lives, whichever was current.
class PrimaryContext {
public:
    explicit PrimaryContext(CUdevice device) : device(device) {
        CUcontext context;
        check(cuDevicePrimaryCtxRetain(&context, device), "retaining torch's context");
        check(cuCtxPushCurrent(context), "entering torch's context");
    }
    ~PrimaryContext() {
        CUcontext popped;
        cuCtxPopCurrent(&popped);
        cuDevicePrimaryCtxRelease(device);
    }
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;

private:
    CUdevice device;
};

class Launched {
public:
    // The row is the force's number among those that run side by side.
    Launched(const Contents& contents, CudaContext* cuda, size_t row, const Callbacks* callbacks)
        : contents(contents),
          cuda(cuda),
          row(row),
          callbacks(callbacks),
          n_parameters(STRENGTHS + contents.parameters.size()),
          bytes(n_parameters * sizeof(double)) {
        for (size_t i = 0; i < contents.parameters.size(); i++)
            if (contents.differentiated[i])
                cuda->addEnergyParameterDerivative(contents.parameters[i]);
    }

    ~Launched() {
        if (graph != nullptr) {
            ContextSelector selector(*cuda);
            // The graph may be running.
            cuCtxSynchronize();
            graph.reset();
            cuMemFreeHost(sent);
        }
        if (recorded && callbacks->forget_recording != nullptr)
            callbacks->forget_recording(recording.number);
    }

    Launched(const Launched&) = delete;
    Launched& operator=(const Launched&) = delete;

    // Energy, forces and derivatives are added to OpenMM's sums.
    void evaluate(const double* parameters) {
        const RebuiltGraph& ready = prepared(parameters);
        ContextSelector selector(*cuda);
        ready.launch(cuda->getCurrentStream());
    }

    // The graph, with its parameters on the way to the GPU.
    const RebuiltGraph& prepared(const double* parameters) {
        if (graph == nullptr)
            record(parameters);
        // Where a Context has several GPUs, threads of OpenMM's launch the other forces and change the stream for some of them.
        if (cuda->getNumContexts() > 1)
            cuda->getWorkThread().flush();
        ContextSelector selector(*cuda);
        CUstream stream = cuda->getCurrentStream();
        if (n_sent == 0 || std::memcmp(parameters, slot(n_sent - 1), bytes) != 0) {
            // A copy reads its slot later: before one is written again, they have all been read.
            if (n_sent > 0 && n_sent % SLOTS == 0)
                check(cuStreamSynchronize(stream), "waiting for the parameters");
            std::memcpy(slot(n_sent), parameters, bytes);
            check(cuMemcpyHtoDAsync(recording.parameters, slot(n_sent), bytes, stream), "sending parameters");
            n_sent++;
        }
        return *graph;
    }

private:
    static constexpr long long SLOTS = 64;

    double* slot(long long i) const {
        return sent + i % SLOTS * n_parameters;
    }

    // Where the derivative with respect to each strength is added; -1 for one that nobody asks for. OpenMM's buffer has a row for each
    // thread of its kernels, and it takes the sums of the columns: every force has a row, as forces run side by side.
    vector<int> derivative_slots() const {
        const auto& names = cuda->getEnergyParamDerivNames();
        vector<int> found(contents.parameters.size(), -1);
        for (size_t i = 0; i < found.size(); i++)
            for (size_t j = 0; contents.differentiated[i] && j < names.size(); j++)
                if (names[j] == contents.parameters[i])
                    found[i] = (int) (row * names.size() + j);
        if (contents.any_derivative() && (row + 1) * names.size() > cuda->getEnergyParamDerivBuffer().getSize())
            throw OpenMMException(contents.kind + ": too many forces with energy derivatives in one System");
        return found;
    }

    void record(const double* parameters) {
        const vector<int> slots = derivative_slots();
        Arrays arrays = {};
        {
            ContextSelector selector(*cuda);
            arrays = {cuda->getDeviceIndex(),
                      cuda->getNumAtoms(),
                      cuda->getPaddedNumAtoms(),
                      cuda->getPosq().getElementSize() / 4,
                      cuda->getEnergyBuffer().getElementSize(),
                      cuda->getPosq().getDevicePointer(),
                      cuda->getAtomIndexArray().getDevicePointer(),
                      cuda->getLongForceBuffer().getDevicePointer(),
                      cuda->getEnergyBuffer().getDevicePointer(),
                      contents.any_derivative() ? cuda->getEnergyParamDerivBuffer().getDevicePointer() : 0,
                      slots.data(),
                      parameters,
                      (int) n_parameters};
            check(cuCtxSynchronize(), "waiting for the positions");
        }
        if (!recorded) {
            PrimaryContext primary(cuda->getDevice());
            call(contents.kind, callbacks->record, contents.computation, &arrays, &recording);
            recorded = true;
        }
        ContextSelector selector(*cuda);
        auto rebuilt = std::make_unique<RebuiltGraph>(static_cast<CUgraph>(recording.graph), recording.binaries, recording.n_binaries, cuda);
        check(cuMemHostAlloc(reinterpret_cast<void**>(&sent), SLOTS * bytes, 0), "allocating memory for parameters");
        graph = std::move(rebuilt);
    }

    const Contents& contents;
    CudaContext* cuda;
    const size_t row;
    const Callbacks* callbacks;
    const size_t n_parameters;
    const size_t bytes;
    Recording recording = {};
    bool recorded = false;
    std::unique_ptr<RebuiltGraph> graph;
    // The parameters that were sent last, in turns, and how often others were.
    double* sent = nullptr;
    long long n_sent = 0;
};

class CudaEvaluation : public Evaluation {
public:
    CudaEvaluation(const Contents& contents, int group, ContextImpl& context, CudaPlatform::PlatformData* data, const Callbacks* callbacks)
        : contents(contents),
          group(group),
          joint(data->contexts.size() == 1 ? JointLaunch::of(data->contexts[0]) : nullptr),
          launched(contents, data->contexts[0], joint == nullptr ? 0 : joint->n_members(), callbacks) {
        // One for each Context.
        if ((joint == nullptr || joint->n_members() == 0) && !context.getSystem().usesPeriodicBoundaryConditions()) {
            chains = std::make_unique<ChainParticles>(context.getSystem());
            for (auto* each : data->contexts)
                each->addForce(new UnlikeChains(*chains));
        }
        if (joint != nullptr)
            join(context);
    }
    ~CudaEvaluation() {
        if (joint != nullptr)
            joint->remove(&member);
    }

    void evaluate(ContextImpl& context, bool wants_forces, bool wants_energy, int groups) override {
        if (joint == nullptr && acts(groups))
            launched.evaluate(contents.read(context, wants_forces, wants_energy).data());
    }

private:
    bool acts(int groups) const {
        return (groups & (1 << group)) != 0;
    }

    void join(ContextImpl& context) {
        member.acts = [this](int groups) { return acts(groups); };
        member.prepared = [this, &context](bool wants_forces, bool wants_energy) -> const RebuiltGraph& {
            return launched.prepared(contents.read(context, wants_forces, wants_energy).data());
        };
        joint->add<Contents>(&member, context.getSystem(), contents.any_derivative());
    }

    const Contents& contents;
    const int group;
    // Where the Context has one GPU.
    const std::shared_ptr<JointLaunch> joint;
    // OpenMM asks no more once this is gone.
    std::unique_ptr<ChainParticles> chains;
    Launched launched;
    JointLaunch::Member member;
};

}  // namespace
}  // namespace openmm_density

extern "C" openmm_density::Evaluation* openmm_density_on_cuda(const openmm_density::Contents& contents, int group, ContextImpl& context,
                                                              const Callbacks* callbacks) {
    auto* data = reinterpret_cast<CudaPlatform::PlatformData*>(context.getPlatformData());
    return new openmm_density::CudaEvaluation(contents, group, context, data, callbacks);
}
