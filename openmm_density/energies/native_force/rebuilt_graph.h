// A CUDA graph that was recorded in one context, rebuilt in another: kernels, and copies and fills as kernels, in its order.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "openmm/OpenMMException.h"
#include "memory_kernels.h"
#include "openmm_force.h"

namespace openmm_density {

// A node with those that it waits for.
struct OrderedNode {
    CUgraphNode node;
    std::vector<CUgraphNode> after;
};

// The nodes of a graph, each behind all that it waits for. A module that launches kernels in several streams has parallel branches.
inline std::vector<OrderedNode> nodes_in_order(CUgraph graph) {
    size_t n_nodes = 0, n_edges = 0;
    check(cuGraphGetNodes(graph, nullptr, &n_nodes), "counting the nodes of the graph");
    std::vector<CUgraphNode> nodes(n_nodes);
    check(cuGraphGetNodes(graph, nodes.data(), &n_nodes), "listing the nodes of the graph");
#if CUDA_VERSION >= 13000
    check(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &n_edges), "counting the edges of the graph");
    std::vector<CUgraphNode> from(n_edges), to(n_edges);
    check(cuGraphGetEdges(graph, from.data(), to.data(), nullptr, &n_edges), "listing the edges of the graph");
#else
    check(cuGraphGetEdges(graph, nullptr, nullptr, &n_edges), "counting the edges of the graph");
    std::vector<CUgraphNode> from(n_edges), to(n_edges);
    check(cuGraphGetEdges(graph, from.data(), to.data(), &n_edges), "listing the edges of the graph");
#endif
    std::map<CUgraphNode, std::vector<CUgraphNode>> next, previous;
    for (size_t i = 0; i < n_edges; i++) {
        next[from[i]].push_back(to[i]);
        previous[to[i]].push_back(from[i]);
    }
    std::map<CUgraphNode, size_t> waiting;
    std::vector<CUgraphNode> ready;
    for (CUgraphNode node : nodes) {
        waiting[node] = previous[node].size();
        if (waiting[node] == 0)
            ready.push_back(node);
    }
    std::vector<OrderedNode> ordered;
    for (size_t i = 0; i < ready.size(); i++) {
        ordered.push_back({ready[i], previous[ready[i]]});
        for (CUgraphNode follower : next[ready[i]])
            if (--waiting[follower] == 0)
                ready.push_back(follower);
    }
    return ordered;
}

