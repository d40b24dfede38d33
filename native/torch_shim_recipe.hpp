// How to run an operator again: its arguments with every tensor replaced by a stub that holds no storage.
//
//   add(x, 2.0)   ->   arguments (None, 2.0) + stub {argument 0, use 0, shape, type, keys};  use 0 = cell 17
//
// A use is one storage that the call touches, whichever of its tensors did. Replaying builds a storage over the bytes
// of each use's cell, a tensor over it per stub, sets the thread's state to what it was, and calls the kernel below the
// hook.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/SizesAndStrides.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lowtide/tape.hpp"
#include "torch_shim_schema.hpp"

namespace lowtide::shim {

using torch::jit::Stack;

// The state of a CPU generator: what a random op drew from.
class RandomState {
 public:
  explicit RandomState(at::CPUGeneratorImpl& generator)
      : engine_(generator.engine()), next_float_(generator.next_float_normal_sample()),
        next_double_(generator.next_double_normal_sample()) {}

  void apply_to(at::CPUGeneratorImpl& generator) const {
    generator.set_engine(engine_);
    generator.set_next_float_normal_sample(next_float_);
    generator.set_next_double_normal_sample(next_double_);
  }

 private:
  at::mt19937 engine_;
  std::optional<float> next_float_;
  std::optional<double> next_double_;
};

// The generator that a call draws from: its argument, or torch's own.
inline at::Generator generator_of(const at::IValue* arguments, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    if (arguments[index].isGenerator()) return arguments[index].toGenerator();
  }
  return at::detail::getDefaultCPUGenerator();
}

// While it lives the generator stands where the call found it.
class ReplayedRandomness {
 public:
  ReplayedRandomness(const RandomState& then, at::Generator generator) : generator_(std::move(generator)) {
    const std::lock_guard<std::mutex> guard(generator_.mutex());
    auto& engine = *at::check_generator<at::CPUGeneratorImpl>(generator_);
    now_.emplace(engine);
    then.apply_to(engine);
  }
  ~ReplayedRandomness() {
    const std::lock_guard<std::mutex> guard(generator_.mutex());
    now_->apply_to(*at::check_generator<at::CPUGeneratorImpl>(generator_));
  }
  ReplayedRandomness(const ReplayedRandomness&) = delete;
  ReplayedRandomness& operator=(const ReplayedRandomness&) = delete;

 private:
  at::Generator generator_;
  std::optional<RandomState> now_;
};

// What kernels ask for besides their arguments: torch's default dtype, and what the processor does to denormals.
struct Numerics {
  caffe2::TypeMeta default_type;
  std::uint32_t denormals = 0;

  static Numerics now() { return {c10::get_default_dtype(), denormal_mode()}; }
  bool operator==(const Numerics& other) const {
    return default_type == other.default_type && denormals == other.denormals;
  }
  void apply() const {
    c10::set_default_dtype(default_type);
    set_denormal_mode(denormals);
  }

 private:
#if defined(__SSE__)
  static constexpr std::uint32_t kDenormalBits = 0x8040;  // flush to zero, denormals are zero
  static std::uint32_t denormal_mode() { return _mm_getcsr() & kDenormalBits; }
  static void set_denormal_mode(std::uint32_t mode) { _mm_setcsr((_mm_getcsr() & ~kDenormalBits) | mode); }
#else
  static std::uint32_t denormal_mode() { return 0; }
  static void set_denormal_mode(std::uint32_t) {}
#endif
};

// While it lives they are what they were at the call.
class ReplayedNumerics {
 public:
  explicit ReplayedNumerics(const Numerics& then) : now_(Numerics::now()), is_other_(!(now_ == then)) {
    if (is_other_) then.apply();
  }
  ~ReplayedNumerics() {
    if (is_other_) now_.apply();
  }
  ReplayedNumerics(const ReplayedNumerics&) = delete;
  ReplayedNumerics& operator=(const ReplayedNumerics&) = delete;

 private:
  Numerics now_;
  bool is_other_;
};

// One tensor among the arguments.
struct Stub {
  enum class Source : std::uint8_t {
    kUse,       // bytes of a use
    kConstant,  // a Python number: its value is here
    kShape,     // nothing but shape and type is read
    kNothing,   // left out: running statistics
  };
  Source source = Source::kUse;
  bool is_wrapped_number = false;
  bool requires_grad = false;  // some kernels choose their algorithm by it
  std::int32_t argument = 0;
  std::int32_t element = -1;  // of a list argument
  std::int32_t use = -1;
  std::int64_t storage_offset = 0;
  c10::DispatchKeySet keys;
  caffe2::TypeMeta type;
  c10::impl::SizesAndStrides shape;
  std::array<std::byte, 16> constant{};

  static constexpr std::size_t kConstantBytes = 16;

