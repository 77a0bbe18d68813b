// An OpenMM Force that is a CUDA graph: recorded once by torch, launched in OpenMM's own CUDA context and stream ever after.
//
// Torch works in the primary context of a device and OpenMM in one that it makes. A GPU that turns from one to the other waits for
// a quarter of a millisecond, and what hands positions and forces across waits for the GPU. Here the recorded graph is rebuilt in
// OpenMM's context: an evaluation is one launch, waits for nothing and runs no Python.
//
// On other platforms the module is evaluated through Python: OpenMM's minimiser goes to the CPU when forces are too large for a GPU.
//
// The Python side (force.py, recording.py, slots.py) keeps the module, records the graph and owns its memory; it is called through Callbacks.

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openmm/Force.h"
#include "openmm/OpenMMException.h"
#include "openmm/Platform.h"
#include "openmm/System.h"
#include "openmm/common/ContextSelector.h"
#include "openmm/cuda/CudaArray.h"
#include "openmm/cuda/CudaContext.h"
#include "openmm/cuda/CudaPlatform.h"
#include "openmm/internal/ContextImpl.h"
#include "openmm/internal/CustomCPPForceImpl.h"
#include "openmm/internal/ForceImpl.h"
#include "openmm/serialization/SerializationNode.h"
#include "openmm/serialization/SerializationProxy.h"
#include "joint_launch.h"
#include "rebuilt_graph.h"

using namespace OpenMM;
using openmm_density::Binary;
using openmm_density::check;
using openmm_density::JointLaunch;
using openmm_density::RebuiltGraph;
using std::string;
using std::vector;

// slots.py has the same names in the same order, and says what they mean.
extern "C" {

// What the graph reads at each evaluation.
constexpr int BOX = 0;
constexpr int WANTS_FORCES = 9;
constexpr int WANTS_ENERGY = 10;
constexpr int STRENGTHS = 11;

struct Arrays {
    int device;
    int n_particles;
    int n_padded;
    int position_bytes;
    int energy_bytes;
    CUdeviceptr positions;
    CUdeviceptr particle_of_slot;
    CUdeviceptr forces;
    CUdeviceptr energy;
    const double* parameters;
    int n_parameters;
};

struct Recording {
    long long number;
    CUgraph graph;
    CUdeviceptr parameters;
    const Binary* binaries;
    int n_binaries;
};

// How a callback ended; Python writes texts by openmm_density_set_text, while it has them.
struct Outcome {
    int succeeded = 0;
    string problem;
    string text;
};

struct Callbacks {
    void (*record)(long long computation, const Arrays* arrays, Recording* recording, Outcome* outcome);
    void (*evaluate)(long long computation, int n_particles, const double* positions, const double* parameters, int n_parameters,
                     double* forces, double* energy, Outcome* outcome);
    // Leaves the text in the outcome.
    void (*pack)(long long computation, Outcome* outcome);
    void (*unpack)(const char* text, long long* computation, Outcome* outcome);
    void (*forget_computation)(long long computation);
    void (*forget_recording)(long long recording);
};
}

namespace {

Callbacks callbacks = {};

// Call Python and return what it left. Whatever goes wrong there, success is what has been said to be one.
template <class... Parameters, class... Arguments>
Outcome call(void (*callback)(Parameters...), Arguments... arguments) {
    if (callback == nullptr)
        throw OpenMMException("CudaGraphForce: Python has ended");
    Outcome outcome;
    callback(arguments..., &outcome);
    if (!outcome.succeeded)
        throw OpenMMException("CudaGraphForce: " + (outcome.problem.empty() ? "Python was interrupted" : outcome.problem));
    return outcome;
}

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

class CudaGraphForce : public Force {
public:
    CudaGraphForce(long long computation, const vector<string>& parameters, const vector<double>& strengths, bool periodic)
        : computation(computation), parameters(parameters), strengths(strengths), periodic(periodic) {
        setName("CudaGraphForce");
    }
    ~CudaGraphForce() {
        if (callbacks.forget_computation != nullptr)
            callbacks.forget_computation(computation);
    }
    bool usesPeriodicBoundaryConditions() const override {
        return periodic;
    }

    // Python's number of the module and of the particles that it takes.
    const long long computation;
    // The names of the Context parameters that are the strengths, and what they are in a new Context.
    const vector<string> parameters;
    const vector<double> strengths;
    const bool periodic;

protected:
    ForceImpl* createImpl() const override;
};

// On the CUDA platform.
class Launched {
public:
    Launched(const CudaGraphForce& owner, CudaContext* cuda)
        : owner(owner), cuda(cuda), n_parameters(STRENGTHS + owner.parameters.size()), bytes(n_parameters * sizeof(double)) {}

