#include "bindings.h"

namespace octavo {

void bind_linear(nanobind::module_&) {}

}  // namespace octavo
