// The Python side of a SamplingView: holds the arrays of a decoding.SamplingBatch alive and has
// checked every length, start and range, so that sample_row may trust them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "sampling/sampler.h"

namespace octavo {

template <typename T>
using Array1 =
    nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Array2 =
    nanobind::ndarray<const T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

class NativeBatch {
 public:
  // `batch` has SamplingBatch's attributes. Throws std::invalid_argument naming a bad one.
  explicit NativeBatch(nanobind::handle batch);

  const SamplingView& view() const { return view_; }
  int64_t rows() const { return view_.rows; }
  int64_t top_n() const { return top_n_; }        // the largest num_logprobs, at least 0
  int64_t listed_n() const { return listed_n_; }  // the most ids that a row lists

  // Throws std::invalid_argument if there is a mask and it is not ceil(vocab / 32) words wide.
  void check_vocab(int64_t vocab) const;

 private:
  SamplingView view_;
  int64_t top_n_ = 0;
  int64_t listed_n_ = 0;
  std::vector<nanobind::object> kept_;
};

// Result arrays of a batch, filled through out() and handed to Python once.
class ResultArrays {
 public:
  ResultArrays(int64_t rows, int64_t top_n, int64_t listed_n);

  const SampleOut& out() const { return out_; }
  // SampleResult's fields in order, as NumPy arrays; the object is empty afterwards.
  nanobind::tuple take();

 private:
  int64_t rows_;
  SampleOut out_;
  nanobind::object owners_[6];
};

}  // namespace octavo
