// Panels with NEON: products, quantization, the benchmarks' loops.
#include <limits>
#include <string>
#include <vector>

#include "kernels/dequantize_row.h"
#include "kernels/kernel_table.h"
#include "kernels/panel.h"
#include "tests/arm_checks.h"

namespace octavo {
namespace {

struct Type {
  const char* name;
  SourceType source;
};

constexpr Type kQuantized[] = {{"Q4_0", SourceType::kQ4_0},       {"Q4_1", SourceType::kQ4_1},
                               {"Q5_0", SourceType::kQ5_0},       {"Q5_1", SourceType::kQ5_1},
                               {"Q8_0", SourceType::kQ8_0},       {"Q2_K", SourceType::kQ2_K},
                               {"Q3_K", SourceType::kQ3_K},       {"Q4_K", SourceType::kQ4_K},
                               {"Q5_K", SourceType::kQ5_K},       {"Q6_K", SourceType::kQ6_K},
                               {"IQ4_NL", SourceType::kIQ4_NL},   {"IQ4_XS", SourceType::kIQ4_XS},
                               {"TQ2_0", SourceType::kTQ2_0},     {"MXFP4", SourceType::kMXFP4},
                               {"IQ3_S", SourceType::kIQ3_S},     {"E4M3", SourceType::kE4M3},
                               {"NVFP4", SourceType::kNVFP4},     {"Q4_Z", SourceType::kQ4_Z},
                               {"Q4_Z128", SourceType::kQ4_Z128}, {"Q8_Z128", SourceType::kQ8_Z128},
                               {"Q8_Z", SourceType::kQ8_Z},       {"E4M3_32", SourceType::kE4M3_32},
                               {"NF4", SourceType::kNF4},         {"FP4", SourceType::kFP4}};
constexpr Type kFloats[] = {{"F32", SourceType::kF32},
                            {"F16", SourceType::kF16},
                            {"BF16", SourceType::kBF16},
                            {"E5M2", SourceType::kE5M2}};

bool in_super_blocks(SourceType source) {
  return block_columns(source) == 256;
}

size_t block_bytes(SourceType source) {
  return source_row_bytes(source, block_columns(source));
}

// Where a block has its float16 numbers.
std::vector<size_t> half_offsets(SourceType source) {
  switch (source) {
    case SourceType::kQ2_K:
      return {80, 82};
    case SourceType::kQ3_K:
      return {108};
    case SourceType::kQ6_K:
      return {208};
    case SourceType::kTQ2_0:
      return {64};
    case SourceType::kMXFP4:
    case SourceType::kE4M3:
    case SourceType::kE4M3_32:
    case SourceType::kNVFP4:
      return {};
    case SourceType::kQ4_1:
    case SourceType::kQ5_1:
    case SourceType::kQ4_K:
    case SourceType::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// A packed matrix that owns its bytes.
struct Matrix {
  PanelMatrix panels;
  Aligned memory;

  Matrix(SourceType source, int64_t n, int64_t k, const Bytes& rows)
      : panels(plan_panels(source, n, k, false, false)), memory(panels.size_bytes()) {
    pack_panels(panels, rows.data(), 0, panels.num_panels, memory.get());
    panels.data = memory.get();
  }
};

// A float16 or float32 whose bytes are all below 0x3c is finite and below 1.
uint8_t scale_byte() {
  return static_cast<uint8_t>(generator() % 0x3c | (generator() & 0x80));
}

Matrix random_matrix(SourceType source, int64_t n, int64_t k) {
  Bytes rows(source_row_bytes(source, k) * static_cast<size_t>(n));
  if (is_float(plan_panels(source, n, k, false, false).layout)) {
    for (uint8_t& byte : rows) byte = scale_byte();
    return Matrix(source, n, k, rows);
  }
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(generator());
  for (size_t at = 0; at < rows.size(); at += block_bytes(source)) {
    for (size_t half : half_offsets(source)) rows[at + half + 1] = scale_byte();
    if (source == SourceType::kE4M3 || source == SourceType::kE4M3_32) rows[at + 3] = scale_byte();
    if (source == SourceType::kMXFP4) rows[at] = static_cast<uint8_t>(100 + rows[at] % 50);
  }
  return Matrix(source, n, k, rows);
}

// The same rows with the scalar kernels, one element at a time.
Floats scalar_product(const PanelMatrix& m, const QuantizedRows& x) {
  Floats out(static_cast<size_t>(x.rows * m.n));
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t p = 0; p < m.num_panels; ++p) {
      QuantTileArgs args{};
      args.panel = m.data + static_cast<size_t>(p) * m.panel_bytes;
      args.groups = x.groups;
      args.q = reinterpret_cast<const uint8_t*>(x.q(row, 0));
      args.terms = reinterpret_cast<const uint8_t*>(x.terms(row, 0));
      args.group_stride = x.group_stride();
      args.out = out.data() + row * m.n + p * kPanelRows;
      args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, m.n - p * kPanelRows));
      scalar_kernels().quant(m.source, 1)(args);
    }
  }
  return out;
}

