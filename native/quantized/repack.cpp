#include "quantized/repack.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "kernels/half.h"

namespace octavo {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kRows = 64;  // rows whose blocks are written in turn: their lines stay in cache

// 32 codes of kBits each from as many words.
template <int kBits>
void unpack_codes(const uint32_t* words, uint8_t* codes) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  if constexpr (32 % kBits == 0) {
    constexpr int kCount = 32 / kBits;
    for (int w = 0; w < kBits; ++w) {
      for (int i = 0; i < kCount; ++i) {
        codes[w * kCount + i] = static_cast<uint8_t>(words[w] >> (i * kBits) & kMask);
      }
    }
    return;
  }
  for (int j = 0; j < kBlock; ++j) {
    const int at = j * kBits, word = at / 32, shift = at % 32;
    const uint64_t next = shift + kBits > 32 ? words[word + 1] : 0;
    codes[j] = static_cast<uint8_t>((words[word] | next << 32) >> shift & kMask);
  }
}

void unpack_block(const uint32_t* words, int bits, uint8_t* codes) {
  if (bits == 2) return unpack_codes<2>(words, codes);
  if (bits == 3) return unpack_codes<3>(words, codes);
  if (bits == 4) return unpack_codes<4>(words, codes);
  unpack_codes<8>(words, codes);
}

// Of the integers less their zero points; of types that keep these, of the codes.
struct Range {
  int low;
  int high;
  size_t bytes;  // of a block
  bool keeps_zero = false;
};

Range range_of(SourceType type) {
  if (type == SourceType::kQ4_0) return {-8, 7, 18};
  if (type == SourceType::kQ5_0) return {-16, 15, 22};
  if (type == SourceType::kQ8_0) return {-128, 127, 34};
  if (type == SourceType::kQ4_Z) return {0, 15, 19, true};
  if (type == SourceType::kQ4_Z128) return {0, 15, 20, true};
  if (type == SourceType::kQ8_Z || type == SourceType::kQ8_Z128) return {0, 255, 36, true};
  throw std::invalid_argument("repack: expected Q4_0, Q5_0, Q8_0 or a type with zero points");
}

void write_nibbles(const uint8_t* q, uint8_t* out) {
  for (int j = 0; j < 16; ++j) out[j] = static_cast<uint8_t>((q[j] & 15) | (q[j + 16] & 15) << 4);
}

// Codes as they are, after the scale and the zero point.
void write_zero_block(SourceType type, uint16_t scale, int zero, const uint8_t* q, uint8_t* out) {
  std::memcpy(out, &scale, 2);
  if (type == SourceType::kQ4_Z) {
    out[2] = static_cast<uint8_t>(zero);
    return write_nibbles(q, out + 3);
  }
  const bool nibbles = type == SourceType::kQ4_Z128;
  const auto stored = static_cast<int16_t>(nibbles ? zero : zero - 128);
  std::memcpy(out + 2, &stored, 2);
  if (nibbles) return write_nibbles(q, out + 4);
  std::memcpy(out + 4, q, kBlock);
}

// Numbers 0 and up: what is in the range, less its lowest.
void write_block(SourceType type, uint16_t scale, const uint8_t* q, uint8_t* out) {
  std::memcpy(out, &scale, 2);
  out += 2;
  if (type == SourceType::kQ8_0) {
    for (int j = 0; j < kBlock; ++j) out[j] = q[j] ^ 0x80;
    return;
  }
  if (type == SourceType::kQ5_0) {
    uint32_t high = 0;
    for (int j = 0; j < kBlock; ++j) high |= static_cast<uint32_t>(q[j] >> 4 & 1) << j;
    std::memcpy(out, &high, 4);
    out += 4;
  }
  write_nibbles(q, out);
}

class Repacker {
 public:
  Repacker(const PackedIntegers& s, SourceType type, uint8_t* out)
      : s_(s), type_(type), range_(range_of(type)), out_(out) {}

  bool run() {
    const int64_t blocks = s_.k / kBlock;
    for (int64_t first = 0; first < s_.n; first += kRows) {
      const int64_t last = std::min(first + kRows, s_.n);
      for (int64_t b = 0; b < blocks; ++b) {
        if (s_.interleaved) {
          for (int64_t n = first; n < last; n += 8) eight_rows(n, b);
        } else {
          for (int64_t n = first; n < last; ++n) one_row(n, b);
        }
      }
    }
    return fits_;
  }

 private:
  void one_row(int64_t n, int64_t b) {
    uint8_t codes[kBlock];
    if (s_.order != nullptr) {
      for (int j = 0; j < kBlock; ++j) codes[j] = code(n, s_.order[b * kBlock + j]);
      return finish(n, b, codes);
    }
    uint32_t words[8];
    const uint32_t* at = s_.words + n * s_.row_stride + b * s_.block_stride;
    for (int i = 0; i < s_.bits; ++i) words[i] = at[i * s_.word_stride];
    unpack_block(words, s_.bits, codes);
    finish(n, b, codes);
  }

