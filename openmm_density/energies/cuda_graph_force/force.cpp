// An OpenMM Force that is a CUDA graph: recorded once by torch, launched in OpenMM's own CUDA context and stream ever after.
//
// Torch works in the primary context of a device and OpenMM in one that it makes. A GPU that turns from one to the other waits for
// a quarter of a millisecond, and what hands positions and forces across waits for the GPU. Here the recorded graph is rebuilt in
// OpenMM's context: an evaluation is one launch, waits for nothing and runs no Python.
//
// On other platforms the module is evaluated through Python: OpenMM's minimiser goes to the CPU when forces are too large for a GPU.
//
// The Python side (library.py, recording.py) keeps the module, records the graph and owns its memory; it is called through Callbacks.

#include <algorithm>
#include <array>
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

using namespace OpenMM;
using std::string;
using std::vector;

// What recording.py mirrors with ctypes.
extern "C" {

// What the graph reads at each evaluation: the box in rows, the strength, and whether forces and energy are wanted.
constexpr int PARAMETERS = 12;
constexpr int STRENGTH = 9, WANTS_FORCES = 10, WANTS_ENERGY = 11;

struct Arrays {
    int device;
    int n_particles;
    int padded_particles;
    // Of one coordinate, and of the sum of the energies.
    int position_bytes, energy_bytes;
    CUdeviceptr positions, particle_of_slot, forces, energy;
    // Those of the evaluation that the graph is recorded for.
    const double* parameters;
};

// A kernel that the graph launches and whose code has been loaded by hand, into torch's context alone.
struct Binary {
    CUfunction function;
    const void* image;
    const char* name;
};

struct Recording {
    long long number;
    CUgraph graph;
    CUdeviceptr parameters;
    const Binary* binaries;
    int n_binaries;
};

struct Callbacks {
    // Each returns 0, or else leaves a sentence in the last argument.
    int (*record)(long long computation, const Arrays* arrays, Recording* recording, const char** problem);
    int (*evaluate)(long long computation, int n_particles, const double* positions, const double* parameters, double* forces,
                    double* energy, const char** problem);
    int (*pack)(long long computation, const char** text, const char** problem);
    int (*unpack)(const char* text, long long* computation, const char** problem);
    void (*forget_computation)(long long computation);
    void (*forget_recording)(long long recording);
};
}

