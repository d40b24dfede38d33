// What the shim knows of an operator, read once from its schema and a few lists of names.
//
//   kPass    no bytes are read: views, shapes, uninitialized memory     runs untouched, nothing is recomputed for it
//   kGather  bytes are read or moved in ways no record can hold         inputs made resident, nothing recorded
//   kTrack   everything else                                            inputs made resident, outputs become cells
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lowtide::shim {

enum class Mode : std::uint8_t { kPass, kGather, kTrack };

// How to count an operator's multiplications; see torch_shim_cost.hpp.
enum class FlopRule : std::uint8_t {
  kNone,
  kMatmulFirst,   // self @ other: arguments 0 and 1
  kMatmulSecond,  // bias + one @ other: arguments 1 and 2
  kLinear,
  kConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
  kCubic,  // factorizations
};

struct Argument {
  bool is_tensor = false;      // a tensor, an optional one, or a list of either
  bool is_written = false;     // by the schema
  bool is_metadata = false;    // only shape and type are read
  bool is_overwritten = false;  // written as a whole, without reading what was there
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& operator_handle)
      : handle(operator_handle), name(c10::toString(operator_handle.operator_name())) {}

  c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  Mode mode = Mode::kTrack;
  FlopRule flops = FlopRule::kNone;
  bool is_replayable = true;
  bool is_foreign = false;                   // anybody's kernel: it may call ops, and do what its schema does not say
  bool is_collective = false;                // goes on reading and writing after it has returned
  bool is_random = false;
  bool is_costly_by_element = false;         // transcendental functions
  std::int32_t first_statistic = -1;         // batch norm: running mean here, running variance next, ...
  std::int32_t training_flag = -1;           // ... and whether they are written
  std::vector<Argument> arguments;
  std::size_t num_returns = 0;
};

namespace detail {

using Names = std::unordered_set<std::string_view>;

// Same storage out as in, without the schema saying so, or no bytes read at all.
inline const Names kPassNames = {
    "_unsafe_view", "_reshape_alias", "is_same_size", "is_set_to", "_has_same_storage_numel", "_fused_sdp_choice",
    "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty", "empty_permuted", "empty_quantized",
    "requires_grad_", "retain_grad", "_version", "is_leaf", "output_nr", "is_pinned", "is_coalesced", "sparse_dim",
    "dense_dim", "_is_zerotensor", "is_inference", "_debug_has_internal_overlap", "sym_size", "sym_numel",
    "sym_stride", "sym_storage_offset", "size", "stride", "_has_compatible_shallow_copy_type", "rename_", "detach_",
    "_conj", "_neg_view", "_shape_as_tensor", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk",
};

// They change which bytes a tensor has, not the bytes.
inline const Names kGatherNames = {"resize_", "resize_as_", "resize_as_sparse_", "set_", "set", "_resize_output_",
                                   "set_data", "swap_", "_lazy_clone", "pin_memory", "_pin_memory"};

// Composites above autograd that read bytes themselves, past the dispatcher: they get a shield, see torch_shim.cpp.
inline constexpr std::pair<const char*, const char*> kShielded[] = {
    {"aten::max_pool1d", ""}, {"aten::tensor_split", "tensor_indices_or_sections"}, {"aten::ctc_loss", "Tensor"}};

inline bool is_shielded(const c10::OperatorName& operator_name) {
  for (const auto& [name, overload] : kShielded) {
    if (operator_name.name == name && operator_name.overload_name == overload) return true;
  }
  return false;
}

// In place, yet every element is written and none is read.
inline const Names kOverwriteNames = {"zero_",     "fill_",        "normal_",    "uniform_",     "random_", "bernoulli_",
                                      "copy_",     "exponential_", "geometric_", "log_normal_", "cauchy_"};

inline const Names kCostlyNames = {
    "exp", "log", "tanh", "tanh_backward", "sigmoid", "gelu", "gelu_backward", "erf", "silu", "silu_backward", "pow",
    "sin", "cos", "softplus", "mish", "elu", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
    "native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward",
    "logsumexp", "max_pool2d_with_indices", "index_select", "embedding_dense_backward", "topk", "sort", "cumsum",
};

inline bool contains(const Names& names, std::string_view name) { return names.count(name) != 0; }

inline FlopRule flop_rule(std::string_view name) {
  static const std::unordered_map<std::string_view, FlopRule> rules = {
      {"mm", FlopRule::kMatmulFirst},         {"bmm", FlopRule::kMatmulFirst},
      {"mv", FlopRule::kMatmulFirst},         {"matmul", FlopRule::kMatmulFirst},
      {"addmm", FlopRule::kMatmulSecond},     {"baddbmm", FlopRule::kMatmulSecond},
      {"addbmm", FlopRule::kMatmulSecond},    {"addmv", FlopRule::kMatmulSecond},
      {"addmm_", FlopRule::kMatmulSecond},    {"baddbmm_", FlopRule::kMatmulSecond},
      {"_addmm_activation", FlopRule::kMatmulSecond},
      {"linear", FlopRule::kLinear},          {"mkldnn_linear", FlopRule::kLinear},
      {"convolution", FlopRule::kConvolution}, {"convolution_overrideable", FlopRule::kConvolution},
      {"mkldnn_convolution", FlopRule::kConvolution},
      {"convolution_backward", FlopRule::kConvolutionBackward},
      {"_scaled_dot_product_flash_attention_for_cpu", FlopRule::kAttention},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", FlopRule::kAttentionBackward},
      {"linalg_svd", FlopRule::kCubic},       {"_linalg_svd", FlopRule::kCubic},
      {"_linalg_eigh", FlopRule::kCubic},     {"linalg_eig", FlopRule::kCubic},
      {"linalg_qr", FlopRule::kCubic},        {"linalg_lu_factor_ex", FlopRule::kCubic},
      {"linalg_cholesky_ex", FlopRule::kCubic}, {"_linalg_solve_ex", FlopRule::kCubic},
      {"linalg_inv_ex", FlopRule::kCubic},    {"linalg_lstsq", FlopRule::kCubic},
  };
  const auto found = rules.find(name);
  return found == rules.end() ? FlopRule::kNone : found->second;
}

inline bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// zeros_like, new_ones, ...: the tensor says only shape and type.
inline bool is_like_factory(std::string_view name) {
  return ends_with(name, "_like") || name.substr(0, 4) == "new_";
}

inline bool is_tensor_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return true;
    case c10::TypeKind::OptionalType: return is_tensor_type(*type.expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType: return is_tensor_type(*type.expectRef<c10::ListType>().getElementType());
    default: return false;
  }
}

