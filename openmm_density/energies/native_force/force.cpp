// An OpenMM Force that is an energy of this package, or any torch module: by C++ kernels on CPUs, as a CUDA graph on CUDA.
//
// OpenMM's CustomCPPForceImpl brings positions to the CPU and takes forces from there, on every platform. An Energy (energies.h)
// evaluates them by kernels in this process, without Python and without torch; a module that is none of ours is called in Python.
// On the CUDA platform neither happens: cuda.cpp, a library of its own, launches the module's kernels on the GPU.
//
// The Python side (force.py, computation.py, slots.py) keeps the modules and is called through Callbacks.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "openmm/CMMotionRemover.h"
#include "openmm/Context.h"
#include "openmm/Platform.h"
#include "openmm/System.h"
#include "openmm/common/ComputeContext.h"
#include "openmm/internal/CustomCPPForceImpl.h"
#include "openmm/internal/ForceImpl.h"
#include "openmm/internal/hardware.h"
#include "openmm/opencl/OpenCLPlatform.h"
#include "openmm/reference/ReferencePlatform.h"
#include "openmm/serialization/SerializationNode.h"
#include "openmm/serialization/SerializationProxy.h"
#include "constraints.h"
#include "energies.h"
#include "openmm_force.h"
#include "own_kernels.h"

using namespace OpenMM;
using std::string;
using std::vector;

namespace openmm_density {

Callbacks callbacks = {};

class NativeForce : public Force, public Contents {
public:
    explicit NativeForce(const Contents& contents) : Contents(contents), kept(nullptr, [number = computation](const void*) {
        if (callbacks.forget_computation != nullptr)
            callbacks.forget_computation(number);
    }) {
        setName(kind);
    }
    bool usesPeriodicBoundaryConditions() const override {
        return periodic;
    }

protected:
    ForceImpl* createImpl() const override;

private:
    // Python keeps the computation as long as a copy of the force lives.
    std::shared_ptr<const void> kept;
};

// The same under another name in files, which tell forces by their C++ class.
class CudaGraphForce : public NativeForce {
public:
    using NativeForce::NativeForce;
};

// Derivatives of the energy on their way into what OpenMM adds up for a State.
class Derivatives {
public:
    virtual ~Derivatives() = default;
    virtual void add(const string& parameter, double value) = 0;

    static std::unique_ptr<Derivatives> of(ContextImpl& context, const Contents& contents);
};

class OnReference : public Derivatives {
public:
    explicit OnReference(ContextImpl& context) : context(context) {}
    void add(const string& parameter, double value) override {
        auto* data = reinterpret_cast<ReferencePlatform::PlatformData*>(context.getPlatformData());
        (*data->energyParameterDerivatives)[parameter] += value;
    }

private:
    ContextImpl& context;
};

// OpenCL, where an evaluation runs in a thread of its own: what it found is added when OpenMM has waited for it.
class OnOpenCL : public Derivatives {
public:
    OnOpenCL(ContextImpl& context, const Contents& contents) : found(std::make_shared<std::map<string, double>>()) {
        auto* data = reinterpret_cast<OpenCLPlatform::PlatformData*>(context.getPlatformData());
        // Its class needs OpenCL's headers; all that is called here belongs to its only base.
        auto* compute = reinterpret_cast<ComputeContext*>(data->contexts[0]);
        for (size_t i = 0; i < contents.parameters.size(); i++)
            if (contents.differentiated[i])
                compute->addEnergyParameterDerivative(contents.parameters[i]);
        using AddPostComputation = void (*)(ComputeContext*, ComputeContext::ForcePostComputation*);
        auto add = reinterpret_cast<AddPostComputation>(
            beside(compute, "_ZN6OpenMM14ComputeContext18addPostComputationEPNS0_20ForcePostComputationE"));
        if (add == nullptr)
            throw OpenMMException(contents.kind + ": this OpenMM takes no energy derivatives on OpenCL; use parameter_derivative=False");
        add(compute, new After(compute, found));
    }
    void add(const string& parameter, double value) override {
        (*found)[parameter] = value;
    }

private:
    // A function of the library that holds the class of an object: OpenMM's for that platform, which its loader keeps to itself.
    static void* beside(const void* object, const char* function) {
        Dl_info info = {};
        if (dladdr(*static_cast<void* const*>(object), &info) == 0)
            return nullptr;
        void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        return library == nullptr ? nullptr : dlsym(library, function);
    }

