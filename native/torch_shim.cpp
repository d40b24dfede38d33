// The torch shim: unmodified eager PyTorch inside an arena of a given size. The only file (with its torch_shim_*.hpp)
// that sees torch; compiled at first use, see src/lowtide/runtime/build.py.
//
//   allocations   c10::SetAllocator(kCPU): memory of the thread that entered comes from the arena
//   operators     a boxed kernel on CustomRNGKeyId, below autograd and above the CPU kernels, on by TLS include; what
//                 comes before it (sparse, nested) is wrapped while a budget is on
//   evictions     a storage's DataPtr is swapped for a null one; views, saved tensors and Python see the same storage
//
// How each of these was found to work on torch 2.13: docs/decisions/operator-hook.md.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_shim_call.hpp"
#include "torch_shim_closing.hpp"
#include "torch_shim_guest.hpp"
#include "torch_shim_mutex.hpp"
#include "torch_shim_parts.hpp"
#include "torch_shim_replay.hpp"
#include "torch_shim_runtime.hpp"
#include "torch_shim_signals.hpp"
#include "torch_shim_threads.hpp"

namespace lowtide::shim {
namespace {

// In smaller arenas, which no session has, a few values that are held back split what room there is.
constexpr std::int64_t kLeastHoldingBytes = 1 << 20;

// What is on. Leaked on purpose: tensors may die after every static.
struct Shim {
  c10::Allocator* outside = nullptr;    // the allocator that was there before
  std::unique_ptr<Runtime> runtime;     // of the budget that is on
  Graveyard graveyard;
  std::vector<std::unique_ptr<Runtime>> retired;  // budgets that are over; a few bytes each
  std::vector<online::Event> events;
  Interrupts interrupts;
  PyObject* listener = nullptr;         // touched with the GIL
  PyObject* alarm = nullptr;            // likewise
  std::vector<c10::RegistrationHandleRAII> registrations;
  std::vector<c10::RegistrationHandleRAII> shields;
  std::size_t num_registered_ops = 0;
};

Shim& shim() {
  static auto* instance = new Shim;
  return *instance;
}

// ---------------------------------------------------------------------------------------------------- memory
class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (Runtime* runtime = inside()) {
      const Lock lock(shim_mutex());
      return runtime->allocate(size);
    }
    if (is_on.load(std::memory_order_relaxed)) count_foreign(size);
    return shim().outside->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

 private:
  static void count_foreign(std::size_t size) {
    const Lock lock(shim_mutex());
    if (!shim().runtime) return;
    ++shim().runtime->stats().num_foreign;
    shim().runtime->stats().bytes_foreign += static_cast<std::int64_t>(size);
  }
};

}  // namespace

void release_raw(void* pointer) {
  if (pointer == nullptr) return;
  Shim& all = shim();
  {
    const Lock lock(shim_mutex());
    if (all.runtime && all.runtime->contains(pointer)) return all.runtime->free_raw(pointer);
    if (all.graveyard.release(pointer)) return;
  }
  if (const c10::DeleterFnPtr deleter = all.outside->raw_deleter()) deleter(pointer);
}

void release_handle(void* context) {
  const Lock lock(shim_mutex());
  auto* handle = static_cast<Handle*>(context);
  handle->runtime->storage_gone(handle);
}

