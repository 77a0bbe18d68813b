// Independent tasks over torch's number of threads, or a caller's.
//
// Two engines. OpenMP, where the compiler has it; its threads spin for a while after a parallel region, ready for the next. And
// a pool of std::threads that sleep between calls, where the compiler has no OpenMP or a kernel asks for it by defining
// OPENMM_DENSITY_SLEEPING_THREADS: beside OpenMM's own threads, spinning ones take the cores from those that have work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#if defined(_OPENMP) && !defined(OPENMM_DENSITY_SLEEPING_THREADS)
#define OPENMM_DENSITY_OPENMP
#include <omp.h>
#else
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#endif

// As <ATen/Parallel.h> declares them, which takes longer to compile than the rest of a kernel.
namespace at {
__attribute__((visibility("default"))) int get_num_threads();
__attribute__((visibility("default"))) bool in_parallel_region();
}  // namespace at

namespace openmm_density {
namespace {  // each library has its own pool

#ifndef OPENMM_DENSITY_OPENMP
thread_local bool inside_parallel_for = false;

// Threads that sleep until there is work. The caller never waits for one to wake up: it starts at once, and those that are awake
// before the last task is taken help. On a busy machine it does everything itself.
class Pool {
   public:
    // Wake some of so many threads, less the caller, to spin for a moment: a sleeping thread needs a tenth of a millisecond to start,
    // and a loop may be over by then. Never more threads than there are processors besides the caller's, for they would take its
    // own; and a few suffice, as the others are woken when there is work.
    void prewake(int n_threads) {
        static const int most = std::min(3, static_cast<int>(std::thread::hardware_concurrency()) - 1);
        const int n = std::min(n_threads - 1, most);
        if (n <= 0) return;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            grow(n);
            ++prewakes_;
        }
        for (int i = 0; i < n; ++i) wake_.notify_one();
    }

    // Call work(0) here and work(1), work(2), ... on other threads as they wake. False where another caller has the pool.
    bool run(int n_threads, const std::function<void(int)>& work) {
        const std::unique_lock<std::mutex> taken(one_caller_, std::try_to_lock);
        if (!taken) return false;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            grow(n_threads - 1);
            work_ = &work;
            joined_ = 0;
            wanted_ = n_threads - 1;
            round_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
        inside_parallel_for = true;
        work(0);
        inside_parallel_for = false;
        std::unique_lock<std::mutex> lock(mutex_);
        work_ = nullptr;
        done_.wait(lock, [this] { return running_ == 0; });
        return true;
    }

   private:
    void grow(int n) {
        try {
            for (; n_workers_ < n; ++n_workers_) std::thread(&Pool::serve, this).detach();
        } catch (const std::system_error&) {
            // The system refuses more threads: those that exist do the work.
        }
    }

    void serve() {
        inside_parallel_for = true;
        uint64_t served = 0, prewakes_seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return round_ != served || prewakes_ != prewakes_seen; });
            if (round_ == served) {
                prewakes_seen = prewakes_;
                lock.unlock();
                spin_wait(served);
                lock.lock();
                continue;
            }
            served = round_;
            prewakes_seen = prewakes_;
            if (!work_ || joined_ >= wanted_) continue;
            const auto& work = *work_;
            const int thread = ++joined_;
            ++running_;
            lock.unlock();
            work(thread);
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    void spin_wait(uint64_t served) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
        while (round_.load(std::memory_order_acquire) == served && std::chrono::steady_clock::now() < end) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    }

    std::mutex one_caller_, mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(int)>* work_ = nullptr;
    int joined_ = 0, wanted_ = 0, running_ = 0, n_workers_ = 0;
    std::atomic<uint64_t> round_{0};
    uint64_t prewakes_ = 0;
};

// Never destroyed: its threads may outlive the statics. A forked child has none of its parent's threads and makes a new pool.
inline Pool& pool() {
    static std::mutex mutex;
    static Pool* instance = nullptr;
    static pid_t owner = 0;
    const std::lock_guard<std::mutex> lock(mutex);
    if (owner != getpid()) {
        instance = new Pool;
        owner = getpid();
    }
    return *instance;
}
#endif

thread_local int thread_limit = 0;

// How many threads the loops of this thread may use while this lives, in place of torch's number.
class ThreadLimit {
   public:
    explicit ThreadLimit(int n_threads) : before_(thread_limit) { thread_limit = n_threads; }
    ~ThreadLimit() { thread_limit = before_; }
    ThreadLimit(const ThreadLimit&) = delete;
    ThreadLimit& operator=(const ThreadLimit&) = delete;

   private:
    int before_;
};

// How many threads parallel_for uses for so many tasks: 1 inside a parallel region, at least 1 always.
// Scratch memory per thread needs that many parts.
inline int threads_for(int64_t n_tasks) {
    if (n_tasks <= 1) return 1;
#ifndef OPENMM_DENSITY_OPENMP
    if (inside_parallel_for) return 1;
#endif
    if (thread_limit > 0) return static_cast<int>(std::min<int64_t>(n_tasks, thread_limit));
    if (at::in_parallel_region()) return 1;
    return static_cast<int>(std::min<int64_t>(n_tasks, std::max(1, at::get_num_threads())));
}

// Wake threads for a parallel_for that follows soon.
inline void prewake_threads() {
#ifndef OPENMM_DENSITY_OPENMP
    const int n_threads = threads_for(INT64_MAX);
    if (n_threads > 1) pool().prewake(n_threads);
#endif
}

// The tasks that a thread begins with, [next, end).
struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
};

// Call f(task, thread) once for every task in [0, n_tasks), with thread in [0, threads_for(n_tasks)).
// A thread begins with its own share of the tasks, the same in every loop of as many, since it finds in its cache what it left there,
// and then helps with those of the others; a share's tasks start in ascending order. Results must not depend on who runs one.
// The first exception ends the loop and is thrown again in the caller.
template <typename Function>
void parallel_for(int64_t n_tasks, const Function& f) {
    const int n_threads = threads_for(n_tasks);
    if (n_threads == 1) {
        for (int64_t task = 0; task < n_tasks; ++task) f(task, 0);
        return;
    }

    Share shares[64];
    const int n_shares = std::min(n_threads, 64);
    for (int i = 0; i < n_shares; ++i) {
        shares[i].next.store(n_tasks * i / n_shares, std::memory_order_relaxed);
        shares[i].end = n_tasks * (i + 1) / n_shares;
    }
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr error;
    const auto work = [&](int thread) {
        try {
            for (int i = 0; i < n_shares; ++i) {
                Share& share = shares[(thread + i) % n_shares];
                for (int64_t task; (task = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) f(task, thread);
            }
        } catch (...) {
            if (!failed.test_and_set()) error = std::current_exception();
            for (int i = 0; i < n_shares; ++i) shares[i].next.store(n_tasks, std::memory_order_relaxed);
        }
    };

#ifdef OPENMM_DENSITY_OPENMP
    // No worksharing construct: GOMP_parallel is in every libgomp, newer entry points are missing from the one torch ships.
#pragma omp parallel num_threads(n_threads)
    work(omp_get_thread_num());
#else
    if (!pool().run(n_threads, work)) work(0);
#endif
    if (error) std::rethrow_exception(error);
}

}  // namespace
}  // namespace openmm_density