  // The code of one column.
  uint8_t code(int64_t n, int64_t column) const {
    const uint32_t* at = s_.words + n * s_.row_stride + column / kBlock * s_.block_stride;
    const int64_t bit = column % kBlock * s_.bits;
    const int64_t word = bit / 32, shift = bit % 32;
    const uint64_t low = at[word * s_.word_stride];
    const uint64_t high = shift + s_.bits > 32 ? at[(word + 1) * s_.word_stride] : 0;
    return static_cast<uint8_t>((low | high << 32) >> shift & ((1u << s_.bits) - 1));
  }

  void eight_rows(int64_t n, int64_t b) {
    static constexpr int kShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};
    uint8_t codes[8][kBlock];
    const uint32_t* at = s_.words + b * kBlock * s_.word_stride + n / 8;
    for (int j = 0; j < kBlock; ++j) {
      const uint32_t word = at[j * s_.word_stride];
      for (int r = 0; r < 8; ++r) codes[r][j] = word >> kShift[r] & 15;
    }
    for (int r = 0; r < 8; ++r) finish(n + r, b, codes[r]);
  }

  void finish(int64_t n, int64_t b, uint8_t* codes) {
    const int64_t g = n * (s_.k / s_.group) + b * kBlock / s_.group;
    const int zero = s_.zeros[g];
    const int shift = range_.keeps_zero ? 0 : -zero - range_.low;
    const int most = range_.high - range_.low;
    int outside = 0;
    for (int j = 0; j < kBlock; ++j) {
      const int q = codes[j] + shift;
      outside |= q | (most - q);  // negative if either is
      codes[j] = static_cast<uint8_t>(q);
    }
    if (range_.keeps_zero && type_ == SourceType::kQ4_Z) outside |= zero | (255 - zero);
    fits_ = fits_ && outside >= 0;
    uint8_t* out = out_ + static_cast<size_t>(n * (s_.k / kBlock) + b) * range_.bytes;
    if (range_.keeps_zero) return write_zero_block(type_, s_.scales[g], zero, codes, out);
    write_block(type_, s_.scales[g], codes, out);
  }

  const PackedIntegers& s_;
  SourceType type_;
  Range range_;
  uint8_t* out_;
  bool fits_ = true;
};

void check(const PackedIntegers& s) {
  const bool bits = s.bits == 2 || s.bits == 3 || s.bits == 4 || s.bits == 8;
  const bool sizes = s.n > 0 && s.k > 0 && s.k % kBlock == 0 && s.group > 0 &&
                     s.group % kBlock == 0 && s.k % s.group == 0;
  const bool strides = s.row_stride >= 0 && s.block_stride >= 0 && s.word_stride > 0;
  if (!bits || !sizes || !strides || (s.interleaved && (s.bits != 4 || s.n % 8 != 0))) {
    throw std::invalid_argument("repack: sizes that do not fit each other");
  }
  const int64_t last = s.interleaved
                           ? (s.k - 1) * s.word_stride + s.n / 8 - 1
                           : (s.n - 1) * s.row_stride + (s.k / kBlock - 1) * s.block_stride +
                                 (s.bits - 1) * s.word_stride;
  if (last >= static_cast<int64_t>(s.num_words)) {
    throw std::invalid_argument("repack: there are too few words");
  }
  if (s.order == nullptr) return;
  const bool inside =
      std::all_of(s.order, s.order + s.k, [&](int32_t c) { return c >= 0 && c < s.k; });
  if (s.interleaved || !inside) throw std::invalid_argument("repack: an order of other columns");
}

// To nearest, ties to even; beyond the range it is infinite.
uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and up
  if (magnitude < 0x38800000u) {                        // subnormal: adding 0.5 rounds it
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

}  // namespace

bool integer_blocks(const PackedIntegers& source, SourceType type, uint8_t* out) {
  check(source);
  return Repacker(source, type, out).run();
}

bool scaled_halves(const ScaledCodes& s, uint16_t* out) {
  const int64_t groups = (s.k + s.group - 1) / s.group;
  bool fits = true;
  for (int64_t n = 0; n < s.n; ++n) {
    const float* scales = s.scales + n / s.row_block * groups;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t end = std::min(s.k, (g + 1) * s.group);
      for (int64_t k = g * s.group; k < end; ++k) {
        const int64_t at = n * s.k + k;
        const uint8_t code =
            s.nibbles ? s.codes[at / 2] >> (at % 2 == 0 ? 4 : 0) & 15 : s.codes[at];
        const uint16_t half = float_to_half(s.table[code] * scales[g]);
        fits = fits && (half & 0x7fffu) != 0x7c00u;
        out[at] = half;
      }
    }
  }
  return fits;
}

}  // namespace octavo
