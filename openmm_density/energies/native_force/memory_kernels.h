// Copies and fills of memory on a GPU by kernels, in place of the copying and filling nodes of a graph.
//
// A recorded graph's memory belongs to torch's context. For a node that copies or fills it in a graph of OpenMM's context, a driver may
// have the GPU turn from one context to the other and back, which takes a quarter of a millisecond: kernels reach the memory of both.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "openmm/OpenMMException.h"
#include "openmm/cuda/CudaContext.h"

namespace openmm_density {

inline void check(CUresult result, const std::string& doing) {
    if (result == CUDA_SUCCESS)
        return;
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    throw OpenMM::OpenMMException("CUDA graph: " + doing + " failed (" + (name ? name : "unknown error") + ")");
}

class MemoryKernels {
public:
    // They are compiled when a graph has a node for them.
    explicit MemoryKernels(OpenMM::CudaContext* cuda) : cuda(cuda) {}

    // The kernel that does what a node does, as a node of another graph; null for one that it cannot do.
    CUgraphNode copy(CUgraph graph, const CUgraphNode* after, size_t n_after, const CUDA_MEMCPY3D& node) {
        if (node.Depth > 1 || !is_here(node.srcMemoryType, node.srcDevice) || !is_here(node.dstMemoryType, node.dstDevice))
            return nullptr;
        Rows rows = {node.dstDevice + node.dstXInBytes + node.dstY * node.dstPitch,
                     node.srcDevice + node.srcXInBytes + node.srcY * node.srcPitch,
                     0,
                     (long long) node.WidthInBytes,
                     (long long) node.Height,
                     (long long) node.dstPitch,
                     (long long) node.srcPitch};
        if (rows.n <= 1) {
            rows.n = 1;
            rows.to_pitch = rows.from_pitch = rows.width;
        }
        return added(graph, after, n_after, "copyRows", rows, 16);
    }

    CUgraphNode fill(CUgraph graph, const CUgraphNode* after, size_t n_after, const CUDA_MEMSET_NODE_PARAMS& node) {
        // All bytes of a word are of the value, so that words can be longer than it.
        unsigned long long value = node.value & (~0ull >> (64 - 8 * node.elementSize));
        for (unsigned bytes = node.elementSize; bytes < 8; bytes *= 2)
            value |= value << (8 * bytes);
        Rows rows = {node.dst, 0, value, (long long) (node.width * node.elementSize), (long long) node.height, (long long) node.pitch, 0};
        if (rows.n <= 1) {
            rows.n = 1;
            rows.to_pitch = rows.width;
        }
        return added(graph, after, n_after, "fillRows", rows, 8);
    }

private:
    // Rows of bytes.
    struct Rows {
        CUdeviceptr to, from;
        unsigned long long value;
        long long width, n, to_pitch, from_pitch;
    };

    static bool is_here(CUmemorytype type, CUdeviceptr address) {
        if (type == CU_MEMORYTYPE_DEVICE)
            return true;
        unsigned found = 0;
        return type == CU_MEMORYTYPE_UNIFIED &&
               cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS && found == CU_MEMORYTYPE_DEVICE;
    }

    CUgraphNode added(CUgraph graph, const CUgraphNode* after, size_t n_after, const std::string& name, Rows rows, long long most) {
        // In words as long as all of the numbers are multiples of.
        const unsigned long long all = rows.to | rows.from | rows.width | (rows.n > 1 ? rows.to_pitch | rows.from_pitch : 0);
        const long long bytes = all == 0 ? most : std::min<long long>(most, all & -all);
        for (long long* each : {&rows.width, &rows.to_pitch, &rows.from_pitch}) *each /= bytes;
        void* arguments[] = {&rows.to, &rows.from, &rows.value, &rows.width, &rows.n, &rows.to_pitch, &rows.from_pitch};
        const long long blocks = std::clamp<long long>((rows.width * rows.n + THREADS - 1) / THREADS, 1, MOST_BLOCKS);
        CUDA_KERNEL_NODE_PARAMS kernel = {};
        kernel.func = function(name + std::to_string(bytes));
        kernel.gridDimX = (unsigned) blocks;
        kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
        kernel.blockDimX = THREADS;
        kernel.kernelParams = arguments;
        kernel.ctx = cuda->getContext();
        CUgraphNode node = nullptr;
        check(cuGraphAddKernelNode(&node, graph, after, n_after, &kernel), "adding a kernel to the graph");
        return node;
    }

    CUfunction function(const std::string& name) {
        if (module == nullptr)
            module = cuda->createModule(SOURCE);
        return cuda->getKernel(module, name);
    }

    static constexpr unsigned THREADS = 256;
    static constexpr long long MOST_BLOCKS = 2048;
    static constexpr const char* SOURCE = R"(
#define EACH_WORD(DO) \
    for (long long i = blockIdx.x * (long long) blockDim.x + threadIdx.x; i < width * n; i += (long long) gridDim.x * blockDim.x) { \
        const long long row = n == 1 ? 0 : i / width, column = i - row * width; \
        DO; \
    }
#define COPY(BYTES, WORD) \
    extern "C" __global__ void copyRows##BYTES(WORD* to, const WORD* from, unsigned long long value, long long width, long long n, \
                                               long long toPitch, long long fromPitch) { \
        EACH_WORD(to[row * toPitch + column] = from[row * fromPitch + column]) \
    }
#define FILL(BYTES, WORD) \
    extern "C" __global__ void fillRows##BYTES(WORD* to, const WORD* from, unsigned long long value, long long width, long long n, \
                                               long long toPitch, long long fromPitch) { \
        EACH_WORD(to[row * toPitch + column] = (WORD) value) \
    }
COPY(1, unsigned char)
COPY(2, unsigned short)
COPY(4, unsigned int)
COPY(8, unsigned long long)
COPY(16, uint4)
FILL(1, unsigned char)
FILL(2, unsigned short)
FILL(4, unsigned int)
FILL(8, unsigned long long)
)";

    OpenMM::CudaContext* cuda;
    // OpenMM's own to unload, with the Context.
    CUmodule module = nullptr;
};

}  // namespace openmm_density
