// Names that Python gives, as instructions have them. For the bind*.cpp files.
#pragma once

#include <stdexcept>
#include <string>

#include "runtime/instructions.h"

namespace octavo {

inline Rows rows_of(const std::string& name) {
  if (name == "tokens") return Rows::kTokens;
  if (name == "logits") return Rows::kLogits;
  throw std::invalid_argument("executor: rows must be tokens or logits, not " + name);
}

inline Activation activation_of(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_erf") return Activation::kGeluErf;
  if (name == "clamped_swiglu") return Activation::kClampedSwiglu;
  throw std::invalid_argument("executor: unknown activation " + name);
}

}  // namespace octavo