inline bool is_view_schema(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* alias = result.alias_info();
    if (alias == nullptr || alias->isWrite()) return false;
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return false;
  }
  return true;
}

inline bool is_foreign(std::string_view space) {
  return space != "aten" && space != "prims" && space != "torchvision";
}

// Kernels with state or workspaces of their own: replaying mkldnn_rnn_layer crashed.
inline bool is_opaque(std::string_view name) {
  return name.find("rnn") != std::string_view::npos || name.find("lstm") != std::string_view::npos ||
         name.find("cudnn") != std::string_view::npos || name.find("_async") != std::string_view::npos;
}

inline Mode mode_of(const c10::OperatorHandle& handle, std::string_view space, std::string_view name) {
  if (contains(kGatherNames, name) || is_shielded(handle.operator_name())) return Mode::kGather;
  if (space != "aten" && space != "prims") return Mode::kTrack;
  if (contains(kPassNames, name) || is_view_schema(handle.schema())) return Mode::kPass;
  return handle.hasTag(at::Tag::inplace_view) ? Mode::kPass : Mode::kTrack;
}

}  // namespace detail

inline OpInfo read_schema(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  const std::string& full = handle.operator_name().name;
  const std::size_t colons = full.find("::");
  const std::string space = colons == std::string::npos ? "" : full.substr(0, colons);
  const std::string name = colons == std::string::npos ? full : full.substr(colons + 2);
  OpInfo info(handle);
  info.mode = detail::mode_of(handle, space, name);
  info.flops = detail::flop_rule(name);
  info.is_foreign = detail::is_foreign(space);
  info.is_replayable = !info.is_foreign && !detail::is_opaque(name);
  info.is_collective = space == "c10d" || space == "_c10d_functional";
  info.is_random = handle.hasTag(at::Tag::nondeterministic_seeded);
  info.is_costly_by_element = detail::contains(detail::kCostlyNames, name);
  info.num_returns = schema.returns().size();
  const bool overwrites_self = detail::contains(detail::kOverwriteNames, name);
  const bool is_factory = detail::is_like_factory(name);
  for (const c10::Argument& described : schema.arguments()) {
    Argument argument;
    argument.is_tensor = detail::is_tensor_type(*described.type());
    argument.is_written = described.alias_info() != nullptr && described.alias_info()->isWrite();
    argument.is_metadata = is_factory && !argument.is_written && argument.is_tensor && info.arguments.empty();
    argument.is_overwritten = argument.is_written && (described.is_out() || overwrites_self);
    info.arguments.push_back(argument);
  }
  // native_batch_norm writes its running statistics without saying so, its relatives say so; no output needs them.
  if (name == "native_batch_norm" || name == "_native_batch_norm_legit" || name == "_batch_norm_with_update") {
    const bool has_statistics = info.arguments.size() >= 6 && info.arguments[4].is_tensor;
    if (has_statistics) {
      info.first_statistic = 3;
      info.training_flag = name == "_batch_norm_with_update" ? -1 : 5;
    }
  }
  return info;
}

// Operators by the address of their name, which is stable and cheap to have.
class OpTable {
 public:
  const OpInfo& of(const c10::OperatorHandle& handle) {
    const void* key = &handle.operator_name();
    Seen& seen = seen_[reinterpret_cast<std::uintptr_t>(key) / 64 % seen_.size()];
    if (seen.key != key) seen = {key, &find(key, handle)};
    return *seen.info;
  }

 private:
  struct Seen {
    const void* key = nullptr;
    const OpInfo* info = nullptr;
  };
  std::array<Seen, 256> seen_;  // the last one of each place
  ska::flat_hash_map<const void*, std::unique_ptr<OpInfo>> infos_;

  const OpInfo& find(const void* key, const c10::OperatorHandle& handle) {
    const auto found = infos_.find(key);
    if (found != infos_.end()) return *found->second;
    return *infos_.emplace(key, std::make_unique<OpInfo>(read_schema(handle))).first->second;
  }
};

}  // namespace lowtide::shim
