// Loops that follow one another in one parallel region: threads are woken once, and spin from one loop to the next.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "../parallel.h"

namespace openmm_density {
namespace {

// Spins before the processor is left to others, among them a thread of ours that holds the last task.
constexpr int SPINS = 2000;

inline void wait_until(const std::atomic<int64_t>& count, int64_t wanted) {
    for (int spins = 0; count.load(std::memory_order_acquire) < wanted; ++spins) {
        if (spins > SPINS) std::this_thread::yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

// Call f(phase, task, thread) once for every task of every phase, a phase when all tasks of the one before are done.
// A thread that wakes late joins whatever phase is going on, and one that never does is not waited for. f must not throw.
template <typename Function>
void parallel_phases(const std::vector<int64_t>& n_tasks, const Function& f) {
    struct alignas(64) Phase {
        std::atomic<int64_t> next{0}, done{0};
    };
    const int n_phases = static_cast<int>(n_tasks.size());
    const int n_threads = threads_for(*std::max_element(n_tasks.begin(), n_tasks.end()));
    if (n_threads == 1) {
        for (int phase = 0; phase < n_phases; ++phase)
            for (int64_t task = 0; task < n_tasks[phase]; ++task) f(phase, task, 0);
        return;
    }
    const std::unique_ptr<Phase[]> phases(new Phase[n_phases]);
    parallel_for(n_threads, [&](int64_t, int thread) {
        for (int phase = 0; phase < n_phases; ++phase) {
            Phase& own = phases[phase];
            for (int64_t task; (task = own.next.fetch_add(1, std::memory_order_relaxed)) < n_tasks[phase];) {
                f(phase, task, thread);
                own.done.fetch_add(1, std::memory_order_release);
            }
            wait_until(own.done, n_tasks[phase]);
        }
    });
}

}  // namespace
}  // namespace openmm_density
