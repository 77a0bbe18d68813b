// A force of this package on OpenMM's CUDA platform: a graph, recorded once by torch, launched in OpenMM's own context and stream.
//
// Torch works in the primary context of a device and OpenMM in one that it makes. A GPU that turns from one to the other waits for
// a quarter of a millisecond, and what hands positions and forces across waits for the GPU. Here the recorded graph is rebuilt in
// OpenMM's context: an evaluation is one launch, waits for nothing and runs no Python.
//
// Derivatives of the energy are no fixed point, and OpenMM's kernels add to the same numbers: a second, tiny graph adds them when
// these are done.
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
    Launched(const Contents& contents, CudaContext* cuda, const Callbacks* callbacks)
        : contents(contents),
          cuda(cuda),
          callbacks(callbacks),
          n_parameters(STRENGTHS + contents.parameters.size()),
          bytes(n_parameters * sizeof(double)) {
        for (size_t i = 0; i < contents.parameters.size(); i++)
            if (contents.differentiated[i])
                cuda->addEnergyParameterDerivative(contents.parameters[i]);
    }

    ~Launched() {
        if (graphs.evaluation != nullptr) {
            ContextSelector selector(*cuda);
            // The graphs may be running.
            cuCtxSynchronize();
            graphs = {};
            cuMemFreeHost(sent);
        }
        if (recorded && callbacks->forget_recording != nullptr)
            callbacks->forget_recording(recording.number);
    }

    Launched(const Launched&) = delete;
    Launched& operator=(const Launched&) = delete;

    // Energy, forces and derivatives are added to OpenMM's sums.
    void evaluate(const double* parameters) {
        const Graphs& ready = prepared(parameters);
        ContextSelector selector(*cuda);
        ready.evaluation->launch(cuda->getCurrentStream());
        if (ready.derivatives != nullptr)
            ready.derivatives->launch(cuda->getCurrentStream());
    }

    // The graphs, with their parameters on the way to the GPU.
    const Graphs& prepared(const double* parameters) {
        if (graphs.evaluation == nullptr)
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
        return graphs;
    }

private:
    static constexpr long long SLOTS = 64;

    double* slot(long long i) const {
        return sent + i % SLOTS * n_parameters;
    }

    // Where OpenMM adds up the derivative with respect to each strength; -1 for one that nobody asks for.
    vector<int> derivative_slots() const {
        const auto& names = cuda->getEnergyParamDerivNames();
        vector<int> found(contents.parameters.size(), -1);
        for (size_t i = 0; i < found.size(); i++)
            for (size_t j = 0; contents.differentiated[i] && j < names.size(); j++)
                if (names[j] == contents.parameters[i])
                    found[i] = (int) j;
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
        Graphs rebuilt;
        rebuilt.evaluation = rebuilt_from(recording.graph);
        if (recording.derivative_graph != nullptr)
            rebuilt.derivatives = rebuilt_from(recording.derivative_graph);
        check(cuMemHostAlloc(reinterpret_cast<void**>(&sent), SLOTS * bytes, 0), "allocating memory for parameters");
        graphs = std::move(rebuilt);
    }

    std::unique_ptr<RebuiltGraph> rebuilt_from(void* graph) const {
        return std::make_unique<RebuiltGraph>(static_cast<CUgraph>(graph), recording.binaries, recording.n_binaries, cuda->getContext());
    }

    const Contents& contents;
    CudaContext* cuda;
    const Callbacks* callbacks;
    const size_t n_parameters;
    const size_t bytes;
    Recording recording = {};
    bool recorded = false;
    Graphs graphs;
    // The parameters that were sent last, in turns, and how often others were.
    double* sent = nullptr;
    long long n_sent = 0;
};

class CudaEvaluation : public Evaluation {
public:
    CudaEvaluation(const Contents& contents, int group, ContextImpl& context, CudaPlatform::PlatformData* data, const Callbacks* callbacks)
        : contents(contents), group(group), launched(contents, data->contexts[0], callbacks) {
        if (data->contexts.size() == 1)
            join(context, data->contexts[0]);
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

    void join(ContextImpl& context, CudaContext* cuda) {
        member.acts = [this](int groups) { return acts(groups); };
        member.prepared = [this, &context](bool wants_forces, bool wants_energy) -> const Graphs& {
            return launched.prepared(contents.read(context, wants_forces, wants_energy).data());
        };
        joint = JointLaunch::of(cuda);
        joint->add<Contents>(&member, context.getSystem());
    }

    const Contents& contents;
    const int group;
    Launched launched;
    JointLaunch::Member member;
    // Where the Context has one GPU.
    std::shared_ptr<JointLaunch> joint;
};

}  // namespace
}  // namespace openmm_density

extern "C" openmm_density::Evaluation* openmm_density_on_cuda(const openmm_density::Contents& contents, int group, ContextImpl& context,
                                                              const Callbacks* callbacks) {
    auto* data = reinterpret_cast<CudaPlatform::PlatformData*>(context.getPlatformData());
    return new openmm_density::CudaEvaluation(contents, group, context, data, callbacks);
}