    ~Launched() {
        if (rebuilt != nullptr) {
            ContextSelector selector(*cuda);
            // The graph may be running.
            cuCtxSynchronize();
            rebuilt.reset();
            cuMemFreeHost(sent);
        }
        if (recorded && callbacks.forget_recording != nullptr)
            callbacks.forget_recording(recording.number);
    }

    Launched(const Launched&) = delete;
    Launched& operator=(const Launched&) = delete;

    // Energy and forces are added to OpenMM's sums.
    void evaluate(const double* parameters) {
        const RebuiltGraph* graph = prepared(parameters);
        ContextSelector selector(*cuda);
        graph->launch(cuda->getCurrentStream());
    }

    // The graph, with its parameters on the way to the GPU.
    const RebuiltGraph* prepared(const double* parameters) {
        if (rebuilt == nullptr)
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
        return rebuilt.get();
    }

private:
    static constexpr long long SLOTS = 64;

    double* slot(long long i) const {
        return sent + i % SLOTS * n_parameters;
    }

    void record(const double* parameters) {
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
                      parameters,
                      (int) n_parameters};
            check(cuCtxSynchronize(), "waiting for the positions");
        }
        if (!recorded) {
            PrimaryContext primary(cuda->getDevice());
            call(callbacks.record, owner.computation, &arrays, &recording);
            recorded = true;
        }
        ContextSelector selector(*cuda);
        auto graph = std::make_unique<RebuiltGraph>(recording.graph, recording.binaries, recording.n_binaries, cuda->getContext());
        check(cuMemHostAlloc(reinterpret_cast<void**>(&sent), SLOTS * bytes, 0), "allocating memory for parameters");
        rebuilt = std::move(graph);
    }

    const CudaGraphForce& owner;
    CudaContext* cuda;
    const size_t n_parameters;
    const size_t bytes;
    Recording recording = {};
    bool recorded = false;
    std::unique_ptr<RebuiltGraph> rebuilt;
    // The parameters that were sent last, in turns, and how often others were.
    double* sent = nullptr;
    long long n_sent = 0;
};

class CudaGraphForceImpl : public CustomCPPForceImpl {
public:
    explicit CudaGraphForceImpl(const CudaGraphForce& owner) : CustomCPPForceImpl(owner), owner(owner) {}

    ~CudaGraphForceImpl() {
        if (joint != nullptr)
            joint->remove(&member);
    }

    const Force& getOwner() const override {
        return owner;
    }
    std::map<string, double> getDefaultParameters() override {
        std::map<string, double> found;
        for (size_t i = 0; i < owner.parameters.size(); i++)
            found[owner.parameters[i]] = owner.strengths[i];
        return found;
    }
    vector<string> getKernelNames() override {
        return {};
    }

    void initialize(ContextImpl& context) override {
        if (context.getPlatform().getName() == "CUDA") {
            auto* data = reinterpret_cast<CudaPlatform::PlatformData*>(context.getPlatformData());
            launched = std::make_unique<Launched>(owner, data->contexts[0]);
            if (data->contexts.size() == 1)
                join(context, data->contexts[0]);
        } else
            CustomCPPForceImpl::initialize(context);
    }

    double calcForcesAndEnergy(ContextImpl& context, bool includeForces, bool includeEnergy, int groups) override {
        if (launched == nullptr)
            return CustomCPPForceImpl::calcForcesAndEnergy(context, includeForces, includeEnergy, groups);
        if (joint == nullptr && acts(groups))
            launched->evaluate(parameters(context, includeForces, includeEnergy).data());
        return 0.0;
    }

    double computeForce(ContextImpl& context, const vector<Vec3>& positions, vector<Vec3>& forces) override {
        static_assert(sizeof(Vec3) == 3 * sizeof(double), "Vec3 is three numbers");
        double energy = 0.0;
        const auto given = parameters(context, true, true);
        call(callbacks.evaluate, owner.computation, (int) positions.size(), reinterpret_cast<const double*>(positions.data()),
             given.data(), (int) given.size(), reinterpret_cast<double*>(forces.data()), &energy);
        return energy;
    }

private:
    bool acts(int groups) const {
        return (groups & (1 << owner.getForceGroup())) != 0;
    }

    void join(ContextImpl& context, CudaContext* cuda) {
        member.acts = [this](int groups) { return acts(groups); };
        member.prepared = [this, &context](bool wants_forces, bool wants_energy) {
            return launched->prepared(parameters(context, wants_forces, wants_energy).data());
        };
        joint = JointLaunch::of(cuda);
        joint->add<CudaGraphForce>(&member, context.getSystem());
    }

