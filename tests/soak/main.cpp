// SPDX-License-Identifier: Apache-2.0
// The plugin under load: threads run sessions they share, and make and destroy sessions meanwhile.
// Every result has to be, bit for bit, what the kernels gave before the threads started, and the
// memory has to stay the same. Meant for the sanitizers, works without.
//
//   soak RUNTIME PLUGIN MODELS [--plant wrong|growth|race|overflow]
//   soak --list
//
// MYOPS_SOAK_SECONDS (default 10) and MYOPS_SOAK_SEED are read from the environment. --plant breaks
// one thing on purpose: the tests of this program.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include <unistd.h>

#include "cases.hpp"
#include "runtime.hpp"

namespace myops::soak {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int thread_count = 8;
constexpr std::size_t session_count = 4;
constexpr int reloads = 20;

// What the second half of a run may add to the resident memory, or this share of it, which leaves
// room for the sanitizers' own: a leak of one table per session passes it in a minute.
constexpr double allowed_growth = 24e6;
constexpr double allowed_share = 0.12;

/// A session that threads share until another takes its place.
struct Slot {
  std::mutex mutex;
  std::shared_ptr<const Session> session;
  const Model* model = nullptr;
};

struct Counters {
  std::atomic<long> runs{0};
  std::atomic<long> empty_runs{0};
  std::atomic<long> elements{0};
  std::atomic<long> sessions{0};
  std::atomic<long> refusals{0};
};

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double number_from_environment(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atof(text);
}

class Soak {
 public:
  Soak(const Runtime& runtime, std::string plugin, std::string folder, std::string plant,
       std::uint64_t seed)
      : runtime_(runtime),
        plugin_(std::move(plugin)),
        folder_(std::move(folder)),
        plant_(std::move(plant)),
        seed_(seed) {
    std::mt19937_64 random(seed);
    models_ = make_models(folder_, random);
    if (plant_ == "wrong") models_[0].cases[2].outputs[0].bytes[0] ^= 1;
  }

