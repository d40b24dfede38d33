// One operator on its way through the hook: scan its arguments, make room, run it, file what came out.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "torch_shim_guest.hpp"
#include "torch_shim_parts.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {

class Call {
 public:
  // With the lock held. `kernel`: one before the hook, see torch_shim_parts.hpp.
  Call(Runtime& runtime, const OpInfo& info, c10::DispatchKeySet below, Stack& stack,
       const c10::SafeKernelFunction* kernel = nullptr)
      : runtime_(runtime), info_(info), below_(below), stack_(stack), kernel_(kernel), stamp_(runtime.next_stamp()),
        is_replayable_(info.is_replayable && info.mode == Mode::kTrack && kernel == nullptr) {
    if (is_replayable_) recipe_ = runtime.take_recipe();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (recipe_) runtime_.give_recipe(std::move(recipe_));
    for (const Use& use : uses_) {
      if (use.handle == nullptr) continue;
      if (is_running_ && use.is_written) --use.handle->num_writers;
      runtime_.end_use(use.handle);
    }
  }

  void begin() {
    scan();
    decide_replayable();
    runtime_.limit_recompute();
    if (is_replayable_) remember_shared();
    for (Use& use : uses_) {
      if (use.handle == nullptr) continue;
      use.cell = use.handle->cell;
      (use.is_statistic ? statistics_ : inputs_).push_back(use.cell);
      if (use.is_written && !use.is_statistic && loses_bytes(use)) mutated_.push_back(use.cell);
    }
    Engine& engine = runtime_.engine();
    try {
      if (!statistics_.empty()) engine.begin(statistics_, statistics_, false);
      has_statistics_ = !statistics_.empty();
      engine.begin(inputs_, mutated_, is_replayable_);
      has_begun_ = true;
      if (info_.is_collective) {
        for (const CellId input : inputs_) engine.pin(input);
      }
    } catch (...) {
      abort();
      throw;
    }
    redirect_copies();
    prepare_cost();
    if (info_.is_random) save_randomness();
    if (mutated_.empty() && !info_.is_foreign && runtime_.is_scarce()) saved_stack_.emplace(stack_);
    for (const Use& use : uses_) {
      if (use.handle != nullptr && use.is_written) ++use.handle->num_writers;
    }
    is_running_ = true;
    escapes_before_ = num_escapes;
    raw_before_ = runtime_.raw_bytes();
    runtime_.set_running(&info_, temper_);
  }

  // Without the lock.
  void execute() {
    if (info_.is_foreign) {
      const ForeignKernel foreign;
      return info_.handle.redispatchBoxed(below_, &stack_);
    }
    const c10::impl::ExcludeDispatchKeyGuard below_the_hook(c10::DispatchKey::CustomRNGKeyId);
    if (kernel_ != nullptr) return kernel_->callBoxed(info_.handle, below_, &stack_);
    if (is_replayable_) {
      recipe_->info = &info_;
      recipe_->keys = below_;
      recipe_->thread_keys = c10::impl::tls_local_dispatch_key_set();
      recipe_->is_grad_enabled = c10::GradMode::is_enabled();
      recipe_->numerics = Numerics::now();
    }
    info_.handle.redispatchBoxed(below_, &stack_);
  }

