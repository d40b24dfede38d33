// What the shim throws: out of memory, as the Python class lowtide.runtime.errors.LowtideOutOfMemory.
#pragma once

#include <torch/csrc/Exceptions.h>

#include <string>
#include <utility>

#include "lowtide/engine_errors.hpp"

namespace lowtide::shim {

// torch turns a subclass of PyTorchError into its python_type() wherever it crosses into Python, from inside backward too.
class OutOfMemoryError final : public torch::PyTorchError {
 public:
  using torch::PyTorchError::PyTorchError;
  PyObject* python_type() override { return type; }

  // A strong reference, set by enter(), kept for good.
  static inline PyObject* type = nullptr;
};

// What lowtide does not do: lowtide.errors.InputError.
class RefusedError final : public torch::PyTorchError {
 public:
  using torch::PyTorchError::PyTorchError;
  PyObject* python_type() override { return type; }

  static inline PyObject* type = nullptr;
};

inline std::string describe_device(const std::string& op, const std::string& device) {
  return op + " was called for device " + device +
         " inside a budget: lowtide's online runtime manages memory of the CPU only so far. Keep model and data on the "
         "CPU, or leave the block before.";
}

// accelerate and Lightning look for the first words; Python reads the numbers out of the rest.
inline std::string describe(const online::OutOfMemory& error, const std::string& op) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return "DefaultCPUAllocator: can't allocate memory: the budget of " + number(error.capacity) +
         " bytes has no room for " + number(error.requested) + " bytes more in " + (op.empty() ? "no op" : op) +
         ": resident " + number(error.resident) + ", locked " + number(error.locked) + ", unevictable " +
         number(error.unevictable) + ", free " + number(error.free) + ", largest hole " + number(error.largest_hole) +
         ". Raise the budget or make the batch smaller.";
}

inline std::string describe(const online::Thrashing& error, const std::string& op, std::int64_t capacity) {
  return "DefaultCPUAllocator: can't allocate memory: the budget of " + std::to_string(capacity) +
         " bytes is too small for " + (op.empty() ? "this program" : op) + ": " + error.what() +
         ". Raise the budget or make the batch smaller.";
}

}  // namespace lowtide::shim