namespace {

// ---------------------------------------------------------------------------------------------------- operators
[[noreturn]] void throw_translated(Runtime& runtime, const OpInfo& info) {
  try {
    throw;
  } catch (const online::OutOfMemory& error) {
    if (runtime.holdings().empty()) runtime.note_holdings();
    throw OutOfMemoryError(describe(error, info.name));
  } catch (const online::Thrashing& error) {
    runtime.note_holdings();
    throw OutOfMemoryError(describe(error, info.name, runtime.engine().config().capacity));
  }
}

// False: a signal waits to be handled first, and nothing has happened.
bool begin(Runtime& runtime, const OpInfo& info, Call& call) {
  try {
    const Runtime::Waiting waiting(runtime);
    call.begin();
    return true;
  } catch (const Interrupted&) {
    return false;
  } catch (...) {
    throw_translated(runtime, info);
  }
}

bool try_tracked(Runtime& runtime, const OpInfo& info, c10::DispatchKeySet below, Stack& stack, UniqueLock& lock,
                 bool is_shield, const c10::SafeKernelFunction* kernel) {
  Call call(runtime, info, below, stack, kernel);
  if (!begin(runtime, info, call)) return false;
  const auto execute = [&] {
    lock.unlock();
    try {
      is_shield ? call.execute_shielded() : call.execute();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  };
  try {
    for (bool is_done = false; !is_done;) {
      try {
        execute();
        is_done = true;
      } catch (const OutOfMemoryError&) {
        if (is_shield || !call.make_way()) throw;
      }
    }
  } catch (...) {
    call.abort();
    throw;
  }
  call.end();
  return true;
}

void run_tracked(Runtime& runtime, const OpInfo& info, c10::DispatchKeySet below, Stack& stack, UniqueLock& lock,
                 bool is_shield = false, const c10::SafeKernelFunction* kernel = nullptr) {
  while (!try_tracked(runtime, info, below, stack, lock, is_shield, kernel)) {
    lock.unlock();
    Interrupts::handle_now();
    lock.lock();
    if (inside() != &runtime) throw std::runtime_error("lowtide: a signal's handler has left the budget within an op");
  }
}

void run_guest(Runtime& runtime, const OpInfo& info, const c10::OperatorHandle& op, c10::DispatchKeySet below,
               Stack& stack, UniqueLock& lock, const c10::SafeKernelFunction* kernel = nullptr) {
  GuestCall call(runtime, info, stack);
  try {
    const Visit visit(runtime);
    call.begin();
  } catch (...) {
    throw_translated(runtime, info);
  }
  lock.unlock();
  try {
    const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
    kernel == nullptr ? op.redispatchBoxed(below, &stack) : kernel->callBoxed(op, below, &stack);
  } catch (...) {
    lock.lock();
    call.end();
    throw;
  }
  lock.lock();
  call.end();
}

// In a thread that has not entered the budget, or in the kernel of a foreign op.
void hook_of_guest(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
  UniqueLock lock(shim_mutex());
  Runtime* runtime = shim().runtime.get();
  if (!is_on || runtime == nullptr) {  // the budget is over
    lock.unlock();
    c10::impl::tls_set_dispatch_key_included(kHookKey, false);
    return op.redispatchBoxed(below, stack);
  }
  const OpInfo& info = runtime->ops().of(op);
  if (info.mode != Mode::kPass) return run_guest(*runtime, info, op, below, *stack, lock);
  lock.unlock();
  const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
  op.redispatchBoxed(below, stack);
}

// Without the lock: whoever has the GIL may be waiting for it.
void tell(const std::vector<Told>& told) {
  const pybind11::gil_scoped_acquire gil;
  if (shim().listener == nullptr) return;
  try {
    pybind11::list all;
    for (const Told& one : told) {
      all.append(pybind11::make_tuple(one.kind, one.cell, one.size, one.op == nullptr ? std::string() : one.op->name));
    }
    pybind11::reinterpret_borrow<pybind11::object>(shim().listener)(all);
  } catch (pybind11::error_already_set& error) {
    error.discard_as_unraisable("lowtide's on_event");
  }
}

// Likewise.
void sound_alarm() {
  const pybind11::gil_scoped_acquire gil;
  if (shim().alarm == nullptr) return;
  try {
    pybind11::reinterpret_borrow<pybind11::object>(shim().alarm)();
  } catch (pybind11::error_already_set& error) {
    error.discard_as_unraisable("lowtide's warning");
  }
}

// After an op: what must not happen under the lock.
void clear_up(Runtime& runtime, UniqueLock& lock) {
  runtime.sweep_externals();
  const auto dropped = runtime.take_dropped();
  const auto told = runtime.has_told() ? runtime.take_told() : std::vector<Told>();
  const bool is_alarming = runtime.has_begun_to_thrash();
  lock.unlock();
  if (!told.empty()) tell(told);
  if (is_alarming) sound_alarm();
}

void hook(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kHookKey);
  Runtime* runtime = inside();
  if (runtime == nullptr || is_in_foreign_kernel) return hook_of_guest(op, below, stack);
  if (Interrupts::is_pending()) Interrupts::handle_now();
  UniqueLock lock(shim_mutex());
  const OpInfo& info = runtime->ops().of(op);
  if (info.mode == Mode::kPass) {
    ++runtime->stats().num_passed;
    lock.unlock();
    const c10::impl::ExcludeDispatchKeyGuard below_the_hook(kHookKey);
    return op.redispatchBoxed(below, stack);
  }
  run_tracked(*runtime, info, below, *stack, lock);
  clear_up(*runtime, lock);
}

// ---------------------------------------------------------------------------------------------------- before the hook
// The kernels of a key that comes before the hook's, by operator.
template <c10::DispatchKey key>
std::unordered_map<const void*, c10::SafeKernelFunction>& kernels_before() {
  static auto* kernels = new std::unordered_map<const void*, c10::SafeKernelFunction>;
  return *kernels;
}

// In the place of one of them, while a budget is on.
template <c10::DispatchKey key>
void wrap(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::SafeKernelFunction& kernel = kernels_before<key>().at(&op.schema());
  const bool is_below = c10::impl::tls_is_dispatch_key_excluded(kHookKey);  // in another kernel
  if (is_below || !c10::impl::tls_is_dispatch_key_included(kHookKey)) return kernel.callBoxed(op, keys, stack);
  UniqueLock lock(shim_mutex());
  Runtime* runtime = shim().runtime.get();
  if (!is_on || runtime == nullptr) {
    lock.unlock();
    return kernel.callBoxed(op, keys, stack);
  }
  const OpInfo& info = runtime->ops().of(op);
  if (inside() == nullptr || is_in_foreign_kernel) return run_guest(*runtime, info, op, keys, *stack, lock, &kernel);
  run_tracked(*runtime, info, keys, *stack, lock, false, &kernel);
  clear_up(*runtime, lock);
}

template <c10::DispatchKey key>
void wrap_kernel(c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(key) || op.isKernelFallthroughKernel(key)) return;
  kernels_before<key>().erase(&op.schema());
  kernels_before<key>().emplace(&op.schema(), op.getComputedKernelForDispatchKey(key));
  shim().shields.push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), key, c10::KernelFunction::makeFromBoxedFunction<&wrap<key>>(), std::nullopt, nullptr,
      "lowtide"));
}

