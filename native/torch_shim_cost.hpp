// What an operator costs, in modelled nanoseconds, from bytes and multiplications only: measured times would make the
// number of evictions differ from run to run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>

#include "torch_shim_schema.hpp"

namespace lowtide::shim {

inline constexpr double kNsPerCall = 1000.0;
inline constexpr double kNsPerByte = 0.1;       // 10 GB/s
inline constexpr double kNsPerFlop = 0.02;      // 50 GFLOP/s
inline constexpr double kNsPerDraw = 4.0;       // random numbers come from one generator, one by one
inline constexpr double kNsPerElement = 0.4;    // transcendental functions

struct Work {
  double flops = 0.0;
  double input_bytes = 0.0;
  double output_bytes = 0.0;
  double output_elements = 0.0;
};

inline double cost_of(const OpInfo& info, const Work& work) {
  double cost = kNsPerCall + kNsPerByte * (work.input_bytes + work.output_bytes) + kNsPerFlop * work.flops;
  if (info.is_random) cost += kNsPerDraw * work.output_elements;
  if (info.is_costly_by_element) cost += kNsPerElement * work.output_elements;
  return cost;
}

namespace detail {

inline const at::TensorBase* tensor_at(const at::IValue* arguments, std::size_t count, std::size_t index) {
  if (index >= count || !arguments[index].isTensor()) return nullptr;
  const auto& tensor = arguments[index].toTensor();
  return tensor.defined() ? &tensor : nullptr;
}

inline double matmul_flops(const at::TensorBase* left, const at::TensorBase* right) {
  if (left == nullptr || right == nullptr || left->dim() == 0 || right->dim() == 0) return 0.0;
  const double columns = right->dim() < 2 ? 1.0 : static_cast<double>(right->size(-1));
  return 2.0 * static_cast<double>(left->numel()) * columns;
}

inline double linear_flops(const at::TensorBase* input, const at::TensorBase* weight) {
  if (input == nullptr || weight == nullptr || weight->dim() == 0) return 0.0;
  return 2.0 * static_cast<double>(input->numel()) * static_cast<double>(weight->size(0));
}

// Each output element sees one filter: numel(weight) / filters multiplications.
inline double convolution_flops(double output_elements, const at::TensorBase* weight) {
  if (weight == nullptr || weight->dim() == 0 || weight->size(0) == 0) return 0.0;
  return 2.0 * output_elements * static_cast<double>(weight->numel()) / static_cast<double>(weight->size(0));
}

inline double attention_flops(const at::TensorBase* query, const at::TensorBase* key) {
  if (query == nullptr || key == nullptr || key->dim() < 2) return 0.0;
  return 4.0 * static_cast<double>(query->numel()) * static_cast<double>(key->size(-2));
}

inline double cubic_flops(const at::TensorBase* matrix) {
  if (matrix == nullptr || matrix->dim() == 0) return 0.0;
  return 10.0 * static_cast<double>(matrix->numel()) * static_cast<double>(matrix->size(-1));
}

}  // namespace detail

// `output_elements` may be a guess where the op has not run yet.
inline double flops_of(const OpInfo& info, const at::IValue* arguments, std::size_t count, double output_elements) {
  const auto at = [&](std::size_t index) { return detail::tensor_at(arguments, count, index); };
  switch (info.flops) {
    case FlopRule::kNone: return 0.0;
    case FlopRule::kMatmulFirst: return detail::matmul_flops(at(0), at(1));
    case FlopRule::kMatmulSecond: return detail::matmul_flops(at(1), at(2));
    case FlopRule::kLinear: return detail::linear_flops(at(0), at(1));
    case FlopRule::kConvolution: return detail::convolution_flops(output_elements, at(1));
    case FlopRule::kConvolutionBackward:
      return at(0) == nullptr ? 0.0 : 2.0 * detail::convolution_flops(static_cast<double>(at(0)->numel()), at(2));
    case FlopRule::kAttention: return detail::attention_flops(at(0), at(1));
    case FlopRule::kAttentionBackward: return 2.5 * detail::attention_flops(at(1), at(2));
    case FlopRule::kCubic: return detail::cubic_flops(at(0));
  }
  return 0.0;
}

}  // namespace lowtide::shim