  // Without the lock, above the hook: what the composite calls comes through here again.
  void execute_shielded() { info_.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack_); }

  // The op has found no room, and everything that it had taken is given back: whether there is a hole now for all of
  // that, so that it may run once more. Only where nothing was written yet that counts, and never a foreign kernel.
  bool make_way() {
    if (!saved_stack_ || !statistics_.empty()) return false;
    if (num_retries_++ == Engine::kMaxRetries) return false;
    const std::int64_t needed = runtime_.shortage_with_raw() - raw_before_;
    if (needed <= 0) return false;
    way_ = std::max(needed, way_ + way_ / 8);  // it may go on to ask for more than could be seen
    if (!runtime_.engine().make_way(inputs_, way_)) return false;
    stack_ = *saved_stack_;
    runtime_.set_running(&info_, kTightest);
    if (random_before_) {
      at::Generator generator = generator_of(arguments(), info_.arguments.size());
      const std::lock_guard<std::mutex> guard(generator.mutex());
      random_before_->apply_to(*at::check_generator<at::CPUGeneratorImpl>(generator));
    }
    ++runtime_.stats().num_retries;
    return true;
  }

  // The op threw, or could not begin.
  void abort() {
    runtime_.set_running(nullptr, Temper::kResident);
    Engine& engine = runtime_.engine();
    if (has_begun_) {
      undo_copies();
      engine.abort(inputs_);
    }
    if (has_statistics_) engine.abort(statistics_);
    has_begun_ = has_statistics_ = false;
  }

  void end() {
    runtime_.set_running(nullptr, Temper::kResident);
    if (has_leaked()) is_replayable_ = false;
    if (info_.mode == Mode::kTrack) collect_outputs();
    Engine::Call call;
    call.cost = std::round(cost_of(info_, work_));  // traces hold whole numbers
    call.is_backward = torch::autograd::get_current_graph_task_id() >= 0;
    call.is_replayable = is_replayable_;
    call.temper = temper_;
    has_begun_ = false;
    const RecordId record = finish(call, inputs_);
    if (!runtime_.engine().copies().empty()) runtime_.engine().abort({});  // of storages that were given other memory
    if (record != kNone) file(record);
    if (has_statistics_) end_statistics();
    for (const Use& use : uses_) {
      if (use.is_written && use.handle != nullptr) use.handle->has_checksum = false;  // not read yet
    }
    ++runtime_.stats().num_tracked;
    if (!is_replayable_) ++runtime_.stats().num_unreplayable;
  }

 private:
  // A storage that the call touches.
  struct Use {
    Handle* handle = nullptr;  // null: a target, see below
    CellId cell = kNone;
    at::Tensor target;         // uninitialized memory that the op writes as a whole: no input, an output
    bool is_written = false;
    bool is_statistic = false;
    std::int32_t output = -1;
  };

  Runtime& runtime_;
  const OpInfo& info_;
  c10::DispatchKeySet below_;
  Stack& stack_;
  const c10::SafeKernelFunction* kernel_;
  std::uint64_t stamp_;
  bool is_replayable_;
  bool writes_parameter_ = false;
  bool is_ragged_ = false;  // among the arguments are nested tensors, which have no sizes
  bool has_begun_ = false;
  bool is_running_ = false;
  std::uint64_t escapes_before_ = 0;
  bool has_statistics_ = false;
  Temper temper_ = Temper::kCheap;
  Work work_;
  double flops_by_output_ = 0.0;
  std::unique_ptr<Recipe> recipe_;
  std::optional<Stack> saved_stack_;  // where memory is scarce: for a second try
  std::shared_ptr<const RandomState> random_before_;
  std::int64_t raw_before_ = 0;
  std::int64_t way_ = 0;  // bytes of the hole that was made for it
  std::int32_t num_retries_ = 0;
  c10::SmallVector<Use, 6> uses_;
  c10::SmallVector<CellId, 8> inputs_, mutated_, statistics_;
  c10::SmallVector<Engine::Output, 4> outputs_;
  c10::SmallVector<Handle*, 4> handles_;  // of the outputs
  std::vector<bool> targets_;  // by output: its memory was there before the op
  std::vector<std::pair<const Use*, void*>> redirected_;  // and where its bytes were

  const at::IValue* arguments() const { return stack_.data() + (stack_.size() - info_.arguments.size()); }

  // Ops that give a storage other memory leave the old bytes alone, unless those were never ours.
  bool loses_bytes(const Use& use) const { return info_.mode == Mode::kTrack || use.handle->external != nullptr; }

  // ------------------------------------------------------------------ scan
  void scan() {
    const at::IValue* values = arguments();
    const auto count = static_cast<std::int32_t>(info_.arguments.size());
    const bool is_training = info_.first_statistic >= 0 &&
                             (info_.training_flag < 0 || values[info_.training_flag].toBool());
    if (recipe_) recipe_->arguments.reserve(info_.arguments.size());
    for (std::int32_t index = 0; index < count; ++index) {
      const at::IValue& value = values[index];
      const Argument& argument = info_.arguments[index];
      const bool is_statistic =
          is_training && (index == info_.first_statistic || index == info_.first_statistic + 1);
      if (!argument.is_tensor) {
        if (value.isDevice()) refuse_device(value.toDevice());
        if (value.isObject() || value.isPyObject() || value.isStorage() || value.isCapsule()) is_replayable_ = false;
        if (recipe_) recipe_->arguments.push_back(value);
        continue;
      }
      if (recipe_) recipe_->arguments.emplace_back();
      if (value.isTensor()) {
        scan_tensor(value.toTensor(), argument, index, -1, is_statistic);
      } else if (value.isList()) {
        scan_list(value, argument, index);
      }
    }
    if (writes_parameter_) is_replayable_ = false;
  }

  void scan_list(const at::IValue& value, const Argument& argument, std::int32_t index) {
    const c10::ArrayRef<at::IValue> elements = value.toListRef();
    if (recipe_) {
      recipe_->lists.push_back({index, static_cast<std::int32_t>(elements.size()), !value.isTensorList()});
    }
    for (std::size_t element = 0; element < elements.size(); ++element) {
      if (elements[element].isTensor()) {
        scan_tensor(elements[element].toTensor(), argument, index, static_cast<std::int32_t>(element), false);
      } else if (elements[element].isList()) {  // lists of lists: collectives have them
        is_replayable_ = false;
        scan_list(elements[element], argument, index);
      }
    }
  }

  void scan_tensor(const at::Tensor& tensor, const Argument& argument, std::int32_t index, std::int32_t element,
                   bool is_statistic) {
    if (!tensor.defined()) {
      if (recipe_) add_stub(nullptr, Stub::Source::kNothing, index, element);
      return;
    }
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (!is_plain(impl)) {
      is_replayable_ = false;
      is_ragged_ |= impl.key_set().has(c10::DispatchKey::NestedTensor);
      if (recipe_) runtime_.give_recipe(std::move(recipe_));  // a stub could not describe it
      for_each_part(impl, [&](const at::Tensor& part) { scan_tensor(part, argument, index, element, is_statistic); });
    }
    if (!has_bytes(impl)) {
      if (impl.device_type() != c10::kCPU) refuse_device(impl.device());
      return;
    }
    if (argument.is_metadata) {
      add_stub(&impl, Stub::Source::kShape, index, element);
      return;
    }
    c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
    work_.input_bytes += static_cast<double>(impl.numel()) * static_cast<double>(impl.itemsize());
    if (impl.is_wrapped_number() && !argument.is_written && add_constant(impl, *storage, index, element)) return;
    if (argument.is_written && impl.requires_grad() && is_autograd_leaf(tensor)) writes_parameter_ = true;
    if (argument.is_overwritten && is_target(impl, storage)) {
      add_target(tensor, storage, index, element);
      return;
    }
    if (storage->nbytes() == 0) {
      add_stub(&impl, Stub::Source::kShape, index, element);
      return;
    }
    Use& use = uses_[static_cast<std::size_t>(use_of(storage))];
    use.is_written |= argument.is_written || is_statistic;
    use.is_statistic |= is_statistic;
    if (!use.handle->is_parameter && impl.requires_grad() && runtime_.engine().is_leaf(use.handle->cell)) {
      use.handle->is_parameter = is_autograd_leaf(tensor) || (tensor.is_view() && is_autograd_leaf(tensor._base()));
    }
    add_stub(&impl, is_statistic ? Stub::Source::kNothing : Stub::Source::kUse, index, element);
    if (recipe_) recipe_->stubs.back().use = use.handle->use;
  }

  void refuse_device(c10::Device device) const {
    if (device.is_cpu() || device.is_meta()) return;
    throw RefusedError(describe_device(info_.name, device.str()));
  }

  static bool is_autograd_leaf(const at::TensorBase& tensor) { return tensor.is_leaf(); }

  // Strided memory on the CPU, and nothing that stands for something else.
  static bool is_plain(const c10::TensorImpl& impl) {
    static constexpr c10::DispatchKeySet kStandIns(
        {c10::DispatchKey::Python, c10::DispatchKey::ZeroTensor, c10::DispatchKey::Functionalize});
    const c10::DispatchKeySet keys = impl.key_set();
    return keys.has(c10::DispatchKey::CPU) && impl.layout() == c10::kStrided && !keys.has_any(kStandIns);
  }

  static bool has_bytes(const c10::TensorImpl& impl) {
    if (!impl.has_storage() || impl.key_set().has(c10::DispatchKey::ZeroTensor)) return false;
    return impl.unsafe_storage().unsafeGetStorageImpl()->device_type() == c10::kCPU && impl.device_type() == c10::kCPU;
  }

  void add_stub(const c10::TensorImpl* impl, Stub::Source source, std::int32_t index, std::int32_t element) {
    if (!recipe_) return;
    Stub& stub = recipe_->stubs.emplace_back();
    stub.source = source;
    stub.argument = index;
    stub.element = element;
    if (impl != nullptr) stub.describe(*impl);
  }

  // A Python number wrapped as a tensor: its value goes into the stub, no cell is needed.
  bool add_constant(const c10::TensorImpl& impl, c10::StorageImpl& storage, std::int32_t index, std::int32_t element) {
    if (runtime_.handle_of(&storage) != nullptr || storage.nbytes() > Stub::kConstantBytes) return false;
    if (impl.storage_offset() != 0 || storage._mutable_data_ptr_no_checks().get() == nullptr) return false;
    add_stub(&impl, Stub::Source::kConstant, index, element);
    if (recipe_) {
      std::memcpy(recipe_->stubs.back().constant.data(), storage._mutable_data_ptr_no_checks().get(), storage.nbytes());
    }
    return true;
  }

  // ------------------------------------------------------------------ targets
  bool is_target(const c10::TensorImpl& impl, c10::StorageImpl* storage) const {
    const std::size_t size = storage->nbytes();
    if (size == 0) return info_.mode == Mode::kTrack;
    if (runtime_.raw_of(storage) == nullptr || runtime_.handle_of(storage) != nullptr) return false;
    if (storage->_mutable_data_ptr_no_checks().get_deleter() != &release_raw) return false;
    return static_cast<std::size_t>(impl.numel()) * impl.itemsize() == size && impl.is_non_overlapping_and_dense();
  }

  void add_target(const at::Tensor& tensor, c10::StorageImpl* storage, std::int32_t index, std::int32_t element) {
    std::int32_t number = find_target(storage);
    if (number < 0) {
      number = static_cast<std::int32_t>(uses_.size());
      uses_.emplace_back();
      uses_.back().target = tensor;
      uses_.back().is_written = true;
    }
    add_stub(tensor.unsafeGetTensorImpl(), Stub::Source::kUse, index, element);
    if (recipe_) recipe_->stubs.back().use = number;
  }

  std::int32_t find_target(const c10::StorageImpl* storage) const {
    for (std::size_t number = 0; number < uses_.size(); ++number) {
      const at::Tensor& target = uses_[number].target;
      if (target.defined() && target.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
        return static_cast<std::int32_t>(number);
      }
    }
    return -1;
  }

  std::int32_t use_of(c10::StorageImpl* storage) {
    Handle* handle = runtime_.handle_of(storage);
    if (handle == nullptr) {
      const std::int32_t target = find_target(storage);  // read as well, after all: its contents count
      handle = runtime_.handle_for(storage);
      if (target >= 0) {
        uses_[target].target = at::Tensor();
        return touch(handle, target);
      }
    }
    if (handle->stamp == stamp_) return handle->use;
    uses_.emplace_back();
    return touch(handle, static_cast<std::int32_t>(uses_.size()) - 1);
  }

  std::int32_t touch(Handle* handle, std::int32_t number) {
    uses_[number].handle = handle;
    handle->stamp = stamp_;
    handle->use = number;
    ++handle->num_calls;
    return number;
  }

  // ------------------------------------------------------------------ before the op
  void decide_replayable() {
    for (const Use& use : uses_) {
      if (use.handle == nullptr) continue;
      if (use.handle->is_exposed && !use.handle->is_parameter) is_replayable_ = false;
      const bool loses_leaf = use.is_written && !use.is_statistic && runtime_.engine().is_leaf(use.handle->cell);
      if (loses_leaf) is_replayable_ = false;  // what a leaf was cannot come back
    }
  }

  // Memory that was written past torch since it was read last is another version, as after an op in place. Where an
  // earlier version is still needed, though, nothing more is recomputed from this one: reading the earlier is an error.
  void remember_shared() {
    for (const Use& use : uses_) {
      if (use.handle == nullptr || use.is_statistic) continue;
      const std::uint64_t before = use.handle->checksum;
      if (Runtime::remember(use.handle)) continue;
      const std::uint64_t now = std::exchange(use.handle->checksum, before);
      try {
        renew(runtime_, use.handle);
        use.handle->checksum = now;
      } catch (const std::exception&) {
        is_replayable_ = false;
      }
    }
  }

  // Copy-on-write: the op must run on the copies that the engine has made.
  void redirect_copies() {
    for (const auto& [cell, spot] : runtime_.engine().copies()) {
      for (const Use& use : uses_) {
        if (use.handle == nullptr || use.cell != cell) continue;
        redirected_.emplace_back(&use, runtime_.data_of(cell));
        runtime_.put(use.handle, runtime_.arena().at(spot.offset));
      }
    }
  }

  void undo_copies() {
    for (const auto& [use, address] : redirected_) {
      if (use->handle->cell == use->cell) runtime_.put(use->handle, address);
    }
    redirected_.clear();
  }

  void prepare_cost() {
    const double guess = work_.input_bytes / 4.0;
    const bool needs_outputs = info_.flops == FlopRule::kConvolution;
    const double flops =
        is_ragged_ ? 0.0 : flops_of(info_, arguments(), info_.arguments.size(), needs_outputs ? 1.0 : guess);
    (needs_outputs ? flops_by_output_ : work_.flops) = flops;
    const double expected = needs_outputs ? flops * guess : flops;
    temper_ = kNsPerFlop * expected > kNsPerByte * work_.input_bytes ? Temper::kExpensive : Temper::kCheap;
  }

  void save_randomness() {
    at::Generator generator = generator_of(arguments(), info_.arguments.size());
    const std::lock_guard<std::mutex> guard(generator.mutex());
    random_before_ = std::make_shared<const RandomState>(*at::check_generator<at::CPUGeneratorImpl>(generator));
    if (is_replayable_) recipe_->random = random_before_;
  }

  // ------------------------------------------------------------------ after the op
  // Whether the kernel has given an address away, or somebody else has given other contents to what it used.
  bool has_leaked() const {
    return num_escapes != escapes_before_ || std::any_of(uses_.begin(), uses_.end(), [](const Use& use) {
             return use.handle != nullptr && !use.handle->is_gone && use.handle->cell != use.cell;
           });
  }

  void collect_outputs() {
    for (std::size_t number = 0; number < uses_.size(); ++number) {
      Use& use = uses_[number];
      if (use.is_statistic || !use.is_written) continue;
      if (use.target.defined()) {
        collect_target(use, static_cast<std::int32_t>(number));
      } else {
        collect_overwritten(use, static_cast<std::int32_t>(number));
      }
    }
    for (std::size_t index = 0; index < info_.num_returns; ++index) {
      const at::IValue& value = stack_[stack_.size() - info_.num_returns + index];
      if (value.isTensor()) {
        collect_returned(value.toTensor(), static_cast<std::int32_t>(index), -1);
      } else if (value.isList()) {
        const c10::ArrayRef<at::IValue> elements = value.toListRef();
        for (std::size_t element = 0; element < elements.size(); ++element) {
          if (!elements[element].isTensor()) continue;
          collect_returned(elements[element].toTensor(), static_cast<std::int32_t>(index),
                           static_cast<std::int32_t>(element));
        }
      }
    }
    work_.flops += flops_by_output_ * work_.output_elements;
  }

  void collect_overwritten(Use& use, std::int32_t number) {
    if (use.handle->is_gone) {  // it was given other memory: a leaf, as no replay could do that to bytes of ours
      is_replayable_ = false;
      return;
    }
    const CellId overwritten = use.handle->cell;  // not the one it began with, where its address was given away
    const online::Cell& cell = runtime_.engine().cell(overwritten);
    work_.output_bytes += static_cast<double>(cell.size);
    // A leaf that nobody could miss stays the cell it is.
    if (!is_replayable_ && cell.producer == kNone && cell.consumers.empty()) return;
    Engine::Output output;
    output.size = cell.size;
    output.overwrites = overwritten;
    use.output = add_output(output, use.handle, {Place::Kind::kOverwrite, number, -1});
  }

  void collect_target(Use& use, std::int32_t number) {
    c10::TensorImpl* impl = use.target.unsafeGetTensorImpl();
    use.output = collect_fresh(*impl, {Place::Kind::kTarget, number, -1});
    if (use.output >= 0) {
      targets_.resize(static_cast<std::size_t>(use.output) + 1, false);
      targets_.back() = true;
    }
    if (use.output < 0) is_replayable_ = false;
    if (!recipe_) return;
    for (Stub& stub : recipe_->stubs) {  // it may have been resized
      if (stub.use == number && stub.source == Stub::Source::kUse) stub.describe(*impl);
    }
  }

  void collect_returned(const at::Tensor& tensor, std::int32_t index, std::int32_t element) {
    if (!tensor.defined()) return;
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const Place place{Place::Kind::kReturn, index, element};
    if (!is_plain(impl)) {
      if (has_bytes(impl)) is_replayable_ = false;
      for_each_part(impl, [&](const at::Tensor& part) {
        is_replayable_ = false;
        if (part.defined() && has_bytes(*part.unsafeGetTensorImpl())) collect_fresh(*part.unsafeGetTensorImpl(), place);
      });
    }
    if (has_bytes(impl)) collect_fresh(impl, place);
  }

  // Raw memory that holds a result becomes an output.
  std::int32_t collect_fresh(const c10::TensorImpl& impl, Place place) {
    c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
    const Runtime::Raw* raw = runtime_.raw_of(storage);
    if (raw == nullptr) return -1;
    const Runtime::Raw taken = runtime_.take_raw(raw);
    Engine::Output output;
    output.size = taken.size;
    output.spot = taken.spot;
    work_.output_bytes += static_cast<double>(taken.size);
    work_.output_elements += static_cast<double>(impl.numel());
    return add_output(output, runtime_.attach(storage), place);
  }

  std::int32_t add_output(const Engine::Output& output, Handle* handle, Place place) {
    outputs_.push_back(output);
    handles_.push_back(handle);
    if (recipe_) recipe_->places.push_back(place);
    return static_cast<std::int32_t>(outputs_.size()) - 1;
  }

  void file(RecordId record) {
    recipe_->uses.resize(uses_.size());
    for (std::size_t number = 0; number < uses_.size(); ++number) {
      Recipe::UsedCell& kept = recipe_->uses[number];
      kept.cell = uses_[number].cell;
      kept.output = uses_[number].output;
      kept.size = kept.output >= 0 ? outputs_[kept.output].size : 0;
      if (kept.output < 0 && kept.cell != kNone && !uses_[number].is_statistic) {
        kept.size = runtime_.engine().cell(kept.cell).size;
      }
    }
    runtime_.keep(record, std::move(recipe_));
  }

  // The running statistics have new values; no record reads the old ones any more.
  void end_statistics() {
    has_statistics_ = false;
    outputs_.clear();
    handles_.clear();
    for (const Use& use : uses_) {
      if (!use.is_statistic || use.handle->is_gone) continue;
      Engine::Output output;
      output.size = runtime_.engine().cell(use.handle->cell).size;
      output.overwrites = use.handle->cell;
      outputs_.push_back(output);
      handles_.push_back(use.handle);
    }
    Engine::Call call;
    call.is_replayable = false;
    finish(call, statistics_);
  }

  RecordId finish(const Engine::Call& call, const c10::SmallVectorImpl<CellId>& inputs) {
    for (Handle* handle : handles_) runtime_.unbind(handle);
    Notes& notes = runtime_.notes();
    if (notes.is_on) write_note(notes.begin(runtime_.engine()), call, inputs);
    const RecordId record = runtime_.engine().end(call, inputs, outputs_, runtime_.scratch_cells());
    const std::vector<CellId>& cells = runtime_.scratch_cells();
    for (std::size_t index = 0; index < outputs_.size(); ++index) runtime_.bind(handles_[index], cells[index]);
    if (notes.is_on) {
      for (const CellId cell : cells) notes.last().outputs.push_back(notes.name(runtime_.engine(), cell));
    }
    return record;
  }

  // The cell that has an input's bytes now.
  CellId present(CellId input) const {
    for (const Use& use : uses_) {
      if (use.cell == input && use.handle != nullptr && use.handle->cell != kNone) return use.handle->cell;
    }
    return input;
  }

  void write_note(Note& note, const Engine::Call& call, const c10::SmallVectorImpl<CellId>& inputs) {
    note.op = &info_;
    note.cost = call.cost;
    note.flags = (call.is_backward ? Note::kBackward : 0) | (call.is_replayable ? Note::kReplayable : 0) |
                 (info_.is_random ? Note::kRandom : 0) | (static_cast<std::int32_t>(temper_) << Note::kTemperShift);
    for (const CellId input : inputs) note.inputs.push_back(runtime_.notes().name_of(present(input)));
    for (std::size_t index = 0; index < outputs_.size(); ++index) {
      const Engine::Output& output = outputs_[index];
      const bool is_target = index < targets_.size() && targets_[index];
      note.overwritten.push_back(output.overwrites == kNone ? -1 : runtime_.notes().name_of(output.overwrites));
      note.sizes.push_back(output.size);
      note.tempers.push_back(static_cast<std::int32_t>(is_target ? Temper::kResident : temper_));
    }
  }
};

}  // namespace lowtide::shim