    struct After : ComputeContext::ForcePostComputation {
        After(ComputeContext* compute, std::shared_ptr<std::map<string, double>> found) : compute(compute), found(std::move(found)) {}
        double computeForceAndEnergy(bool, bool, int) override {
            for (const auto& [parameter, value] : *found)
                compute->getEnergyParamDerivWorkspace()[parameter] += value;
            found->clear();
            return 0.0;
        }
        ComputeContext* compute;
        std::shared_ptr<std::map<string, double>> found;
    };
    std::shared_ptr<std::map<string, double>> found;
};

std::unique_ptr<Derivatives> Derivatives::of(ContextImpl& context, const Contents& contents) {
    if (!contents.any_derivative())
        return nullptr;
    const string platform = context.getPlatform().getName();
    if (platform == "Reference" || platform == "CPU")
        return std::make_unique<OnReference>(context);
    if (platform == "OpenCL")
        return std::make_unique<OnOpenCL>(context, contents);
    throw OpenMMException(contents.kind + ": no energy derivatives on the platform " + platform + "; use parameter_derivative=False");
}

// Those of the CPU platform's Context; elsewhere what that platform would have by default.
int threads_of(ContextImpl& context) {
    const string platform = context.getPlatform().getName();
    if (platform == "Reference")
        return 1;
    if (platform == "CPU")
        return std::max(1, std::atoi(context.getPlatform().getPropertyValue(context.getOwner(), "Threads").c_str()));
    const char* wanted = std::getenv("OPENMM_CPU_THREADS");
    const int n = wanted == nullptr ? 0 : std::atoi(wanted);
    return n > 0 ? n : getNumProcessors();
}

// A Context outlives the removal of its forces from the System, as it does with OpenMM's own: it works on a copy.
struct Copied {
    const NativeForce owner;
};

class NativeForceImpl : private Copied, public CustomCPPForceImpl {
public:
    explicit NativeForceImpl(const NativeForce& given) : Copied{given}, CustomCPPForceImpl(owner), given(given) {}

    const Force& getOwner() const override {
        return given;
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
        const System& system = context.getSystem();
        string names;
        for (int i = 0; i < system.getNumForces(); i++) {
            const Force& force = system.getForce(i);
            names += (dynamic_cast<const CMMotionRemover*>(&force) != nullptr ? "CMMotionRemover" : force.getName()) + "\n";
        }
        call(owner.kind, callbacks.begin, owner.computation, (int) system.usesPeriodicBoundaryConditions(), names.c_str());
        if (context.getPlatform().getName() == "CUDA") {
            void* function = nullptr;
            call(owner.kind, callbacks.on_cuda, &function);
            on_cuda.reset(reinterpret_cast<OnCuda>(function)(owner, owner.getForceGroup(), context, &callbacks));
            return;
        }
        CustomCPPForceImpl::initialize(context);
        derivatives = Derivatives::of(context, owner);
        n_threads = threads_of(context);
    }

    double calcForcesAndEnergy(ContextImpl& context, bool includeForces, bool includeEnergy, int groups) override {
        if (on_cuda == nullptr)
            return CustomCPPForceImpl::calcForcesAndEnergy(context, includeForces, includeEnergy, groups);
        on_cuda->evaluate(context, includeForces, includeEnergy, groups);
        return 0.0;
    }

    double computeForce(ContextImpl& context, const vector<Vec3>& positions, vector<Vec3>& forces) override {
        static_assert(sizeof(Vec3) == 3 * sizeof(double), "Vec3 is three numbers");
        const auto given = owner.read(context, true, true);
        const auto* at = reinterpret_cast<const double*>(positions.data());
        auto* found = reinterpret_cast<double*>(forces.data());
        vector<double> slopes(owner.parameters.size(), 0.0);
        double energy = 0.0;
        // Positions of another number than the energy is for are refused in Python.
        if (owner.energy != nullptr && owner.energy->takes((int64_t) positions.size()))
            try {
                energy = owner.energy->evaluate({at, (int64_t) positions.size(), given.data() + BOX, given.data() + STRENGTHS, n_threads},
                                                found, slopes.data());
            } catch (const std::exception& error) {
                // Any other than OpenMM's own ends the process on OpenCL, where this is another thread.
                throw OpenMMException(owner.kind + ": " + error.what());
            }
        else
            call(owner.kind, callbacks.evaluate, owner.computation, (int) positions.size(), at, given.data(), (int) given.size(), found,
                 &energy, derivatives == nullptr ? nullptr : slopes.data());
        if (derivatives != nullptr)
            for (size_t i = 0; i < slopes.size(); i++)
                if (owner.differentiated[i])
                    derivatives->add(owner.parameters[i], slopes[i]);
        return energy;
    }

private:
    // Not more than where it is: it may be gone.
    const NativeForce& given;
    std::unique_ptr<Evaluation> on_cuda;
    std::unique_ptr<Derivatives> derivatives;
    int n_threads = 1;
};

ForceImpl* NativeForce::createImpl() const {
    return new NativeForceImpl(*this);
}

NativeForce* made(const Contents& contents) {
    return contents.kind == "CudaGraphForce" ? new CudaGraphForce(contents) : new NativeForce(contents);
}

class NativeForceProxy : public SerializationProxy {
public:
    explicit NativeForceProxy(const string& kind) : SerializationProxy(kind), kind(kind) {}

