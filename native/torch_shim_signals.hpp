// Ctrl-C while much is computed again. Python handles signals between two of its own steps: not within an op, and not
// within backward, where a budget that is too small may recompute for minutes.
//
//   SIGINT ──▶ our handler: notes it ──▶ Python's own handler
//   the next recomputation ──▶ Interrupted: unwinds to before the op ──▶ Python's handlers run ──▶ the op begins anew
//
// Nothing here changes what Python does about a signal; it only happens sooner.
#pragma once

#include <Python.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <csignal>

namespace lowtide::shim {

// Thrown between two recomputations, where Python has to run: for a signal, or a warning that is due. The op that wanted
// them has not begun. No std::exception: it is no failure.
struct Interrupted {};

class Interrupts {
 public:
  // With the GIL, in Python's main thread: the one that runs its handlers.
  void install() {
    struct sigaction now {};
    if (is_installed_ || sigaction(SIGINT, nullptr, &now) != 0) return;
    const bool is_ignored = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
    if (is_ignored) return;  // nobody to tell
    before_ = now;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = &handle;
    thread_ = pthread_self();
    is_installed_ = sigaction(SIGINT, &now, nullptr) == 0;
  }

  // Whoever has put another handler in its place keeps it.
  void uninstall() {
    struct sigaction now {};
    if (!is_installed_ || sigaction(SIGINT, nullptr, &now) != 0) return;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &handle) sigaction(SIGINT, &before_, nullptr);
    is_installed_ = false;
    is_pending_.store(false);
  }

  // Whether this thread should let Python handle a signal.
  static bool is_pending() { return is_pending_.load(std::memory_order_relaxed) && pthread_self() == thread_; }

  // Let it. Without the shim's lock; throws what a handler raises.
  static void handle_now() {
    is_pending_.store(false);
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    python_error error;
    error.persist();
    throw error;
  }

 private:
  static void handle(int number, siginfo_t* info, void* context) {
    is_pending_.store(true);
    if ((before_.sa_flags & SA_SIGINFO) != 0) {
      before_.sa_sigaction(number, info, context);
    } else {
      before_.sa_handler(number);
    }
  }

  static inline std::atomic<bool> is_pending_{false};
  static inline struct sigaction before_ {};
  static inline pthread_t thread_{};
  bool is_installed_ = false;
};

}  // namespace lowtide::shim
