// Tensors that are made of others: sparse ones of indices and values, nested ones of a buffer and its sizes, quantized
// ones by channel of bytes and scales.
//
//   keys, the first that a tensor has decides:   ... NestedTensor  SparseCsr  Sparse  Mkldnn  [the hook]  Quantized  CPU
//
// Kernels at the keys before the hook read the parts, which may be absent, and write into results whose recipes know
// nothing of that. So while a budget is on each of these kernels is wrapped (torch_shim_wrap.hpp): arguments and their
// parts are resident and locked while it runs, the hook is off within it, and what it makes is never recomputed.
#pragma once

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DispatchKey.h>

namespace lowtide::shim {

// Calls `visit` for each tensor that one is made of, beside what its own storage holds.
template <typename Visit>
void for_each_part(const c10::TensorImpl& impl, Visit&& visit) {
  using c10::DispatchKey;
  const c10::DispatchKeySet keys = impl.key_set();
  if (!keys.has_any(c10::DispatchKeySet({DispatchKey::Sparse, DispatchKey::SparseCsr, DispatchKey::NestedTensor,
                                         DispatchKey::Quantized}))) {
    return;
  }
  if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(&impl)) {
    visit(sparse->indices());
    visit(sparse->values());
  } else if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(&impl)) {
    visit(compressed->compressed_indices());
    visit(compressed->plain_indices());
    visit(compressed->values());
  } else if (const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(&impl)) {
    visit(nested->get_nested_sizes());
    visit(nested->get_nested_strides());
    visit(nested->get_storage_offsets());
  } else if (auto* quantized = dynamic_cast<at::QTensorImpl*>(const_cast<c10::TensorImpl*>(&impl))) {
    const auto* by_channel = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantized->quantizer().get());
    if (by_channel == nullptr) return;
    visit(by_channel->scales());
    visit(by_channel->zero_points());
  }
}

}  // namespace lowtide::shim
