// What an energy is made of: the tensors and numbers of a module of torch, as Python fills them in (forms.py).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace openmm_density {

// A module's class, tensors, numbers and modules within.
struct Form {
    struct Array {
        // As numpy calls that of its elements.
        std::string type;
        std::vector<char> bytes;
        std::vector<int64_t> shape;
    };

    std::string kind;
    void* kernel = nullptr;
    std::map<std::string, double> numbers;
    std::map<std::string, Array> arrays;
    std::vector<std::pair<std::string, std::shared_ptr<const Form>>> parts;

    double number(const std::string& name) const {
        const auto found = numbers.find(name);
        if (found == numbers.end())
            refuse("has no number " + name);
        return found->second;
    }
    template <class Element>
    const Element* array(const std::string& name) const {
        static_assert(std::is_integral_v<Element> || std::is_floating_point_v<Element>, "tensors hold numbers");
        const Array& found = any_array(name);
        const std::string type = (std::is_integral_v<Element> ? "int" : "float") + std::to_string(8 * sizeof(Element));
        if (found.type != type)
            refuse("takes " + name + " as " + type + ", not " + found.type);
        return reinterpret_cast<const Element*>(found.bytes.data());
    }
    // An array whose elements are from 0 on and below a limit.
    template <class Element>
    const Element* indices(const std::string& name, int64_t limit) const {
        const Element* const found = array<Element>(name);
        const int64_t n = any_array(name).bytes.size() / sizeof(Element);
        for (int64_t i = 0; i < n; ++i)
            if (found[i] < 0 || found[i] >= limit)
                refuse("has " + std::to_string(found[i]) + " among its " + name + ", which are from 0 to " + std::to_string(limit - 1));
        return found;
    }
    int64_t length(const std::string& name, int axis = 0) const {
        const Array& found = any_array(name);
        if (axis >= (int) found.shape.size())
            refuse("takes " + name + " with more than " + std::to_string(axis) + " axes");
        return found.shape[axis];
    }
    const std::shared_ptr<const Form>& part(const std::string& name) const {
        for (const auto& [own, form] : parts)
            if (own == name)
                return form;
        refuse("has no " + name);
    }
    [[noreturn]] void refuse(const std::string& problem) const {
        throw std::invalid_argument(kind + " " + problem);
    }
    template <class Function>
    Function* function() const {
        if (kernel == nullptr)
            refuse("has no kernel");
        return reinterpret_cast<Function*>(kernel);
    }

private:
    const Array& any_array(const std::string& name) const {
        const auto found = arrays.find(name);
        if (found == arrays.end())
            refuse("has no array " + name);
        return found->second;
    }
};

}  // namespace openmm_density
