// One operator of a guest, on tensors that lie in the budget: a thread that did not enter it, or the kernel of a foreign
// op (torch.library), which may call others on tensors that its schema does not name.
//
//   its inputs    recomputed where they are absent, pinned while it runs
//   its outputs   outside the arena, as everything else that thread makes; in it, and not to be evicted, for a kernel
//
// Nothing is recorded: what such an op writes in place into the arena cannot be recomputed from then on. So every
// guest reads right values, whatever is evicted meanwhile.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <span>
#include <vector>

#include "torch_shim_parts.hpp"
#include "torch_shim_runtime.hpp"

namespace lowtide::shim {

// The contents of a storage are no longer those that anything was computed from: what was, and could be wanted again, is
// kept or recomputed from the old contents. With the lock held.
//
// A call that is writing it right now has seen to those already, or leaves the old contents behind as a ghost: from bytes
// that are half written, nothing is recomputed.
inline void renew(Runtime& runtime, Handle* handle) {
  Engine& engine = runtime.engine();
  const CellId old = handle->cell;
  if (engine.cell(old).producer == kNone && engine.cell(old).consumers.empty()) return;
  const std::vector<CellId> cells{old};
  engine.begin(cells, handle->num_writers > 0 ? std::span<const CellId>() : cells, false);
  std::vector<Engine::Output> outputs(1);
  outputs[0].size = engine.cell(old).size;
  outputs[0].overwrites = old;
  Notes& notes = runtime.notes();
  if (notes.is_on) {
    Note& note = notes.begin(engine);
    note.inputs = note.overwritten = {notes.name_of(old)};
    note.sizes = {outputs[0].size};
    note.tempers = {static_cast<std::int32_t>(Temper::kResident)};
  }
  Engine::Call call;
  call.is_replayable = false;
  runtime.unbind(handle);
  std::vector<CellId> made;
  engine.end(call, cells, outputs, made);
  runtime.bind(handle, made.front());
  runtime.hold(handle);
  if (notes.is_on) notes.last().outputs = {notes.name(engine, made.front())};
  if (handle->external == nullptr) runtime.put(handle, runtime.data_of(made.front()));
}

// Its bytes can be written past the dispatcher from now on: they stay where they are, nothing is recomputed from them.
inline void expose(Runtime& runtime, Handle* handle) {
  if (!handle->is_parameter) renew(runtime, handle);
  handle->is_exposed = true;
  runtime.engine().pin(handle->cell);
}

class GuestCall {
 public:
  // With the lock held, also for begin and end.
  GuestCall(Runtime& runtime, const OpInfo& info, const Stack& stack) : runtime_(runtime), info_(info) {
    const std::size_t first = stack.size() - info.arguments.size();
    for (std::size_t index = 0; index < info.arguments.size(); ++index) {
      const Argument& argument = info.arguments[index];
      if (argument.is_tensor && !argument.is_metadata) scan(stack[first + index], argument.is_written);
    }
  }
  GuestCall(const GuestCall&) = delete;
  GuestCall& operator=(const GuestCall&) = delete;
  ~GuestCall() {
    for (const Use& use : uses_) runtime_.end_use(use.handle);
  }

  void begin() {
    runtime_.limit_recompute();
    try {
      for (Use& use : uses_) {
        if (use.is_written && loses_bytes(use)) renew(runtime_, use.handle);
        if (use.is_written) use.handle->has_checksum = false;
        runtime_.engine().pin(use.handle->cell);
        use.pinned = use.handle->cell;
      }
    } catch (...) {
      end();
      throw;
    }
  }

  // Also after a failure.
  void end() {
    for (const Use& use : uses_) {
      if (use.pinned == kNone) continue;
      const CellId cell = use.handle->is_gone ? use.pinned : use.handle->cell;  // an op in place passes pins on
      if (runtime_.engine().cell(cell).pins > 0) runtime_.engine().unpin(cell);
    }
  }

 private:
  struct Use {
    Handle* handle;
    bool is_written;
    CellId pinned = kNone;
  };

  Runtime& runtime_;
  const OpInfo& info_;
  c10::SmallVector<Use, 6> uses_;

  // Ops that give a storage other memory leave the old bytes alone, unless those were never ours.
  bool loses_bytes(const Use& use) const { return info_.mode == Mode::kTrack || use.handle->external != nullptr; }

  void scan(const at::IValue& value, bool is_written) {
    if (value.isTensor()) {
      scan_tensor(value.toTensor(), is_written);
    } else if (value.isList()) {
      for (const at::IValue& element : value.toListRef()) {
        if (element.isTensor()) scan_tensor(element.toTensor(), is_written);
      }
    }
  }

  void scan_tensor(const at::Tensor& tensor, bool is_written) {
    if (!tensor.defined()) return;
    for_each_part(*tensor.unsafeGetTensorImpl(), [&](const at::Tensor& part) { scan_tensor(part, is_written); });
    if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
    Handle* handle = runtime_.known(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    if (handle == nullptr) return;
    for (Use& use : uses_) {
      if (use.handle != handle) continue;
      use.is_written |= is_written;
      return;
    }
    ++handle->num_calls;
    uses_.push_back({handle, is_written});
  }
};

}  // namespace lowtide::shim