Floats product(const PanelMatrix& m, const QuantizedRows& x) {
  Floats out(static_cast<size_t>(x.rows * m.n));
  linear_q8(m, x, 0, x.rows, 0, m.num_panels, out.data(), m.n);
  return out;
}

// Any number of rows gives the bits of the scalar kernels.
void check_quantized_products() {
  constexpr int64_t kRows = 37;  // the last panel is part filled
  for (const Type& type : kQuantized) {
    const int64_t k = in_super_blocks(type.source)       ? 512
                      : block_columns(type.source) == 64 ? 320
                                                         : 352;
    const Matrix m = random_matrix(type.source, kRows, k);
    for (int64_t rows = 1; rows <= 13; ++rows) {
      const Floats x = random_floats(static_cast<size_t>(rows * k));
      Aligned memory(QuantizedRows::bytes(rows, k, Products::kInt8));
      QuantizedRows q = QuantizedRows::in(memory.get(), rows, k, Products::kInt8);
      for (int64_t r = 0; r < rows; ++r) quantize_groups(x.data() + r * k, q, r, 0, q.groups);
      expect(same_bits(product(m.panels, q), scalar_product(m.panels, q)),
             std::string("product of ") + type.name + ", rows " + std::to_string(rows));
    }
  }
}

// Sets every scale and min of a block to 1: weights become small integers.
void set_unit_scales(SourceType source, uint8_t* block) {
  constexpr uint16_t kOne = 0x3c00;
  for (size_t half : half_offsets(source)) std::memcpy(block + half, &kOne, 2);
  if (source == SourceType::kQ6_K) {
    std::memset(block + 192, 1, 16);
  } else if (source == SourceType::kQ2_K) {
    std::memset(block, 0x11, 16);
  } else if (source == SourceType::kQ3_K) {  // 33, which stands for 1
    std::memset(block + 96, 0x11, 8);
    std::memset(block + 104, 0xaa, 4);
  } else if (source == SourceType::kIQ4_XS) {
    std::memset(block + 2, 0xaa, 2);
    std::memset(block + 4, 0x11, 4);
  } else if (source == SourceType::kMXFP4) {
    block[0] = 128;
  } else if (source == SourceType::kIQ3_S || source == SourceType::kTQ2_0) {
    // IQ3_S: odd scales up to 31, as they come.
  } else if (in_super_blocks(source)) {
    std::memset(block + 4, 0x01, 8);   // scales and mins of groups 0-3
    std::memset(block + 12, 0x11, 4);  // of groups 4-7
  }
}

// Activations with the scale 1: the same byte everywhere, or (value 0) random ones.
void fill_activations(QuantizedRows& x, int value) {
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t g = 0; g < x.groups; ++g) {
      int sums[2] = {};
      for (int i = 0; i < kGroup; ++i) {
        const int q = value != 0 ? value : static_cast<int>(generator() % 255) - 127;
        x.q(row, g)[i] = static_cast<int8_t>(q);
        sums[i / 16] += q;
      }
      *x.terms(row, g) = {1.0f, static_cast<float>(sums[0] + sums[1]), -(sums[0] + sums[1]),
                          -sums[0]};
    }
  }
}