namespace {

Callbacks callbacks = {};

void check(CUresult result, const string& doing) {
    if (result == CUDA_SUCCESS)
        return;
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    throw OpenMMException("CudaGraphForce: " + doing + " failed (" + (name ? name : "unknown error") + ")");
}

// By reference: the sentence is there once the callback, the other argument, has returned.
void check_callback(int status, const char* const& problem) {
    if (status != 0)
        throw OpenMMException(string("CudaGraphForce: ") + (problem ? problem : "Python could not be called"));
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

// The nodes of a graph that was recorded from one stream: each depends on the one before.
vector<CUgraphNode> nodes_in_order(CUgraph graph) {
    size_t n_nodes = 0, n_edges = 0;
    check(cuGraphGetNodes(graph, nullptr, &n_nodes), "counting the nodes of the graph");
    vector<CUgraphNode> nodes(n_nodes);
    check(cuGraphGetNodes(graph, nodes.data(), &n_nodes), "listing the nodes of the graph");
    vector<CUgraphNode> from(n_nodes), to(n_nodes);
    n_edges = n_nodes;
#if CUDA_VERSION >= 13000
    check(cuGraphGetEdges(graph, from.data(), to.data(), nullptr, &n_edges), "listing the edges of the graph");
#else
    check(cuGraphGetEdges(graph, from.data(), to.data(), &n_edges), "listing the edges of the graph");
#endif
    std::map<CUgraphNode, CUgraphNode> next, previous;
    for (size_t i = 0; i < n_edges; i++) {
        next[from[i]] = to[i];
        previous[to[i]] = from[i];
    }
    vector<CUgraphNode> ordered;
    for (CUgraphNode node : nodes)
        if (previous.count(node) == 0) {
            for (ordered.push_back(node); next.count(node) != 0; ordered.push_back(node))
                node = next[node];
            break;
        }
    if (ordered.size() != n_nodes || n_edges + 1 != n_nodes)
        throw OpenMMException("CudaGraphForce: the module launches kernels in more than one stream, which is not supported");
    return ordered;
}

// A graph that does in the current context what a recorded one does in torch's.
class RebuiltGraph {
public:
    RebuiltGraph(const Recording& recording, CUcontext context) : context(context) {
        try {
            build(recording);
        } catch (...) {
            clear();
            throw;
        }
    }
    ~RebuiltGraph() {
        clear();
    }
    RebuiltGraph(const RebuiltGraph&) = delete;
    RebuiltGraph& operator=(const RebuiltGraph&) = delete;

    void launch(CUstream stream) const {
        check(cuGraphLaunch(executable, stream), "launching the graph");
    }

private:
    void build(const Recording& recording) {
        std::map<CUfunction, const Binary*> loaded;
        for (int i = 0; i < recording.n_binaries; i++)
            loaded[recording.binaries[i].function] = &recording.binaries[i];
        check(cuGraphCreate(&graph, 0), "making a graph");
        CUgraphNode last = nullptr;
        for (CUgraphNode node : nodes_in_order(recording.graph)) {
            const CUgraphNode* after = last == nullptr ? nullptr : &last;
            const size_t n_after = last == nullptr ? 0 : 1;
            CUgraphNodeType type;
            check(cuGraphNodeGetType(node, &type), "reading the graph");
            CUgraphNode added = nullptr;
            if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
                CUDA_KERNEL_NODE_PARAMS kernel = {};
                check(cuGraphKernelNodeGetParams(node, &kernel), "reading a kernel of the graph");
                refuse_groups_of_blocks(node);
                kernel.func = function_here(kernel, loaded);
                kernel.kern = nullptr;
                kernel.ctx = context;
                check(cuGraphAddKernelNode(&added, graph, after, n_after, &kernel), "adding a kernel to the graph");
            } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
                CUDA_MEMSET_NODE_PARAMS memset = {};
                check(cuGraphMemsetNodeGetParams(node, &memset), "reading a memset of the graph");
                check(cuGraphAddMemsetNode(&added, graph, after, n_after, &memset, context), "adding a memset to the graph");
            } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
                CUDA_MEMCPY3D copy = {};
                check(cuGraphMemcpyNodeGetParams(node, &copy), "reading a copy of the graph");
                check(cuGraphAddMemcpyNode(&added, graph, after, n_after, &copy, context), "adding a copy to the graph");
            } else if (type != CU_GRAPH_NODE_TYPE_EMPTY) {
                throw OpenMMException("CudaGraphForce: the module does something on the GPU other than launching kernels, "
                                      "copying and filling memory, which is not supported");
            }
            if (added != nullptr)
                last = added;
        }
        check(cuGraphInstantiate(&executable, graph, 0), "instantiating the graph");
    }

    // The same code in this context. What the CUDA runtime loaded (torch's kernels) belongs to every context; what was loaded by
    // hand (Triton's) has to be loaded once more.
    CUfunction function_here(const CUDA_KERNEL_NODE_PARAMS& kernel, const std::map<CUfunction, const Binary*>& loaded) {
        CUfunction function = nullptr;
        auto found = loaded.find(kernel.func);
        if (found != loaded.end()) {
            if (functions.count(found->second) != 0)
                return functions[found->second];
            CUmodule module;
            check(cuModuleLoadData(&module, found->second->image), string("loading the kernel ") + found->second->name);
            modules.push_back(module);
            check(cuModuleGetFunction(&function, module, found->second->name), string("finding the kernel ") + found->second->name);
            functions[found->second] = function;
        } else if (kernel.kern != nullptr) {
            check(cuKernelGetFunction(&function, kernel.kern), "finding a kernel of torch");
        } else {
            const char* name = nullptr;
            cuFuncGetName(&name, kernel.func);
            throw OpenMMException(string("CudaGraphForce: the kernel ") + (name ? name : "without a name") +
                                  " was loaded by neither torch nor Triton and cannot be loaded into OpenMM's context");
        }
        int most_shared = 0;
        check(cuFuncGetAttribute(&most_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.func), "reading a kernel");
        check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most_shared), "preparing a kernel");
        keep_cache(function, kernel);
        return function;
    }

    // OpenMM's context prefers shared memory to cache: leave as much of it as the kernel's blocks use, and cache the rest.
    static void keep_cache(CUfunction function, const CUDA_KERNEL_NODE_PARAMS& kernel) {
        int blocks = 0, fixed = 0, available = 0, reserved = 0;
        CUdevice device;
        const int threads = kernel.blockDimX * kernel.blockDimY * kernel.blockDimZ;
        if (cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, kernel.sharedMemBytes) != CUDA_SUCCESS ||
            cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) != CUDA_SUCCESS ||
            cuCtxGetDevice(&device) != CUDA_SUCCESS ||
            cuDeviceGetAttribute(&available, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device) != CUDA_SUCCESS ||
            cuDeviceGetAttribute(&reserved, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device) != CUDA_SUCCESS ||
            available <= 0)
            return;
        const long long used = (long long) blocks * (fixed + kernel.sharedMemBytes + reserved);
        const int percent = (int) std::min<long long>(100, (100 * used + available - 1) / available);
        // A hint: without it the kernel is slower, and right.
        cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent);
    }

    // Blocks that have to run together would not in the rebuilt graph.
    static void refuse_groups_of_blocks(CUgraphNode node) {
        CUkernelNodeAttrValue value = {};
        bool grouped = cuGraphKernelNodeGetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS && value.cooperative != 0;
        value = {};
        grouped |= cuGraphKernelNodeGetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION, &value) == CUDA_SUCCESS &&
                   value.clusterDim.x * value.clusterDim.y * value.clusterDim.z > 1;
        if (grouped)
            throw OpenMMException("CudaGraphForce: the module launches cooperative kernels or clusters, which is not supported");
    }

    void clear() {
        if (executable != nullptr)
            cuGraphExecDestroy(executable);
        if (graph != nullptr)
            cuGraphDestroy(graph);
        for (CUmodule module : modules)
            cuModuleUnload(module);
    }

    CUcontext context;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    vector<CUmodule> modules;
    std::map<const Binary*, CUfunction> functions;
};