    void serialize(const void* object, SerializationNode& node) const override {
        // OpenMM hands out the address of the Force.
        const NativeForce& force = *static_cast<const NativeForce*>(reinterpret_cast<const Force*>(object));
        const Outcome packed = call(kind, callbacks.pack, force.computation);
        node.setIntProperty("version", NEWEST);
        node.setStringProperty("name", force.getName());
        node.setIntProperty("forceGroup", force.getForceGroup());
        SerializationNode& strengths = node.createChildNode("Strengths");
        for (size_t i = 0; i < force.parameters.size(); i++)
            strengths.createChildNode("Strength")
                .setStringProperty("parameter", force.parameters[i])
                .setDoubleProperty("default", force.strengths[i])
                .setBoolProperty("derivative", force.differentiated[i]);
        node.setBoolProperty("periodic", force.periodic);
        node.setStringProperty("computation", packed.text);
    }

    void* deserialize(const SerializationNode& node) const override {
        const int version = node.getIntProperty("version");
        if (version < 1 || version > NEWEST)
            throw OpenMMException(kind + ": written by a newer openmm-density, which is needed to read it");
        Contents contents;
        contents.kind = kind;
        contents.periodic = node.getBoolProperty("periodic");
        if (version == 1) {
            contents.parameters.push_back(node.getStringProperty("parameter"));
            contents.strengths.push_back(node.getDoubleProperty("strength"));
            contents.differentiated.push_back(false);
        } else {
            for (const SerializationNode& each : node.getChildNode("Strengths").getChildren()) {
                contents.parameters.push_back(each.getStringProperty("parameter"));
                contents.strengths.push_back(each.getDoubleProperty("default"));
                contents.differentiated.push_back(each.getBoolProperty("derivative", false));
            }
        }
        if (std::set<string>(contents.parameters.begin(), contents.parameters.end()).size() != contents.parameters.size())
            throw OpenMMException(kind + ": the file names a parameter twice");
        // All that may be amiss in the file is read before Python keeps what it made of it.
        const string name = node.getStringProperty("name");
        const int group = node.getIntProperty("forceGroup");
        const string text = node.getStringProperty("computation");
        void* energy = nullptr;
        call(kind, callbacks.unpack, kind.c_str(), text.c_str(), (int) contents.parameters.size(), &contents.computation, &energy);
        if (energy != nullptr)
            contents.energy = *reinterpret_cast<EnergyPointer*>(energy);
        delete reinterpret_cast<EnergyPointer*>(energy);
        NativeForce* force = made(contents);
        force->setName(name);
        force->setForceGroup(group);
        return static_cast<Force*>(force);
    }

private:
    static constexpr int NEWEST = 3;
    const string kind;
};

const Contents* contents_of(const Force* force) {
    return dynamic_cast<const Contents*>(force);
}

}  // namespace openmm_density

using namespace openmm_density;

