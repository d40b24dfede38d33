// lowtide._search: the native core of the planners, as flat lists in and out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "lowtide/greedy.hpp"
#include "lowtide/order.hpp"
#include "lowtide/portfolio.hpp"
#include "lowtide/problem.hpp"
#include "lowtide/profile.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Int32s = std::vector<std::int32_t>;
using Int64s = std::vector<std::int64_t>;

lowtide::Problem make_problem(Int64s duration, Int64s recompute_duration, Int64s workspace_bytes,
                              Int64s recompute_workspace_bytes, Int32s last_stage, Int32s read_starts, Int32s reads,
                              Int32s recompute_read_starts, Int32s recompute_reads, Int64s size_bytes, Int32s producer,
                              std::vector<std::uint8_t> is_recreated, std::vector<std::uint8_t> is_kept) {
  lowtide::Problem problem;
  problem.duration = std::move(duration);
  problem.recompute_duration = std::move(recompute_duration);
  problem.workspace_bytes = std::move(workspace_bytes);
  problem.recompute_workspace_bytes = std::move(recompute_workspace_bytes);
  problem.last_stage = std::move(last_stage);
  problem.reads = {std::move(read_starts), std::move(reads)};
  problem.recompute_reads = {std::move(recompute_read_starts), std::move(recompute_reads)};
  problem.size_bytes = std::move(size_bytes);
  problem.producer = std::move(producer);
  problem.is_recreated = std::move(is_recreated);
  problem.is_kept = std::move(is_kept);
  problem.finish();
  return problem;
}

std::pair<Int32s, Int32s> columns(const std::vector<lowtide::Recomputation>& plan) {
  std::pair<Int32s, Int32s> result;
  for (const auto& r : plan) {
    result.first.push_back(r.stage);
    result.second.push_back(r.node);
  }
  return result;
}

void insert_checked(lowtide::Profile& profile, std::int32_t stage, std::int32_t node) {
  if (!profile.may_insert(stage, node, INT64_MAX)) {
    throw lowtide::ProblemError("node " + std::to_string(node) + " cannot be recomputed in stage " +
                                std::to_string(stage));
  }
  profile.insert(stage, node);
}

// The inverse of columns().
std::vector<lowtide::Recomputation> recomputations(const lowtide::Problem& problem, const Int32s& stages,
                                                   const Int32s& nodes) {
  if (stages.size() != nodes.size()) throw lowtide::ProblemError("stages and nodes differ in length");
  std::vector<lowtide::Recomputation> plan;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (nodes[i] < 0 || nodes[i] >= problem.num_nodes() || stages[i] < 0 || stages[i] >= problem.num_nodes()) {
      throw lowtide::ProblemError("node " + std::to_string(nodes[i]) + " cannot be recomputed in stage " +
                                  std::to_string(stages[i]));
    }
    plan.push_back({stages[i], nodes[i]});
  }
  return plan;
}

Int64s load_bytes(const lowtide::Problem& problem, const Int32s& stages, const Int32s& nodes) {
  lowtide::Profile profile(problem, 0);
  for (const auto r : recomputations(problem, stages, nodes)) insert_checked(profile, r.stage, r.node);
  return profile.load_bytes();
}

// Python callables as hooks of a search that runs without the GIL; None: nobody to tell or to ask.
std::function<void(const std::vector<lowtide::Recomputation>&)> teller(const nb::object& on_better) {
  if (on_better.is_none()) return {};
  return [&on_better](const std::vector<lowtide::Recomputation>& plan) {
    nb::gil_scoped_acquire held;
    const auto [stages, nodes] = columns(plan);
    on_better(stages, nodes);
  };
}

std::function<bool()> asker(const nb::object& should_stop) {
  return [&should_stop] {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C where nobody else listens
    return !should_stop.is_none() && nb::cast<bool>(should_stop());
  };
}

lowtide::GreedyOutcome run_greedy(const lowtide::Problem& problem, std::int64_t budget_bytes, std::uint64_t seed,
                                  std::optional<std::int64_t> max_copies, std::int64_t max_work,
                                  std::optional<double> seconds, nb::object on_better, nb::object should_stop) {
  lowtide::GreedyOptions options;
  options.budget_bytes = budget_bytes;
  options.seed = seed;
  options.max_work = max_work;
  if (max_copies) options.max_copies = *max_copies;
  if (seconds) options.seconds = *seconds;
  lowtide::GreedyHooks hooks{asker(should_stop), teller(on_better)};
  nb::gil_scoped_release released;
  return lowtide::Greedy(problem, options, hooks).run();
}

lowtide::PortfolioOutcome run_search(const lowtide::Problem& problem, std::int64_t budget_bytes, std::uint64_t seed,
                                     std::int32_t threads, std::optional<std::int64_t> max_copies,
                                     std::int64_t max_work, std::optional<double> seconds, nb::object on_better,
                                     nb::object should_stop, const std::vector<std::pair<Int32s, Int32s>>& starts) {
  lowtide::PortfolioOptions options;
  for (const auto& [stages, nodes] : starts) options.starts.push_back(recomputations(problem, stages, nodes));
  options.budget_bytes = budget_bytes;
  options.seed = seed;
  options.num_threads = threads;
  options.max_work = max_work;
  if (max_copies) options.max_copies = *max_copies;
  if (seconds) options.seconds = *seconds;
  lowtide::PortfolioHooks hooks{asker(should_stop), teller(on_better)};
  nb::gil_scoped_release released;
  return lowtide::Portfolio(problem, options, hooks).run();
}