class CudaGraphForce : public Force {
public:
    CudaGraphForce(long long computation, const string& parameter, double strength, bool periodic)
        : computation(computation), parameter(parameter), strength(strength), periodic(periodic) {
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
    const string parameter;
    const double strength;
    const bool periodic;

protected:
    ForceImpl* createImpl() const override;
};

// On the CUDA platform.
class Launched {
public:
    Launched(const CudaGraphForce& owner, CudaContext* cuda) : owner(owner), cuda(cuda) {}

    ~Launched() {
        if (rebuilt != nullptr) {
            ContextSelector selector(*cuda);
            // The graph may be running.
            cuCtxSynchronize();
            rebuilt.reset();
        }
        if (recorded && callbacks.forget_recording != nullptr)
            callbacks.forget_recording(recording.number);
    }

    Launched(const Launched&) = delete;
    Launched& operator=(const Launched&) = delete;

    // Energy and forces are added to OpenMM's sums.
    void evaluate(const double* parameters) {
        if (rebuilt == nullptr)
            record(parameters);
        ContextSelector selector(*cuda);
        CUstream stream = cuda->getCurrentStream();
        if (std::memcmp(parameters, sent, sizeof(sent)) != 0) {
            // From memory that is not pinned: the driver has taken its copy when this returns.
            check(cuMemcpyHtoDAsync(recording.parameters, parameters, sizeof(sent), stream), "sending parameters");
            std::memcpy(sent, parameters, sizeof(sent));
        }
        rebuilt->launch(stream);
    }

private:
    void record(const double* parameters) {
        if (callbacks.record == nullptr)
            throw OpenMMException("CudaGraphForce: Python has ended");
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
                      parameters};
            check(cuCtxSynchronize(), "waiting for the positions");
        }
        const char* problem = nullptr;
        if (!recorded) {
            PrimaryContext primary(cuda->getDevice());
            check_callback(callbacks.record(owner.computation, &arrays, &recording, &problem), problem);
            recorded = true;
        }
        ContextSelector selector(*cuda);
        rebuilt = std::make_unique<RebuiltGraph>(recording, cuda->getContext());
        // No box has edges that are not numbers, so that the first evaluation sends its parameters.
        std::memset(sent, 0xff, sizeof(sent));
    }

    const CudaGraphForce& owner;
    CudaContext* cuda;
    Recording recording = {};
    bool recorded = false;
    std::unique_ptr<RebuiltGraph> rebuilt;
    double sent[PARAMETERS] = {};
};

class CudaGraphForceImpl : public CustomCPPForceImpl {
public:
    explicit CudaGraphForceImpl(const CudaGraphForce& owner) : CustomCPPForceImpl(owner), owner(owner) {}

