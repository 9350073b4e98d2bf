// The extension module octavo._native. Each part binds itself; this file only calls them.
// Compiled for the plainest x86-64, so that an old machine gets an error instead of SIGILL.

#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bindings.h"

NB_MODULE(_native, m) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    throw std::runtime_error(
        "octavo: this processor lacks AVX2 or FMA; Octavo needs x86-64-v3 (2013 or newer)");
  }
#endif
  octavo::bind_text(m);
  octavo::bind_gguf(m);
  octavo::bind_sampler(m);
  octavo::bind_linear(m);
  octavo::bind_tokenizer(m);
  octavo::bind_quantize(m);
  octavo::bind_executor(m);
  octavo::bind_quantized(m);
}
