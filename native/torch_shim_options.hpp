// The options of a budget, as Python gives them: a dict (src/lowtide/runtime/options.py).
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/engine_config.hpp"
#include "lowtide/policy.hpp"
#include "lowtide/pool.hpp"

namespace lowtide::shim {

namespace py = pybind11;

// In smaller arenas, which no session has, a few values that are held back split what room there is.
inline constexpr std::int64_t kLeastHoldingBytes = 1 << 20;

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

inline online::EngineConfig read_config(Options& options) {
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

}  // namespace lowtide::shim
