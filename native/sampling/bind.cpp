#include "bindings.h"

namespace octavo {

void bind_sampler(nanobind::module_&) {}

}  // namespace octavo
