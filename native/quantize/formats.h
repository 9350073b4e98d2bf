// The tables that find_format looks through.
#pragma once

#include "quantize/format.h"

namespace octavo::quantize {

extern const Format kSmallFormats[];
extern const int kNumSmallFormats;
extern const Format kKFormats[];
extern const int kNumKFormats;

}  // namespace octavo::quantize