// A graph that does in the current context what a recorded one does in torch's.
class RebuiltGraph {
public:
    RebuiltGraph(CUgraph recorded, const Binary* binaries, int n_binaries, OpenMM::CudaContext* cuda)
        : context(cuda->getContext()), memory(cuda) {
        try {
            build(recorded, binaries, n_binaries);
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

    CUgraph definition() const {
        return graph;
    }

private:
    void build(CUgraph recorded, const Binary* binaries, int n_binaries) {
        std::map<CUfunction, const Binary*> loaded;
        for (int i = 0; i < n_binaries; i++)
            loaded[static_cast<CUfunction>(binaries[i].function)] = &binaries[i];
        check(cuGraphCreate(&graph, 0), "making a graph");
        std::map<CUgraphNode, CUgraphNode> here;
        for (const auto& [node, recorded_after] : nodes_in_order(recorded)) {
            std::vector<CUgraphNode> awaited;
            for (CUgraphNode each : recorded_after)
                awaited.push_back(here[each]);
            const CUgraphNode* after = awaited.empty() ? nullptr : awaited.data();
            const size_t n_after = awaited.size();
            CUgraphNodeType type;
            check(cuGraphNodeGetType(node, &type), "reading the graph");
            CUgraphNode added = nullptr;
            if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
                CUDA_KERNEL_NODE_PARAMS kernel = {};
                check(cuGraphKernelNodeGetParams(node, &kernel), "reading a kernel of the graph");
                kernel.func = function_here(kernel, loaded);
                kernel.kern = nullptr;
                kernel.ctx = context;
                check(cuGraphAddKernelNode(&added, graph, after, n_after, &kernel), "adding a kernel to the graph");
                keep_groups_of_blocks(node, added);
            } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
                CUDA_MEMSET_NODE_PARAMS memset = {};
                check(cuGraphMemsetNodeGetParams(node, &memset), "reading a memset of the graph");
                added = memory.fill(graph, after, n_after, memset);
            } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
                CUDA_MEMCPY3D copy = {};
                check(cuGraphMemcpyNodeGetParams(node, &copy), "reading a copy of the graph");
                added = memory.copy(graph, after, n_after, copy);
                if (added == nullptr)
                    check(cuGraphAddMemcpyNode(&added, graph, after, n_after, &copy, context), "adding a copy to the graph");
            } else if (type == CU_GRAPH_NODE_TYPE_EMPTY) {
                check(cuGraphAddEmptyNode(&added, graph, after, n_after), "adding a node to the graph");
            } else {
                throw OpenMM::OpenMMException("CUDA graph: the module does something on the GPU other than launching kernels, "
                                      "copying and filling memory, which is not supported");
            }
            here[node] = added;
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
            check(cuModuleLoadData(&module, found->second->image), std::string("loading the kernel ") + found->second->name);
            modules.push_back(module);
            check(cuModuleGetFunction(&function, module, found->second->name), std::string("finding the kernel ") + found->second->name);
            functions[found->second] = function;
        } else if (kernel.kern != nullptr) {
            check(cuKernelGetFunction(&function, kernel.kern), "finding a kernel of torch");
        } else
            throw OpenMM::OpenMMException("CUDA graph: the kernel " + name_of(kernel.func) + " was loaded by neither torch nor Triton " +
                                  "(or Python's gc.freeze() hides it) and cannot be loaded into OpenMM's context");
        int most_shared = 0;
        const auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if (kernel.func != nullptr)
            check(cuFuncGetAttribute(&most_shared, attribute, kernel.func), "reading a kernel");
        else {
            CUdevice device;
            check(cuCtxGetDevice(&device), "finding the device");
            check(cuKernelGetAttribute(&most_shared, attribute, kernel.kern, device), "reading a kernel");
        }
        check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most_shared), "preparing a kernel");
        keep_cache(function, kernel);
        return function;
    }

    // Drivers of CUDA 12.0 to 12.2 cannot say.
    static std::string name_of(CUfunction function) {
        using FuncGetName = CUresult (*)(const char**, CUfunction);
        auto get_name = reinterpret_cast<FuncGetName>(dlsym(RTLD_DEFAULT, "cuFuncGetName"));
        const char* name = nullptr;
        if (get_name == nullptr || get_name(&name, function) != CUDA_SUCCESS || name == nullptr)
            return "of unknown name";
        return name;
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

    // Blocks that have to run together do so here as well: matrix products of a Hopper GPU come in clusters of blocks.
    static void keep_groups_of_blocks(CUgraphNode recorded, CUgraphNode added) {
        for (const auto attribute : {CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION,
                                     CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE}) {
            CUkernelNodeAttrValue value = {};
            if (cuGraphKernelNodeGetAttribute(recorded, attribute, &value) != CUDA_SUCCESS || is_default(attribute, value))
                continue;
            check(cuGraphKernelNodeSetAttribute(added, attribute, &value), "launching cooperative kernels or clusters of the module");
        }
    }

    static bool is_default(CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue& value) {
        if (attribute == CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE)
            return value.cooperative == 0;
        if (attribute == CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION)
            return value.clusterDim.x * value.clusterDim.y * value.clusterDim.z <= 1;
        return value.clusterSchedulingPolicyPreference == CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
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
    MemoryKernels memory;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    std::vector<CUmodule> modules;
    std::map<const Binary*, CUfunction> functions;
};

}  // namespace openmm_density