extern "C" {

// Called once, when the library is loaded, and with an empty structure when Python ends.
void openmm_density_set_callbacks(const Callbacks* given) {
    static bool registered = false;
    callbacks = *given;
    if (!registered) {
        SerializationProxy::registerProxy(typeid(NativeForce), new NativeForceProxy("NativeForce"));
        SerializationProxy::registerProxy(typeid(openmm_density::CudaGraphForce), new NativeForceProxy("CudaGraphForce"));
    }
    registered = true;
}

// Write the sentence of a failure, or else the text that was asked for.
void openmm_density_set_text(Outcome* outcome, int is_problem, const char* text) {
    (is_problem ? outcome->problem : outcome->text) = text;
}

void openmm_density_succeed(Outcome* outcome) {
    outcome->succeeded = 1;
}

// A form to be filled in, owned by the caller until it is made part of another or an energy.
Form* openmm_density_new_form(const char* kind, void* kernel) {
    auto* form = new Form;
    form->kind = kind;
    form->kernel = kernel;
    return form;
}

void openmm_density_set_number(Form* form, const char* name, double value) {
    form->numbers[name] = value;
}

void openmm_density_set_array(Form* form, const char* name, const char* type, const char* bytes, long long n_bytes, const long long* shape,
                              int n_axes) {
    form->arrays[name] = {type, {bytes, bytes + n_bytes}, {shape, shape + n_axes}};
}

void openmm_density_set_part(Form* form, const char* name, Form* part) {
    form->parts.emplace_back(name, std::shared_ptr<const Form>(part));
}

void openmm_density_delete_form(Form* form) {
    delete form;
}

// The energy of a form, of so many strengths, owned by the caller; or null, with a sentence in the text.
void* openmm_density_new_energy(Form* form, int n_strengths, char* problem, int size) {
    std::shared_ptr<const Form> given(form);
    try {
        const EnergyPointer energy = energy_of(given);
        if (energy->n_strengths() != n_strengths)
            given->refuse("takes " + std::to_string(energy->n_strengths()) + " strengths, not " + std::to_string(n_strengths));
        return new EnergyPointer(energy);
    } catch (const std::exception& error) {
        std::strncpy(problem, error.what(), size - 1);
        return nullptr;
    }
}

// Add a force to a System; the energy, which may be null, stays the caller's.
void openmm_density_add_force(System* system, const char* kind, long long computation, const void* energy, const char* const* parameters,
                              const double* strengths, const int* differentiated, int n, int periodic) {
    Contents contents;
    contents.kind = kind;
    contents.computation = computation;
    contents.parameters.assign(parameters, parameters + n);
    contents.strengths.assign(strengths, strengths + n);
    contents.differentiated.assign(differentiated, differentiated + n);
    contents.periodic = periodic != 0;
    if (energy != nullptr)
        contents.energy = *reinterpret_cast<const EnergyPointer*>(energy);
    system->addForce(made(contents));
}

void openmm_density_delete_energy(void* energy) {
    delete reinterpret_cast<EnergyPointer*>(energy);
}

// Have Contexts of the CPU platform, which is there, that this thread makes from now on evaluate nonbonded forces, angles and torsions
// by these kernels; null: as the platform does. Put in their place what was used before.
void openmm_density_exchange_kernels(void** kernels) {
    join_own_factories(Platform::getPlatformByName("CPU"));
    const OwnKernels before = own_kernels;
    own_kernels = {reinterpret_cast<NonbondedKernel*>(kernels[0]), reinterpret_cast<Angles::Kernel*>(kernels[1]),
                   reinterpret_cast<Torsions::Kernel*>(kernels[2])};
    kernels[0] = reinterpret_cast<void*>(before.nonbonded);
    kernels[1] = reinterpret_cast<void*>(before.angles);
    kernels[2] = reinterpret_cast<void*>(before.torsions);
}

// Take from a System the constraints that ours solves, until a Context of it is made; what they were is the caller's.
void* openmm_density_release_constraints(System* system) {
    return new ReleasedConstraints(*system);
}

// Give them back to it, and to a Context of the CPU platform that was made of it meanwhile, which may be null.
void openmm_density_restore_constraints(void* released, const Context* context) {
    const std::unique_ptr<ReleasedConstraints> owned(reinterpret_cast<ReleasedConstraints*>(released));
    owned->restore(context);
}

// What a force is called if it is one of these; else an empty text.
const char* openmm_density_kind_of(const Force* force) {
    const Contents* own = contents_of(force);
    return own == nullptr ? "" : own->kind.c_str();
}

// Python's number of its module.
long long openmm_density_computation_of(const Force* force) {
    return contents_of(force)->computation;
}

// Whether C++ evaluates it on CPUs.
int openmm_density_has_energy(const Force* force) {
    return contents_of(force)->energy != nullptr;
}

// How many parameters a force has.
int openmm_density_n_parameters(const Force* force) {
    return (int) contents_of(force)->parameters.size();
}

// The name of one of them.
const char* openmm_density_parameter_of(const Force* force, int i) {
    return contents_of(force)->parameters.at(i).c_str();
}

// What it is in a new Context.
double openmm_density_default_of(const Force* force, int i) {
    return contents_of(force)->strengths.at(i);
}

// Whether a State can give the energy's derivative with respect to it.
int openmm_density_is_differentiated(const Force* force, int i) {
    return contents_of(force)->differentiated.at(i);
}
}
