// Independent tasks over torch's number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#else
#include <system_error>
#include <thread>
#include <vector>
#endif

// As <ATen/Parallel.h> declares them, which takes longer to compile than the rest of a kernel.
namespace at {
__attribute__((visibility("default"))) int get_num_threads();
__attribute__((visibility("default"))) bool in_parallel_region();
}  // namespace at

namespace openmm_density {

#ifndef _OPENMP
inline thread_local bool inside_parallel_for = false;
#endif

// How many threads parallel_for uses for so many tasks: 1 inside a parallel region, at least 1 always.
// Scratch memory per thread needs that many parts.
inline int threads_for(int64_t n_tasks) {
    if (n_tasks <= 1 || at::in_parallel_region()) return 1;
#ifndef _OPENMP
    if (inside_parallel_for) return 1;
#endif
    return static_cast<int>(std::min<int64_t>(n_tasks, std::max(1, at::get_num_threads())));
}

// Call f(task, thread) once for every task in [0, n_tasks), with thread in [0, threads_for(n_tasks)).
// Tasks start in ascending order, each on the first thread that is free, so results must not depend on which thread runs one.
// The first exception ends the loop and is thrown again in the caller.
template <typename Function>
void parallel_for(int64_t n_tasks, const Function& f) {
    const int n_threads = threads_for(n_tasks);
    if (n_threads == 1) {
        for (int64_t task = 0; task < n_tasks; ++task) f(task, 0);
        return;
    }

    std::atomic<int64_t> next{0};
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr error;
    const auto work = [&](int thread) {
        try {
            for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) f(task, thread);
        } catch (...) {
            if (!failed.test_and_set()) error = std::current_exception();
            next.store(n_tasks, std::memory_order_relaxed);
        }
    };

#ifdef _OPENMP
    // No worksharing construct: GOMP_parallel is in every libgomp, newer entry points are missing from the one torch ships.
#pragma omp parallel num_threads(n_threads)
    work(omp_get_thread_num());
#else
    const auto marked = [&](int thread) {
        inside_parallel_for = true;
        work(thread);
        inside_parallel_for = false;
    };
    std::vector<std::thread> others;
    others.reserve(n_threads - 1);
    try {
        for (int thread = 1; thread < n_threads; ++thread) others.emplace_back(marked, thread);
    } catch (const std::system_error&) {
        // The system gives no more threads: those there are do the work.
    }
    marked(0);
    for (std::thread& other : others) other.join();
#endif
    if (error) std::rethrow_exception(error);
}

}  // namespace openmm_density
