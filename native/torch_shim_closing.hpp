// The end of a budget: what lives on is handed over to plain PyTorch.
//
//   resident            stays where it is; the arena is kept until the last of them is gone
//   evicted             is computed again and copied out; others make room by going out first, the largest first
//   not to be computed  keeps the text that every read raises
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "torch_shim_runtime.hpp"

namespace lowtide::shim {

// Hand every tensor over to plain PyTorch: evicted ones are computed again, outside. Returns how many pointers into
// the arena are left.
inline std::int64_t Runtime::close() {
  for (CellId cell = next_evicted(); cell != kNone; cell = next_evicted()) restore(cell);
  std::int64_t num_pointers = static_cast<std::int64_t>(raw_.size());
  for (Handle* handle : by_cell_) {
    if (handle == nullptr || handle->external != nullptr) continue;
    ++stats_.num_survivors;
    num_pointers += let_go(handle);
  }
  for (auto& [storage, handle] : externals_) {
    dropped_.push_back(std::move(handle->external));
    delete handle;
  }
  externals_.clear();
  by_cell_.clear();
  recipes_.clear();
  spare_recipes_.clear();
  return num_pointers;
}

inline CellId Runtime::next_evicted() {
  for (Handle* handle : by_cell_) {
    if (handle != nullptr && handle->external == nullptr && !engine_.cell(handle->cell).is_resident()) {
      return handle->cell;
    }
  }
  return kNone;
}

// Compute an evicted survivor again and copy it out; others make room by going out first.
inline void Runtime::restore(CellId cell) {
  while (true) {
    try {
      engine_.materialize(cell);
      ++stats_.num_restored;
      return bring_out(cell);
    } catch (const std::exception&) {
      const CellId largest = largest_survivor();
      if (largest == kNone) {
        ++stats_.num_lost;
        return abandon(cell);
      }
      bring_out(largest);
    }
  }
}

inline CellId Runtime::largest_survivor() const {
  CellId largest = kNone;
  for (const Handle* handle : by_cell_) {
    if (handle == nullptr || handle->is_exposed) continue;
    const online::Cell& cell = engine_.cell(handle->cell);
    if (cell.spot.home != Home::kPool || cell.pins > 0) continue;  // others have its address
    if (largest == kNone || engine_.cell(handle->cell).size > engine_.cell(largest).size) largest = handle->cell;
  }
  return largest;
}

inline void Runtime::bring_out(CellId cell) {
  take_out(cell);
  engine_.move_out(cell);
  put(handle_by_cell(cell), taken_out_.at(cell).mutable_get());
}

// Nothing can compute it any more: it keeps the message that every read raises.
inline void Runtime::abandon(CellId cell) {
  Handle* handle = handle_by_cell(cell);
  c10::DataPtr& data = handle->impl->_mutable_data_ptr_no_checks();
  data.release_context();
  data = c10::DataPtr(nullptr, c10::Device(c10::kCPU));
  by_cell_[cell] = nullptr;
  delete handle;
}

// Give a storage a DataPtr of its own; returns the number of pointers into the arena (0 or 1).
inline std::int64_t Runtime::let_go(Handle* handle) {
  c10::DataPtr& data = handle->impl->_mutable_data_ptr_no_checks();
  void* address = data.get();
  const CellId cell = handle->cell;
  data.release_context();
  delete handle;
  const auto copied = taken_out_.find(cell);
  if (copied != taken_out_.end() && copied->second.get() == address) {
    data = std::move(copied->second);
    return 0;
  }
  data = c10::DataPtr(address, address, &release_raw, c10::Device(c10::kCPU));
  return 1;
}

}  // namespace lowtide::shim