  /// Returns the program's exit code.
  int run(double seconds) {
    const Clock::time_point start = Clock::now();
    // The first sessions pull in code and pages; so does the first load of the plugin.
    for (std::size_t i = 0; i < models_.size(); ++i) check_all_cases(models_[i]);
    std::mt19937_64 random(seed_);
    for (Slot& slot : slots_) replace(slot, random);
    std::vector<std::thread> threads;
    for (int i = 0; i < thread_count; ++i) threads.emplace_back([this, i] { work(i); });
    const auto sleep = [&] {
      const auto half = std::chrono::duration<double>(seconds / 2);
      for (const auto end = Clock::now() + half; Clock::now() < end && !stop_;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    };
    sleep();
    const double half_way = resident_bytes();
    sleep();
    const double at_end = resident_bytes();
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    for (Slot& slot : slots_) slot.session.reset();
    // No session is left: each of these loads the plugin anew, and ONNX Runtime unloads it.
    for (int i = 0; i < reloads && failure_.empty(); ++i) check_all_cases(models_[0]);
    report(std::chrono::duration<double>(Clock::now() - start).count(), half_way, at_end);
    if (failure_.empty() &&
        at_end - half_way > std::max(allowed_growth, allowed_share * half_way)) {
      failure_ = "memory should be stable. Received growth";
    }
    if (!failure_.empty()) std::printf("[soak] %s\n", failure_.c_str());
    return failure_.empty() ? 0 : 1;
  }

 private:
  SessionPlan plan(const Model& model, std::mt19937_64& random) const {
    return {model.path, plugin_, static_cast<int>(1 + random() % 3), 1};
  }

  std::shared_ptr<const Session> make_session(const SessionPlan& plan) {
    auto session = std::make_shared<const Session>(runtime_, plan);
    ++counters_.sessions;
    return session;
  }

  void replace(Slot& slot, std::mt19937_64& random) {
    const Model& model = models_[random() % models_.size()];
    std::shared_ptr<const Session> session = make_session(plan(model, random));
    {
      const std::lock_guard<std::mutex> lock(slot.mutex);
      slot.session.swap(session);
      slot.model = &model;
    }
    // The old session ends here, unless a thread still runs it: then there.
  }

  void check_case(const Session& session, const Model& model, const Case& one) {
    std::vector<Value> inputs;
    for (const Tensor& input : one.inputs) {
      inputs.push_back(tensor_over(runtime_, input.bytes.data(), input.bytes.size(), input.shape,
                                   onnx_type(model.dtype)));
    }
    const std::vector<Value> outputs = session.run(inputs, one.outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      void* data = nullptr;
      runtime_.check(runtime_.api().GetTensorMutableData(outputs[i].value, &data));
      const std::vector<std::uint8_t>& expected = one.outputs[i].bytes;
      if (!expected.empty() && std::memcmp(data, expected.data(), expected.size()) != 0) {
        fail("results should equal the kernels'. Received others from " + model.path);
      }
    }
    ++counters_.runs;
    if (one.outputs[0].bytes.empty()) ++counters_.empty_runs;
    counters_.elements +=
        static_cast<long>(one.outputs[0].bytes.size() / element_size(model.dtype));
  }

  void check_all_cases(const Model& model) {
    const std::shared_ptr<const Session> session = make_session({model.path, plugin_, 2, 1});
    for (const Case& one : model.cases) check_case(*session, model, one);
  }

  /// What a host does wrong; the next session must not feel it.
  void be_refused(std::mt19937_64& random) {
    SessionPlan wrong = plan(models_[random() % models_.size()], random);
    if (random() % 2 == 0) {
      wrong.registrations = 2;
    } else {
      wrong.model = folder_ + "/refused.onnx";
    }
    try {
      const Session session(runtime_, wrong);
      fail("a wrong model should be refused. Received a session for " + wrong.model);
    } catch (const RuntimeError& error) {
      const std::string message = error.what();
      const char* reason = wrong.registrations == 2 ? "registry" : "finite";
      if (message.find(reason) == std::string::npos) fail("an unexpected refusal: " + message);
    }
    ++counters_.refusals;
  }

  void work(int number) {
    std::mt19937_64 random(seed_ + 1 + static_cast<std::uint64_t>(number));
    try {
      while (!stop_) {
        Slot& slot = slots_[random() % session_count];
        const std::uint64_t dice = random() % 200;
        if (dice < 5) replace(slot, random);
        if (dice == 5) be_refused(random);
        std::shared_ptr<const Session> session;
        const Model* model = nullptr;
        {
          const std::lock_guard<std::mutex> lock(slot.mutex);
          session = slot.session;
          model = slot.model;
        }
        check_case(*session, *model, model->cases[random() % model->cases.size()]);
        if (!plant_.empty()) misbehave();
      }
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  void misbehave() {
    if (plant_ == "growth") {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      growth_.emplace_back(1 << 16, 'x');
    } else if (plant_ == "race") {
      ++raced_;
    } else if (plant_ == "overflow") {
      const std::vector<char> bytes(models_.size());
      const volatile char* end = bytes.data() + bytes.size();
      raced_ = *end;
    }
  }

  void fail(const std::string& what) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.empty()) failure_ = what;
    stop_ = true;
  }

  void report(double seconds, double half_way, double at_end) const {
    std::printf(
        "[soak] ONNX Runtime %s, kernels %s, seed %llu: %.1f s, %d threads, %zu sessions at a "
        "time\n"
        "[soak] %zu models, %ld runs (%ld of empty tensors, %.3g elements), %ld sessions made, "
        "%ld refused\n"
        "[soak] resident memory %.0f MB half way, %.0f MB at the end\n",
        runtime_.version().c_str(), cpu_isa(), static_cast<unsigned long long>(seed_), seconds,
        thread_count, session_count, models_.size(), counters_.runs.load(),
        counters_.empty_runs.load(), static_cast<double>(counters_.elements.load()),
        counters_.sessions.load(), counters_.refusals.load(), half_way / 1e6, at_end / 1e6);
  }

  const Runtime& runtime_;
  const std::string plugin_;
  const std::string folder_;
  const std::string plant_;
  const std::uint64_t seed_;
  std::vector<Model> models_;
  Slot slots_[session_count];
  Counters counters_;
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::string failure_;
  std::vector<std::string> growth_;
  int raced_ = 0;
};

int main_or_throw(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1 && arguments[0] == "--list") {
    print_operators();
    return 0;
  }
  if (arguments.size() != 3 && !(arguments.size() == 5 && arguments[3] == "--plant")) {
    std::fputs("usage: soak RUNTIME PLUGIN MODELS [--plant wrong|growth|race|overflow]\n", stderr);
    return 2;
  }
  const Runtime runtime(arguments[0]);
  const auto seed = static_cast<std::uint64_t>(number_from_environment("MYOPS_SOAK_SEED", 1));
  Soak soak(runtime, arguments[1], arguments[2], arguments.size() == 5 ? arguments[4] : "", seed);
  return soak.run(number_from_environment("MYOPS_SOAK_SECONDS", 10));
}

}  // namespace
}  // namespace myops::soak

int main(int argc, char** argv) {
  try {
    return myops::soak::main_or_throw({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[soak] %s\n", error.what());
    return 1;
  }
}