    vector<double> parameters(ContextImpl& context, bool wants_forces, bool wants_energy) const {
        vector<double> found(STRENGTHS + owner.parameters.size());
        Vec3 box[3];
        context.getPeriodicBoxVectors(box[0], box[1], box[2]);
        for (int i = 0; i < 9; i++)
            found[BOX + i] = box[i / 3][i % 3];
        found[WANTS_FORCES] = wants_forces;
        found[WANTS_ENERGY] = wants_energy;
        for (size_t i = 0; i < owner.parameters.size(); i++)
            found[STRENGTHS + i] = context.getParameter(owner.parameters[i]);
        return found;
    }

    const CudaGraphForce& owner;
    std::unique_ptr<Launched> launched;
    JointLaunch::Member member;
    // Where the Context has one GPU.
    std::shared_ptr<JointLaunch> joint;
};

ForceImpl* CudaGraphForce::createImpl() const {
    return new CudaGraphForceImpl(*this);
}

class CudaGraphForceProxy : public SerializationProxy {
public:
    CudaGraphForceProxy() : SerializationProxy("CudaGraphForce") {}

    void serialize(const void* object, SerializationNode& node) const override {
        const CudaGraphForce& force = *reinterpret_cast<const CudaGraphForce*>(object);
        const Outcome packed = call(callbacks.pack, force.computation);
        node.setIntProperty("version", 2);
        node.setStringProperty("name", force.getName());
        node.setIntProperty("forceGroup", force.getForceGroup());
        SerializationNode& strengths = node.createChildNode("Strengths");
        for (size_t i = 0; i < force.parameters.size(); i++)
            strengths.createChildNode("Strength").setStringProperty("parameter", force.parameters[i]).setDoubleProperty("default", force.strengths[i]);
        node.setBoolProperty("periodic", force.periodic);
        node.setStringProperty("computation", packed.text);
    }

    void* deserialize(const SerializationNode& node) const override {
        const int version = node.getIntProperty("version");
        if (version < 1 || version > 2)
            throw OpenMMException("CudaGraphForce: written by a newer openmm-density, which is needed to read it");
        long long computation = 0;
        const string text = node.getStringProperty("computation");
        call(callbacks.unpack, text.c_str(), &computation);
        vector<string> parameters;
        vector<double> strengths;
        if (version == 1) {
            parameters.push_back(node.getStringProperty("parameter"));
            strengths.push_back(node.getDoubleProperty("strength"));
        } else {
            for (const SerializationNode& each : node.getChildNode("Strengths").getChildren()) {
                parameters.push_back(each.getStringProperty("parameter"));
                strengths.push_back(each.getDoubleProperty("default"));
            }
        }
        auto* force = new CudaGraphForce(computation, parameters, strengths, node.getBoolProperty("periodic"));
        force->setName(node.getStringProperty("name"));
        force->setForceGroup(node.getIntProperty("forceGroup"));
        return force;
    }
};

}  // namespace

extern "C" {

// Called once, when the library is loaded, and with an empty structure when Python ends.
void openmm_density_set_callbacks(const Callbacks* given) {
    static bool registered = false;
    callbacks = *given;
    if (!registered)
        SerializationProxy::registerProxy(typeid(CudaGraphForce), new CudaGraphForceProxy());
    registered = true;
}

// Write the sentence of a failure, or else the text that was asked for.
void openmm_density_set_text(Outcome* outcome, int is_problem, const char* text) {
    (is_problem ? outcome->problem : outcome->text) = text;
}

void openmm_density_succeed(Outcome* outcome) {
    outcome->succeeded = 1;
}

// Add a force to a System.
void openmm_density_add_force(System* system, long long computation, const char* const* parameters, const double* strengths, int n,
                              int periodic) {
    system->addForce(new CudaGraphForce(computation, {parameters, parameters + n}, {strengths, strengths + n}, periodic != 0));
}

// How many parameters a force has; 0 if it is a force of another kind.
int openmm_density_n_parameters(const Force* force) {
    auto* own = dynamic_cast<const CudaGraphForce*>(force);
    return own == nullptr ? 0 : (int) own->parameters.size();
}

// The name of one of them.
const char* openmm_density_parameter_of(const Force* force, int i) {
    return dynamic_cast<const CudaGraphForce*>(force)->parameters.at(i).c_str();
}

// What it is in a new Context.
double openmm_density_default_of(const Force* force, int i) {
    return dynamic_cast<const CudaGraphForce*>(force)->strengths.at(i);
}
}