    const Force& getOwner() const override {
        return owner;
    }
    std::map<string, double> getDefaultParameters() override {
        return {{owner.parameter, owner.strength}};
    }
    vector<string> getKernelNames() override {
        return {};
    }

    void initialize(ContextImpl& context) override {
        if (context.getPlatform().getName() == "CUDA") {
            auto* data = reinterpret_cast<CudaPlatform::PlatformData*>(context.getPlatformData());
            launched = std::make_unique<Launched>(owner, data->contexts[0]);
        } else
            CustomCPPForceImpl::initialize(context);
    }

    double calcForcesAndEnergy(ContextImpl& context, bool includeForces, bool includeEnergy, int groups) override {
        if (launched == nullptr)
            return CustomCPPForceImpl::calcForcesAndEnergy(context, includeForces, includeEnergy, groups);
        if ((groups & (1 << owner.getForceGroup())) != 0)
            launched->evaluate(parameters(context, includeForces, includeEnergy).data());
        return 0.0;
    }

    double computeForce(ContextImpl& context, const vector<Vec3>& positions, vector<Vec3>& forces) override {
        if (callbacks.evaluate == nullptr)
            throw OpenMMException("CudaGraphForce: Python has ended");
        static_assert(sizeof(Vec3) == 3 * sizeof(double), "Vec3 is three numbers");
        double energy = 0.0;
        const char* problem = nullptr;
        check_callback(callbacks.evaluate(owner.computation, (int) positions.size(),
                                          reinterpret_cast<const double*>(positions.data()), parameters(context, true, true).data(),
                                          reinterpret_cast<double*>(forces.data()), &energy, &problem),
                       problem);
        return energy;
    }

private:
    std::array<double, PARAMETERS> parameters(ContextImpl& context, bool wants_forces, bool wants_energy) const {
        std::array<double, PARAMETERS> found;
        Vec3 box[3];
        context.getPeriodicBoxVectors(box[0], box[1], box[2]);
        for (int i = 0; i < 9; i++)
            found[i] = box[i / 3][i % 3];
        found[STRENGTH] = context.getParameter(owner.parameter);
        found[WANTS_FORCES] = wants_forces;
        found[WANTS_ENERGY] = wants_energy;
        return found;
    }

    const CudaGraphForce& owner;
    std::unique_ptr<Launched> launched;
};

ForceImpl* CudaGraphForce::createImpl() const {
    return new CudaGraphForceImpl(*this);
}

class CudaGraphForceProxy : public SerializationProxy {
public:
    CudaGraphForceProxy() : SerializationProxy("CudaGraphForce") {}

    void serialize(const void* object, SerializationNode& node) const override {
        const CudaGraphForce& force = *reinterpret_cast<const CudaGraphForce*>(object);
        if (callbacks.pack == nullptr)
            throw OpenMMException("CudaGraphForce: Python has ended");
        const char *text = nullptr, *problem = nullptr;
        check_callback(callbacks.pack(force.computation, &text, &problem), problem);
        node.setIntProperty("version", 1);
        node.setStringProperty("name", force.getName());
        node.setIntProperty("forceGroup", force.getForceGroup());
        node.setStringProperty("parameter", force.parameter);
        node.setDoubleProperty("strength", force.strength);
        node.setBoolProperty("periodic", force.periodic);
        node.setStringProperty("computation", text);
    }

    void* deserialize(const SerializationNode& node) const override {
        if (node.getIntProperty("version") != 1)
            throw OpenMMException("CudaGraphForce: written by a newer openmm-density, which is needed to read it");
        if (callbacks.unpack == nullptr)
            throw OpenMMException("CudaGraphForce: Python has ended");
        long long computation = 0;
        const char* problem = nullptr;
        const string text = node.getStringProperty("computation");
        check_callback(callbacks.unpack(text.c_str(), &computation, &problem), problem);
        auto* force = new CudaGraphForce(computation, node.getStringProperty("parameter"), node.getDoubleProperty("strength"),
                                         node.getBoolProperty("periodic"));
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

// Give a System a force.
void openmm_density_add_force(System* system, long long computation, const char* parameter, double strength, int periodic) {
    system->addForce(new CudaGraphForce(computation, parameter, strength, periodic != 0));
}

// The name of a force's parameter, or nullptr if it is a force of another kind.
const char* openmm_density_parameter_of(const Force* force) {
    auto* own = dynamic_cast<const CudaGraphForce*>(force);
    return own == nullptr ? nullptr : own->parameter.c_str();
}
}
