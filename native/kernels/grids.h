// Tables of vectors that belong to the file format; see grids.cpp.
#pragma once

#include <cstdint>

namespace octavo {

extern const uint16_t kGridIq2xxs[256];
extern const uint16_t kGridIq2xs[512];
extern const uint16_t kGridIq2s[1024];
extern const uint16_t kGridIq3xxs[256];
extern const uint16_t kGridIq3s[512];
extern const uint16_t kGridIq1[2048];

}  // namespace octavo