lowtide::OrderOutcome run_order(const lowtide::Problem& problem, std::int64_t budget_bytes, std::uint64_t seed,
                                std::int64_t max_work, const Int32s& firsts, const Int32s& seconds,
                                nb::object should_stop) {
  if (firsts.size() != seconds.size()) throw lowtide::ProblemError("firsts and seconds differ in length");
  lowtide::OrderOptions options;
  options.budget_bytes = budget_bytes;
  options.seed = seed;
  options.max_work = max_work;
  std::vector<std::pair<std::int32_t, std::int32_t>> precedence;
  for (std::size_t i = 0; i < firsts.size(); ++i) precedence.emplace_back(firsts[i], seconds[i]);
  const auto ask = asker(should_stop);
  nb::gil_scoped_release released;
  return lowtide::Order(problem, options, precedence, ask).run();
}

}  // namespace

NB_MODULE(_search, module) {
  module.doc() = "Native core of the planners: memory profile and greedy search over flat arrays.";
  nb::exception<lowtide::ProblemError>(module, "ProblemError", PyExc_ValueError);

  nb::class_<lowtide::Problem>(module, "Problem")
      .def("__init__",
           [](lowtide::Problem* self, Int64s duration, Int64s recompute_duration, Int64s workspace_bytes,
              Int64s recompute_workspace_bytes, Int32s last_stage, Int32s read_starts, Int32s reads,
              Int32s recompute_read_starts, Int32s recompute_reads, Int64s size_bytes, Int32s producer,
              std::vector<std::uint8_t> is_recreated, std::vector<std::uint8_t> is_kept) {
             new (self) lowtide::Problem(make_problem(
                 std::move(duration), std::move(recompute_duration), std::move(workspace_bytes),
                 std::move(recompute_workspace_bytes), std::move(last_stage), std::move(read_starts), std::move(reads),
                 std::move(recompute_read_starts), std::move(recompute_reads), std::move(size_bytes),
                 std::move(producer), std::move(is_recreated), std::move(is_kept)));
           },
           nb::kw_only(), "duration"_a, "recompute_duration"_a, "workspace_bytes"_a, "recompute_workspace_bytes"_a,
           "last_stage"_a, "read_starts"_a, "reads"_a, "recompute_read_starts"_a, "recompute_reads"_a, "size_bytes"_a,
           "producer"_a, "is_recreated"_a, "is_kept"_a)
      .def_prop_ro("num_nodes", &lowtide::Problem::num_nodes)
      .def_prop_ro("num_storages", &lowtide::Problem::num_storages);

  nb::class_<lowtide::GreedyOutcome>(module, "GreedyOutcome")
      .def_ro("is_feasible", &lowtide::GreedyOutcome::is_feasible)
      .def_ro("peak_bytes", &lowtide::GreedyOutcome::peak_bytes)
      .def_ro("extra_duration", &lowtide::GreedyOutcome::extra_duration)
      .def_ro("num_rounds", &lowtide::GreedyOutcome::num_rounds)
      .def_ro("work", &lowtide::GreedyOutcome::work)
      .def_prop_ro("stages", [](const lowtide::GreedyOutcome& outcome) { return columns(outcome.plan).first; })
      .def_prop_ro("nodes", [](const lowtide::GreedyOutcome& outcome) { return columns(outcome.plan).second; });

  nb::class_<lowtide::PortfolioOutcome>(module, "SearchOutcome")
      .def_ro("is_feasible", &lowtide::PortfolioOutcome::is_feasible)
      .def_ro("peak_bytes", &lowtide::PortfolioOutcome::peak_bytes)
      .def_ro("extra_duration", &lowtide::PortfolioOutcome::extra_duration)
      .def_ro("num_rounds", &lowtide::PortfolioOutcome::num_rounds)
      .def_prop_ro("stages", [](const lowtide::PortfolioOutcome& outcome) { return columns(outcome.plan).first; })
      .def_prop_ro("nodes", [](const lowtide::PortfolioOutcome& outcome) { return columns(outcome.plan).second; });

  nb::class_<lowtide::OrderOutcome>(module, "OrderOutcome")
      .def_ro("order", &lowtide::OrderOutcome::order)
      .def_ro("overflow_bytes", &lowtide::OrderOutcome::overflow_bytes)
      .def_ro("peak_bytes", &lowtide::OrderOutcome::peak_bytes);

  module.def("load_bytes", &load_bytes, "problem"_a, nb::kw_only(), "stages"_a, "nodes"_a,
             "Most bytes resident in each stage, for a set of recomputations (stages[i], nodes[i]).");
  module.def("greedy", &run_greedy, "problem"_a, nb::kw_only(), "budget_bytes"_a, "seed"_a,
             "max_copies"_a.none() = nb::none(), "max_work"_a, "seconds"_a.none() = nb::none(),
             "on_better"_a.none() = nb::none(), "should_stop"_a.none() = nb::none(),
             "Recomputations that fit the budget at a small duration, or those of the smallest peak met.");
  module.def("search", &run_search, "problem"_a, nb::kw_only(), "budget_bytes"_a, "seed"_a, "threads"_a,
             "max_copies"_a.none() = nb::none(), "max_work"_a, "seconds"_a.none() = nb::none(),
             "on_better"_a.none() = nb::none(), "should_stop"_a.none() = nb::none(),
             "starts"_a = std::vector<std::pair<Int32s, Int32s>>{},
             "As greedy, by a portfolio of annealings and of ruin and recreate; max_work is that of each thread. Plans "
             "to start from are columns, as of greedy: the first, unless empty, to begin with, all to combine.");
  module.def("order", &run_order, "problem"_a, nb::kw_only(), "budget_bytes"_a, "seed"_a, "max_work"_a, "firsts"_a,
             "seconds"_a, "should_stop"_a.none() = nb::none(),
             "A topological order of small overflow; node seconds[i] comes after node firsts[i].");
}