void wrap_kernels() {
  class Silent final : public c10::WarningHandler {  // torch warns of every kernel that takes another's place
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasSchema()) continue;
    wrap_kernel<c10::DispatchKey::SparseCPU>(*op);
    wrap_kernel<c10::DispatchKey::SparseCsrCPU>(*op);
    wrap_kernel<c10::DispatchKey::NestedTensorCPU>(*op);
    wrap_kernel<c10::DispatchKey::MkldnnCPU>(*op);
  }
}

// For composites that read bytes themselves, above autograd: their inputs are resident and locked while they run.
void shield(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  Runtime* runtime = inside();
  if (runtime == nullptr) return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  UniqueLock lock(shim_mutex());
  run_tracked(*runtime, runtime->ops().of(op), keys, *stack, lock, true);
}

// Only while a budget is on: a kernel at an autograd key changes what torch's tracers see.
void raise_shields() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, overload] : detail::kShielded) {
    const auto op = dispatcher.findSchema({name, overload});
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU)) continue;
    shim().shields.push_back(dispatcher.registerImpl(op->operator_name(), c10::DispatchKey::AutogradCPU,
                                                     c10::KernelFunction::makeFromBoxedFunction<&shield>(),
                                                     std::nullopt, nullptr, "lowtide"));
  }
}

// Kernels for the Composite* keys win over a fallback: those ops get the hook one by one.
bool hides_from_fallback(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  if (!op.hasSchema() || op.hasKernelForDispatchKey(kHookKey)) return false;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd)) return true;
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional)) return true;
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         op.hasKernelForDispatchKey(DispatchKey::CPU);
}

