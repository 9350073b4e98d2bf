#include "bindings.h"

namespace octavo {

void bind_executor(nanobind::module_&) {}

}  // namespace octavo
