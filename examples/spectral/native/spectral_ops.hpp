// SPDX-License-Identifier: Apache-2.0
// An operator that wraps a library: the spectrum of a signal's frames with KISS FFT
// (github.com/mborgerding/kissfft, BSD-3-Clause).
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <vector>

#include <kissfft/kissfft.hh>

#include "myops/custom.hpp"

namespace myops {

/// Energy and spectral centroid of windowed frames. With X = DFT(w x) of a frame of n values and
/// f_k = min(k, n - k), the bin's distance from 0:
///   energy   = sum_k |X_k|^2 / n
///   centroid = sum_k f_k |X_k|^2 / sum_k |X_k|^2, in bins; 0 for a frame of zeros
/// A frame starts every `hop` values. Transforms are in double and results are rounded once.
///
/// Gradients, for those of a frame's energy, g, and centroid, h: with c_k = g / n + h (f_k -
/// centroid) / sum |X|^2, the gradient of w x is 2 Re sum_k c_k X_k exp(2 pi i k t / n).
struct FrameSpectrum {
  static constexpr std::array<const char*, 2> inputs{"signal", "window"};
  static constexpr std::array<const char*, 2> outputs{"energy", "centroid"};
  static constexpr std::array<AttributeInfo, 1> attributes{{{"hop", 4.0, 1.0}}};

  /// signal (..., length), window (n): both results are (..., (length - n) / hop + 1).
  template <class Int>
  static Status shapes(const Sizes<Int>* in, const double* attributes, Sizes<Int>* out) {
    const Sizes<Int>& signal = in[0];
    if (signal.empty() || in[1].size() != 1) {
      return Status::error(
          "[frame_spectrum] signal should have a dim or more, and window one. Received %zu and "
          "%zu. Reshape them.",
          signal.size(), in[1].size());
    }
    const Int n = in[1][0];
    if (n < Int(1) || signal.back() < n) {
      return Status::error(
          "[frame_spectrum] the window should have a value or more, and not more than the signal. "
          "Received another one. Pass a shorter window.");
    }
    const auto hop = static_cast<std::int64_t>(attributes[0]);
    Sizes<Int> result(signal.begin(), signal.end() - 1);
    result.push_back((signal.back() - n) / Int(hop) + Int(1));
    out[0] = result;
    out[1] = result;
    return {};
  }

  static Status forward(const TensorView* in, const TensorView* out, const double* attributes) {
    return in[0].dtype == DType::f64 ? run<double>(in, out, attributes)
                                     : run<float>(in, out, attributes);
  }

  static Status backward(const TensorView* in, const TensorView* out, const double* attributes) {
    return in[0].dtype == DType::f64 ? run_backward<double>(in, out, attributes)
                                     : run_backward<float>(in, out, attributes);
  }

 private:
  using Complex = std::complex<double>;

  /// Where element `number` of a tensor in row-major order is.
  static std::int64_t place(const TensorView& tensor, std::int64_t number) {
    std::int64_t offset = 0;
    for (std::size_t i = tensor.rank; i-- > 0; number /= tensor.sizes[i]) {
      offset += number % tensor.sizes[i] * tensor.strides[i];
    }
    return offset;
  }

  /// Windowed frames and their spectra, one at a time.
  template <class T>
  struct Frames {
    const TensorView& signal;
    const TensorView& window;
    std::int64_t hop;
    std::int64_t n = window.sizes[0];
    std::int64_t length = signal.sizes[signal.rank - 1];
    std::int64_t step = signal.strides[signal.rank - 1];
    std::int64_t per_row = (length - n) / hop + 1;
    std::int64_t rows = length == 0 ? 0 : signal.count() / length;
    kissfft<double> transform{static_cast<std::size_t>(n), false};
    std::vector<Complex> values = std::vector<Complex>(static_cast<std::size_t>(n));
    std::vector<Complex> spectrum = std::vector<Complex>(static_cast<std::size_t>(n));
    double power = 0;
    double centroid = 0;

    Frames(const TensorView& signal_, const TensorView& window_, const double* attributes)
        : signal(signal_), window(window_), hop(static_cast<std::int64_t>(attributes[0])) {}

    double window_at(std::int64_t t) const { return window.as<T>()[t * window.strides[0]]; }

    double signal_at(std::int64_t row, std::int64_t frame, std::int64_t t) const {
      const std::int64_t start = place(signal, row * length);
      return signal.as<T>()[start + (frame * hop + t) * step];
    }

    double distance(std::int64_t k) const { return static_cast<double>(std::min(k, n - k)); }

    void load(std::int64_t row, std::int64_t frame) {
      for (std::int64_t t = 0; t < n; ++t) {
        values[static_cast<std::size_t>(t)] = window_at(t) * signal_at(row, frame, t);
      }
      transform.transform(values.data(), spectrum.data());
      power = 0;
      double moment = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        const double part = std::norm(spectrum[static_cast<std::size_t>(k)]);
        power += part;
        moment += distance(k) * part;
      }
      centroid = power > 0 ? moment / power : 0;
    }
  };

  template <class T>
  static Status run(const TensorView* in, const TensorView* out, const double* attributes) {
    Frames<T> frames(in[0], in[1], attributes);
    for (std::int64_t row = 0, i = 0; row < frames.rows; ++row) {
      for (std::int64_t frame = 0; frame < frames.per_row; ++frame, ++i) {
        frames.load(row, frame);
        out[0].as<T>()[i] = static_cast<T>(frames.power / static_cast<double>(frames.n));
        out[1].as<T>()[i] = static_cast<T>(frames.centroid);
      }
    }
    return {};
  }

  /// In: grad_energy, grad_centroid, signal, window. Out: grad_signal, grad_window, contiguous.
  template <class T>
  static Status run_backward(const TensorView* in, const TensorView* out,
                             const double* attributes) {
    Frames<T> frames(in[2], in[3], attributes);
    const std::int64_t n = frames.n;
    kissfft<double> inverse(static_cast<std::size_t>(n), true);
    std::vector<Complex> slopes(static_cast<std::size_t>(n));
    std::vector<double> signal_grad(static_cast<std::size_t>(in[2].count()));
    std::vector<double> window_grad(static_cast<std::size_t>(n));
    for (std::int64_t row = 0, i = 0; row < frames.rows; ++row) {
      for (std::int64_t frame = 0; frame < frames.per_row; ++frame, ++i) {
        frames.load(row, frame);
        const double g = in[0].as<T>()[place(in[0], i)] / static_cast<double>(n);
        const double h = frames.power > 0 ? in[1].as<T>()[place(in[1], i)] / frames.power : 0.0;
        for (std::int64_t k = 0; k < n; ++k) {
          const double c = g + h * (frames.distance(k) - frames.centroid);
          frames.spectrum[static_cast<std::size_t>(k)] *= 2 * c;
        }
        inverse.transform(frames.spectrum.data(), slopes.data());
        for (std::int64_t t = 0; t < n; ++t) {
          const double slope = slopes[static_cast<std::size_t>(t)].real();
          const std::int64_t here = row * frames.length + frame * frames.hop + t;
          signal_grad[static_cast<std::size_t>(here)] += frames.window_at(t) * slope;
          window_grad[static_cast<std::size_t>(t)] += frames.signal_at(row, frame, t) * slope;
        }
      }
    }
    const auto store = [](double value) { return static_cast<T>(value); };
    std::transform(signal_grad.begin(), signal_grad.end(), out[0].as<T>(), store);
    std::transform(window_grad.begin(), window_grad.end(), out[1].as<T>(), store);
    return {};
  }
};

}  // namespace myops