  void describe(const c10::TensorImpl& tensor) {
    keys = tensor.key_set();
    type = tensor.dtype();
    storage_offset = tensor.storage_offset();
    requires_grad = tensor.requires_grad();
    is_wrapped_number = tensor.is_wrapped_number();
    const c10::IntArrayRef sizes = tensor.sizes();
    shape.resize(sizes.size());
    shape.set_sizes(sizes);
    shape.set_strides(tensor.strides());
  }

  at::Tensor make(c10::Storage storage) const {
    auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys, type);
    impl->set_storage_offset(storage_offset);
    impl->set_sizes_and_strides(shape.sizes_arrayref(), shape.strides_arrayref());
    if (is_wrapped_number) impl->set_wrapped_number(true);
    if (requires_grad) impl->set_requires_grad(true);
    return at::Tensor(std::move(impl));
  }
};

struct ListArgument {
  std::int32_t argument = 0;
  std::int32_t size = 0;
  bool has_optional_elements = false;
};

// Where an output's bytes are once the op has run.
struct Place {
  enum class Kind : std::uint8_t {
    kOverwrite,  // use `index`: it takes over that input's bytes
    kTarget,     // use `index`: memory that came uninitialized and is written as a whole
    kReturn,     // returned value `index`, element `element` of it where that is a list
  };
  Kind kind = Kind::kReturn;
  std::int32_t index = 0;
  std::int32_t element = -1;
};

struct Recipe {
  struct UsedCell {
    online::CellId cell = online::kNone;  // kNone: a target
    std::int32_t output = -1;             // the output that takes over or fills its bytes
    std::int64_t size = 0;                // bytes
  };

  const OpInfo* info = nullptr;
  c10::DispatchKeySet keys;                  // to call the kernel with
  c10::impl::LocalDispatchKeySet thread_keys{c10::impl::PODLocalDispatchKeySet{}};
  bool is_grad_enabled = false;
  Numerics numerics;
  std::vector<at::IValue> arguments;         // tensors left out
  std::vector<ListArgument> lists;
  std::vector<Stub> stubs;
  std::vector<UsedCell> uses;
  std::vector<Place> places;                 // of the outputs
  std::shared_ptr<const RandomState> random;

  void clear() {
    info = nullptr;
    arguments.clear();
    lists.clear();
    stubs.clear();
    uses.clear();
    places.clear();
    random.reset();
  }

  // The stack to call the kernel with; `data` has the address of each use's bytes.
  Stack make_stack(const std::vector<void*>& data) const {
    std::vector<c10::Storage> storages;
    storages.reserve(uses.size());
    for (std::size_t index = 0; index < uses.size(); ++index) {
      storages.push_back(storage_over(data[index], uses[index].size));
    }
    Stack stack(arguments);
    std::vector<std::vector<at::Tensor>> elements(lists.size());
    for (std::size_t index = 0; index < lists.size(); ++index) elements[index].resize(lists[index].size);
    for (const Stub& stub : stubs) {
      at::Tensor tensor = make_tensor(stub, storages);
      if (stub.element < 0) {
        stack[stub.argument] = std::move(tensor);
      } else {
        elements[list_of(stub.argument)][stub.element] = std::move(tensor);
      }
    }
    for (std::size_t index = 0; index < lists.size(); ++index) {
      stack[lists[index].argument] = make_list(lists[index], std::move(elements[index]));
    }
    return stack;
  }

 private:
  static c10::Storage storage_over(void* data, std::int64_t size) {
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), size, c10::DataPtr(data, c10::Device(c10::kCPU)), nullptr, false));
  }

  static at::Tensor make_tensor(const Stub& stub, const std::vector<c10::Storage>& storages) {
    switch (stub.source) {
      case Stub::Source::kUse: return stub.make(storages[static_cast<std::size_t>(stub.use)]);
      case Stub::Source::kConstant: {
        auto* bytes = const_cast<std::byte*>(stub.constant.data());  // never written: Python numbers are constants
        return stub.make(storage_over(bytes, Stub::kConstantBytes));
      }
      case Stub::Source::kShape: return stub.make(storage_over(nullptr, 0));
      case Stub::Source::kNothing: return at::Tensor();
    }
    return at::Tensor();
  }

  std::size_t list_of(std::int32_t argument) const {
    std::size_t index = 0;
    while (lists[index].argument != argument) ++index;
    return index;
  }

  static at::IValue make_list(const ListArgument& list, std::vector<at::Tensor> elements) {
    if (!list.has_optional_elements) return at::IValue(c10::List<at::Tensor>(elements));
    c10::List<std::optional<at::Tensor>> optional;
    optional.reserve(elements.size());
    for (at::Tensor& element : elements) {
      optional.push_back(element.defined() ? std::optional<at::Tensor>(std::move(element)) : std::nullopt);
    }
    return at::IValue(std::move(optional));
  }
};

}  // namespace lowtide::shim