// Views and the like: the dispatcher skips the hook for them, as if it were not there. Only calls are spared that way:
// kernels at BackendSelect choose the next kernel themselves.
bool is_passed(const c10::OperatorHandle& op) {
  return op.hasSchema() && !op.hasKernelForDispatchKey(kHookKey) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect) && read_schema(op).mode == Mode::kPass;
}

void register_hooks() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  Shim& all = shim();
  const std::vector<c10::OperatorName> names = dispatcher.getAllOpNames();
  if (names.size() == all.num_registered_ops) return;
  if (all.num_registered_ops == 0) {
    all.registrations.push_back(
        dispatcher.registerFallback(kHookKey, c10::KernelFunction::makeFromBoxedFunction<&hook>(), "lowtide"));
  }
  for (const c10::OperatorName& name : names) {
    const auto op = dispatcher.findOp(name);
    if (op && is_passed(*op)) {
      all.registrations.push_back(dispatcher.registerImpl(name, kHookKey, c10::KernelFunction::makeFallthrough(),
                                                          std::nullopt, nullptr, "lowtide"));
      continue;
    }
    if (!op || !hides_from_fallback(*op)) continue;
    all.registrations.push_back(dispatcher.registerImpl(name, kHookKey,
                                                        c10::KernelFunction::makeFromBoxedFunction<&hook>(),
                                                        std::nullopt, nullptr, "lowtide"));
  }
  all.num_registered_ops = names.size();
}

void install() {
  Shim& all = shim();
  if (all.outside == nullptr) {
    all.outside = c10::GetAllocator(c10::kCPU);
    c10::SetAllocator(c10::kCPU, new ArenaAllocator, 255);
  }
  register_hooks();
}

// ---------------------------------------------------------------------------------------------------- Python
namespace py = pybind11;

// The options in a dict, each once; a name that is left over is an error.
class Options {
 public:
  explicit Options(const py::dict& given) : left_(given.attr("copy")()) {}

  template <typename T>
  T take(const char* name, T fallback) {
    if (!left_.contains(name)) return fallback;
    T value = left_[name].cast<T>();
    left_.attr("pop")(name);
    return value;
  }

  template <typename T>
  T choose(const char* name, const std::vector<std::pair<std::string, T>>& choices) {
    const std::string wanted = take<std::string>(name, choices.front().first);
    std::string known;
    for (const auto& [text, value] : choices) {
      if (text == wanted) return value;
      known += (known.empty() ? "" : ", ") + text;
    }
    throw py::value_error(std::string(name) + " '" + wanted + "' is none of " + known);
  }

  void finish() const {
    if (left_.empty()) return;
    throw py::value_error("unknown option of the torch shim: " + py::str(left_.begin()->first).cast<std::string>());
  }

 private:
  py::dict left_;
};

online::EngineConfig read_config(Options& options) {
  online::EngineConfig config;
  config.capacity = options.take<std::int64_t>("capacity", 0) / 4096 * 4096;
  config.alignment = options.take("alignment", config.alignment);
  config.small_bytes = options.take("small_bytes", config.small_bytes);
  config.slab_bytes = options.take("slab_bytes", config.slab_bytes);
  config.method = options.choose<online::Method>(
      "method", {{"window", online::Method::kWindow}, {"one_by_one", online::Method::kOneByOne}});
  config.score = options.choose<online::Score>("score", {{"coop", online::Score::kCoop},
                                                         {"dtr", online::Score::kDtr},
                                                         {"dte", online::Score::kDte},
                                                         {"lru", online::Score::kLru},
                                                         {"size", online::Score::kSize},
                                                         {"random", online::Score::kRandom},
                                                         {"dtr_neighborhood", online::Score::kDtrNeighborhood},
                                                         {"dtr_eq", online::Score::kDtrEq},
                                                         {"local", online::Score::kLocal},
                                                         {"msps", online::Score::kMsps}});
  config.surplus = options.take("surplus", config.surplus);
  config.is_copy_on_write = options.take("is_copy_on_write", config.is_copy_on_write);
  config.is_two_tiered = options.take("is_two_tiered", config.is_two_tiered);
  config.keeps_dead = options.take("keeps_dead", config.keeps_dead);
  config.holds_awaited = options.take("holds_awaited", config.capacity >= kLeastHoldingBytes);
  config.compaction = options.choose<online::Compaction>("compaction",
                                                         {{"last_resort", online::Compaction::kLastResort},
                                                          {"never", online::Compaction::kNever},
                                                          {"when_cheaper", online::Compaction::kWhenCheaper}});
  config.max_depth = options.take("max_depth", config.max_depth);
  config.seed = options.take("seed", config.seed);
  if (options.take("has_one_end", false)) {
    for (pool::Place& place : config.places) place = {pool::End::kLow, pool::Fit::kBest};
  }
  pool::Place& cheap = config.places[static_cast<std::size_t>(online::Temper::kCheap)];
  cheap.end = options.choose<pool::End>(
      "cheap_end", {{"default", cheap.end}, {"low", pool::End::kLow}, {"high", pool::End::kHigh}});
  cheap.fit = options.choose<pool::Fit>(
      "cheap_fit", {{"default", cheap.fit}, {"best", pool::Fit::kBest}, {"first", pool::Fit::kFirst}});
  if (config.capacity <= 0) throw py::value_error("a budget below 4096 bytes holds nothing");
  return config;
}

