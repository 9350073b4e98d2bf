#include "bindings.h"

namespace octavo {

void bind_gguf(nanobind::module_&) {}

}  // namespace octavo