// The dot products of integers, which float32 holds exactly below 2^24.
Floats integer_product(const PanelMatrix& m, const QuantizedRows& x) {
  Floats out;
  Floats w(static_cast<size_t>(m.k));
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t n = 0; n < m.n; ++n) {
      unpack_row(m, n, w.data());
      int64_t sum = 0;
      for (int64_t k = 0; k < m.k; ++k) {
        sum += static_cast<int64_t>(w[static_cast<size_t>(k)]) * x.q(row, k / kGroup)[k % kGroup];
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

// The integer sums are exact, at the extremes too: no 8- or 16-bit sum may saturate.
void check_integers() {
  constexpr int64_t kColumns = 256, kRows = 16, kTokens = 6;
  for (const Type& type : kQuantized) {
    // Whole numbers too large for float32's sums, scales that are none, zero points.
    if (type.source == SourceType::kNVFP4 || type.source >= SourceType::kE4M3) continue;
    for (int fill : {-1, 0x00, 0xff, 0x80, 0x7f}) {
      Bytes rows(source_row_bytes(type.source, kColumns) * kRows);
      for (uint8_t& b : rows) b = static_cast<uint8_t>(fill < 0 ? generator() : fill);
      for (size_t at = 0; at < rows.size(); at += block_bytes(type.source)) {
        set_unit_scales(type.source, rows.data() + at);
      }
      const Matrix m(type.source, kRows, kColumns, rows);
      for (int value : {0, 127, -127}) {
        Aligned memory(QuantizedRows::bytes(kTokens, kColumns, Products::kInt8));
        QuantizedRows x = QuantizedRows::in(memory.get(), kTokens, kColumns, Products::kInt8);
        fill_activations(x, value);
        expect(same_bits(product(m.panels, x), integer_product(m.panels, x)),
               std::string("integers of ") + type.name + ", weights " + std::to_string(fill) +
                   ", activations " + std::to_string(value));
      }
    }
  }
}

void check_float_products() {
  constexpr int64_t kRows = 37;
  for (const Type& type : kFloats) {
    for (int64_t k : {1, 64, 67}) {
      if (k % block_columns(type.source) != 0) continue;
      const Matrix m = random_matrix(type.source, kRows, k);
      for (int64_t rows = 1; rows <= 7; ++rows) {
        const Floats x = random_floats(static_cast<size_t>(rows * k));
        Floats got(static_cast<size_t>(rows * kRows)), want(got.size());
        linear_f32(m.panels, x.data(), k, 0, rows, 0, m.panels.num_panels, got.data(), kRows);
        for (int64_t i = 0; i < rows * m.panels.num_panels; ++i) {
          const int64_t row = i / m.panels.num_panels, p = i % m.panels.num_panels;
          FloatTileArgs args{};
          args.panel = m.panels.data + static_cast<size_t>(p) * m.panels.panel_bytes;
          args.k = k;
          args.x = x.data() + row * k;
          args.out = want.data() + row * kRows + p * kPanelRows;
          args.valid = static_cast<int>(std::min<int64_t>(kPanelRows, kRows - p * kPanelRows));
          scalar_kernels().floats(m.panels.layout, 1)(args);
        }
        expect(same_bits(got, want), std::string("product of ") + type.name + ", columns " +
                                         std::to_string(k) + ", rows " + std::to_string(rows));
      }
    }
  }
}

void check_quantization() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 400; ++round) {
    Floats x = random_floats(kGroup, std::exp2(static_cast<float>(round % 80 - 40)));
    if (round % 10 == 1) x[round % 32] = std::nanf("");
    if (round % 10 == 2) x[round % 32] = -kInfinity;
    if (round % 10 == 3) std::fill(x.begin(), x.end(), round % 20 == 3 ? 0.0f : -1e-35f);
    if (round % 10 == 4) {  // ties
      for (int i = 0; i < kGroup; ++i) x[i] = static_cast<float>(i - 16) + 0.5f;
      x[0] = 127.0f;
    }
    if (round % 10 == 5) x[3] = std::numeric_limits<float>::max();
    int8_t got[kGroup], want[kGroup];
    QuantizedRows::Terms got_terms{}, want_terms{};
    neon_kernels().quantize_group(x.data(), got, &got_terms);
    scalar_kernels().quantize_group(x.data(), want, &want_terms);
    expect(std::memcmp(got, want, sizeof(got)) == 0 &&
               std::memcmp(&got_terms, &want_terms, sizeof(got_terms)) == 0,
           "quantization, round " + std::to_string(round));
  }
}

void check_rooflines() {
  Bytes data(1024, 1);
  expect(neon_kernels().int8_loop(10, 4) > 0, "int8_loop");
  const int64_t before = neon_kernels().read_loop(data.data(), data.size());
  data[1000] = 2;
  expect(neon_kernels().read_loop(data.data(), data.size()) != before, "read_loop");
}

}  // namespace

void check_products() {
  check_quantized_products();
  check_integers();
  check_float_products();
  check_quantization();
  check_rooflines();
}

}  // namespace octavo