void enter(const py::dict& given) {
  install();
  Options options(given);
  const online::EngineConfig config = read_config(options);
  const double thrash_limit = options.take("thrash_limit", 20.0);
  const bool has_events = options.take("has_events", false);
  const bool is_main_thread = options.take("is_main_thread", false);
  options.finish();
  if (OutOfMemoryError::type == nullptr) {
    OutOfMemoryError::type =
        py::object(py::module_::import("lowtide.runtime.errors").attr("LowtideOutOfMemory")).release().ptr();
  }
  RefusedError::type = py::object(py::module_::import("lowtide.errors").attr("InputError")).release().ptr();
  const Lock lock(shim_mutex());
  Shim& all = shim();
  if (all.runtime) throw std::runtime_error("a budget is on already: leave it before entering another");
  all.runtime = std::make_unique<Runtime>(config, thrash_limit, all.outside);
  all.events.clear();
  if (has_events) {
    all.runtime->engine().set_log(&all.events);
    all.runtime->keep_notes();
  }
  membership = {all.runtime.get(), ++epoch};
  is_on = true;
  raise_shields();
  wrap_kernels();
  if (is_main_thread) all.interrupts.install();
  c10::impl::tls_set_dispatch_key_included(kHookKey, true);
}

void leave() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> dropped;
  const Lock lock(shim_mutex());
  Shim& all = shim();
  if (!all.runtime) throw std::runtime_error("no budget is on");
  all.runtime->stop_notes();
  all.runtime->listen(false);
  Py_CLEAR(all.listener);
  Py_CLEAR(all.alarm);
  all.interrupts.uninstall();
  c10::impl::tls_set_dispatch_key_included(kHookKey, false);
  std::int64_t num_pointers = 0;
  {
    const Visit visit(*all.runtime);  // this may be another thread than the one that entered
    num_pointers = all.runtime->close();
  }
  membership = {};
  ++epoch;
  is_on = false;
  all.shields.clear();
  dropped = all.runtime->take_dropped();
  all.graveyard.keep(all.runtime->take_arena(), num_pointers);
  all.retired.clear();  // the last one is kept for its statistics
  all.retired.push_back(std::move(all.runtime));
}

Runtime& last_runtime() {
  Shim& all = shim();
  if (all.runtime) return *all.runtime;
  if (all.retired.empty()) throw std::runtime_error("no budget has been on");
  return *all.retired.back();
}

