// A force of this package as its platforms see it: what it holds, what it calls in Python, and what evaluates it on a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "openmm/Force.h"
#include "openmm/OpenMMException.h"
#include "openmm/Vec3.h"
#include "openmm/internal/ContextImpl.h"

// slots.py has the same names in the same order, and says what they mean.
extern "C" {

// What an evaluation reads.
constexpr int BOX = 0;
constexpr int WANTS_FORCES = 9;
constexpr int WANTS_ENERGY = 10;
constexpr int STRENGTHS = 11;

// A kernel that Triton has loaded; the first is a CUfunction.
struct Binary {
    void* function;
    const void* image;
    const char* name;
};

struct Arrays {
    int device;
    int n_particles;
    int n_padded;
    int position_bytes;
    int energy_bytes;
    unsigned long long positions;
    unsigned long long particle_of_slot;
    unsigned long long forces;
    unsigned long long energy;
    unsigned long long derivatives;
    const int* derivative_slots;
    const double* parameters;
    int n_parameters;
};

struct Recording {
    long long number;
    void* graph;
    unsigned long long parameters;
    const Binary* binaries;
    int n_binaries;
};

// How a callback ended; Python writes texts by openmm_density_set_text, while it has them.
struct Outcome {
    int succeeded = 0;
    std::string problem;
    std::string text;
};

struct Callbacks {
    void (*record)(long long computation, const Arrays* arrays, Recording* recording, Outcome* outcome);
    void (*evaluate)(long long computation, int n_particles, const double* positions, const double* parameters, int n_parameters,
                     double* forces, double* energy, double* derivatives, Outcome* outcome);
    // Leaves the text in the outcome.
    void (*pack)(long long computation, Outcome* outcome);
    // Of a force of this kind with so many parameters.
    void (*unpack)(const char* kind, const char* text, int n_parameters, long long* computation, void** energy, Outcome* outcome);
    // The library that evaluates forces on OpenMM's CUDA platform, compiled if need be: the address of its function.
    void (*on_cuda)(void** function, Outcome* outcome);
    // Of a Context that begins: whether its System is periodic, and the names of its forces, one a line.
    void (*begin)(long long computation, int periodic, const char* forces, Outcome* outcome);
    void (*forget_computation)(long long computation);
    void (*forget_recording)(long long recording);
};
}

namespace openmm_density {

// Call Python and return what it left. Whatever goes wrong there, success is what has been said to be one.
template <class... Parameters, class... Arguments>
Outcome call(const std::string& force, void (*callback)(Parameters...), Arguments... arguments) {
    if (callback == nullptr)
        throw OpenMM::OpenMMException(force + ": Python has ended");
    Outcome outcome;
    callback(arguments..., &outcome);
    if (!outcome.succeeded)
        throw OpenMM::OpenMMException(force + ": " + (outcome.problem.empty() ? "Python was interrupted" : outcome.problem));
    return outcome;
}

class Energy;

// What a force holds. A base of its own, so that a library can tell one of ours among the forces of a System.
struct Contents {
    virtual ~Contents() = default;

    // What it is called in sentences and files.
    std::string kind;
    // Python's number of the module and of the particles that it takes.
    long long computation = 0;
    // The names of the Context parameters that are the strengths, and what they are in a new Context.
    std::vector<std::string> parameters;
    std::vector<double> strengths;
    // Whether a State can give the energy's derivative with respect to each.
    std::vector<bool> differentiated;
    bool periodic = false;
    // The same energy by C++; null for one that only the module has.
    std::shared_ptr<const Energy> energy;

    bool any_derivative() const {
        for (const bool each : differentiated)
            if (each)
                return true;
        return false;
    }

    // What an evaluation reads: see slots.py.
    std::vector<double> read(OpenMM::ContextImpl& context, bool wants_forces, bool wants_energy) const {
        std::vector<double> found(STRENGTHS + parameters.size());
        OpenMM::Vec3 box[3];
        context.getPeriodicBoxVectors(box[0], box[1], box[2]);
        for (int i = 0; i < 9; i++)
            found[BOX + i] = box[i / 3][i % 3];
        found[WANTS_FORCES] = wants_forces;
        found[WANTS_ENERGY] = wants_energy;
        for (size_t i = 0; i < parameters.size(); i++)
            found[STRENGTHS + i] = context.getParameter(parameters[i]);
        return found;
    }
};

// What evaluates a force in place of the CPU.
class Evaluation {
public:
    virtual ~Evaluation() = default;
    // Energy, forces and derivatives are added to OpenMM's sums.
    virtual void evaluate(OpenMM::ContextImpl& context, bool wants_forces, bool wants_energy, int groups) = 0;
};

// What the library for CUDA has: makes the evaluation of a force in a Context of that platform.
using OnCuda = Evaluation* (*)(const Contents& contents, int group, OpenMM::ContextImpl& context, const Callbacks* callbacks);

}  // namespace openmm_density