py::dict stats() {
  const Lock lock(shim_mutex());
  Runtime& runtime = last_runtime();
  const online::EngineStats& engine = runtime.engine().stats();
  const ShimStats& own = runtime.stats();
  py::dict all;
  all["capacity"] = runtime.engine().config().capacity;
  all["resident_bytes"] = engine.resident_bytes;
  all["peak_bytes"] = engine.peak_bytes;
  all["high_water"] = runtime.engine().memory().high_water();
  all["num_calls"] = engine.num_calls;
  all["num_recomputes"] = engine.num_recomputes;
  all["num_evictions"] = engine.num_evictions;
  all["bytes_evicted"] = engine.bytes_evicted;
  all["num_searches"] = engine.num_searches;
  all["search_seconds"] = engine.search_seconds;
  all["fragmentation_sum"] = engine.fragmentation_sum;
  all["num_compactions"] = engine.num_compactions;
  all["bytes_moved"] = engine.bytes_moved;
  all["num_frozen"] = engine.num_frozen;
  all["base_cost"] = engine.base_cost;
  all["recompute_cost"] = engine.recompute_cost;
  all["num_cells"] = runtime.engine().tape().num_cells();
  all["num_records"] = runtime.engine().tape().num_records();
  all["num_tracked"] = own.num_tracked;
  all["num_passed"] = own.num_passed;
  all["num_unreplayable"] = own.num_unreplayable;
  all["num_retries"] = own.num_retries;
  all["num_externals"] = own.num_externals;
  all["num_foreign"] = own.num_foreign;
  all["bytes_foreign"] = own.bytes_foreign;
  all["num_survivors"] = own.num_survivors;
  all["num_restored"] = own.num_restored;
  all["num_lost"] = own.num_lost;
  all["recompute_seconds"] = own.recompute_seconds;
  all["wait_seconds"] = own.wait_seconds;
  all["peak_demand_bytes"] = engine.peak_demand_bytes;
  all["has_thrashed"] = own.has_thrashed;
  all["num_kept_arenas"] = shim().graveyard.num_arenas();
  all["kept_arena_bytes"] = shim().graveyard.bytes();
  return all;
}

// What the log's numbers stand for: (op, inputs, outputs, overwritten, sizes, tempers, cost, flags) by call.
py::list notes() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const Note& note : last_runtime().notes().all()) {
    all.append(py::make_tuple(note.op == nullptr ? std::string() : note.op->name, note.inputs, note.outputs,
                              note.overwritten, note.sizes, note.tempers, note.cost, note.flags));
  }
  return all;
}

// Called now and then with a list of (kind, cell, bytes, op); None: nobody is.
void set_listener(const py::object& callback) {
  const Lock lock(shim_mutex());
  if (!shim().runtime) throw std::runtime_error("no budget is on");
  Py_XDECREF(shim().listener);
  shim().listener = callback.is_none() ? nullptr : py::object(callback).release().ptr();
  shim().runtime->listen(shim().listener != nullptr);
}

// Called once, soon after ops have begun to wait for recomputations for longer than all else takes; None: nobody is.
void set_alarm(const py::object& callback) {
  const Lock lock(shim_mutex());
  if (!shim().runtime) throw std::runtime_error("no budget is on");
  Py_XDECREF(shim().alarm);
  shim().alarm = callback.is_none() ? nullptr : py::object(callback).release().ptr();
}

// (address of the storage, bytes, op) of all that could not be evicted when memory ran out last.
py::list unevictable() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const Holding& holding : last_runtime().holdings()) {
    all.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(holding.storage), holding.size, holding.op));
  }
  return all;
}

py::list events() {
  const Lock lock(shim_mutex());
  py::list all;
  for (const online::Event& event : shim().events) {
    all.append(py::make_tuple(online::name_of(event.kind), event.id, event.offset, event.size));
  }
  return all;
}

// The handle of a tensor's storage in the budget that is on; null where it has none or needs none.
Handle* handle_of_tensor(const at::Tensor& tensor) {
  Shim& all = shim();
  if (!all.runtime || !tensor.defined()) return nullptr;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage()) return nullptr;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (Handle* handle = all.runtime->handle_of(storage)) return handle;
  return all.runtime->raw_of(storage) == nullptr ? nullptr : all.runtime->handle_for(storage);
}

// False: a signal waits to be handled first.
template <typename Action>
bool try_to_act_on(const at::Tensor& tensor, Action action) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr) return true;
  Runtime& runtime = *shim().runtime;
  static const char* kWhere = "a read from Python";
  try {
    const Visit visit(runtime);
    const Runtime::Waiting waiting(runtime);
    runtime.limit_recompute();
    if constexpr (std::is_invocable_v<Action, Handle*>) {
      action(handle);
    } else {
      action(runtime.engine(), handle->cell);
    }
    return true;
  } catch (const Interrupted&) {
    return false;
  } catch (const online::OutOfMemory& error) {
    throw OutOfMemoryError(describe(error, kWhere));
  } catch (const online::Thrashing& error) {
    throw OutOfMemoryError(describe(error, kWhere, runtime.engine().config().capacity));
  }
}

template <typename Action>
void act_on(const at::Tensor& tensor, Action action) {
  ++num_escapes;
  const py::gil_scoped_release no_gil;
  while (!try_to_act_on(tensor, action)) Interrupts::handle_now();
}

void pin(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) { engine.pin(cell); });
}

void unpin(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) {
    if (engine.cell(cell).pins > 0) engine.unpin(cell);
  });
}

// Around a fork: nobody else may be in the middle of a change then.
void lock_for_fork() { shim_mutex().lock(); }
void unlock_after_fork() { shim_mutex().unlock(); }

// As pin, for good: its bytes may be written past the dispatcher.
void expose_tensor(const at::Tensor& tensor) {
  act_on(tensor, [](Handle* handle) { expose(*handle->runtime, handle); });
  const Lock lock(shim_mutex());
  if (!shim().runtime || !tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) return;
  Handle* handle = shim().runtime->known(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  if (handle == nullptr || handle->external == nullptr || handle->is_shared) return;
  handle->is_shared = true;  // memory from outside, unwatched so far: from now on it is compared with what is there
  Runtime::remember(handle);
}

// In a forked child: it has a copy of its parent's arena, from which it reads as a guest; what it makes lies outside.
void abandon() {
  new (&shim_mutex()) RecursiveMutex;  // held by a thread with another number
  membership = {};
}

void materialize(const at::Tensor& tensor) {
  act_on(tensor, [](Engine& engine, CellId cell) { engine.materialize(cell); });
}

// Evict by hand: for tests. Whether it could be.
bool evict(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr || !shim().runtime->engine().may_evict(handle->cell)) return false;
  shim().runtime->engine().evict(handle->cell);
  return true;
}

std::optional<std::int64_t> cell_of(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  if (handle == nullptr) return std::nullopt;
  return handle->cell;
}

bool is_resident(const at::Tensor& tensor) {
  const Lock lock(shim_mutex());
  Handle* handle = handle_of_tensor(tensor);
  return handle == nullptr || shim().runtime->engine().cell(handle->cell).is_resident();
}

}  // namespace
}  // namespace lowtide::shim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace lowtide::shim;
  module.doc() = "PyTorch inside an arena: allocator, operator hook, evictions and replays. See lowtide.runtime.";
  module.def("enter", torch::wrap_pybind_function(&enter), pybind11::arg("config"));
  module.def("leave", torch::wrap_pybind_function(&leave));
  module.def("stats", &stats);
  module.def("events", &events);
  module.def("notes", &notes);
  module.def("unevictable", &unevictable);
  module.def("set_listener", &set_listener, pybind11::arg("callback"));
  module.def("set_alarm", &set_alarm, pybind11::arg("callback"));
  module.def("pin", torch::wrap_pybind_function(&pin), pybind11::arg("tensor"));
  module.def("unpin", torch::wrap_pybind_function(&unpin), pybind11::arg("tensor"));
  module.def("expose", torch::wrap_pybind_function(&expose_tensor), pybind11::arg("tensor"));
  module.def("abandon", &abandon);
  module.def("lock_for_fork", &lock_for_fork);
  module.def("unlock_after_fork", &unlock_after_fork);
  module.def("join_thread", &join_thread);
  module.def("join_other_threads", &join_other_threads);
  module.def("materialize", torch::wrap_pybind_function(&materialize), pybind11::arg("tensor"));
  module.def("evict", &evict, pybind11::arg("tensor"));
  module.def("cell_of", &cell_of, pybind11::arg("tensor"));
  module.def("is_resident", &is_resident, pybind11::arg("tensor"));
  module.def("is_active", [] { return is_on.load(); });
  module.def("version", [] { return std::string("1"); });
}
