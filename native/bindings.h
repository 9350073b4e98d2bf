// One function per part that adds its classes and functions to octavo._native.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_text(nanobind::module_& m);       // text/bind.cpp: lists of strings
void bind_gguf(nanobind::module_& m);       // gguf/bind.cpp: the GGUF reader, dequantization
void bind_sampler(nanobind::module_& m);    // sampling/bind.cpp
void bind_linear(nanobind::module_& m);     // kernels/bind.cpp: panels and products, for tests
void bind_tokenizer(nanobind::module_& m);  // tokenizer/bind.cpp: SentencePiece-style BPE
void bind_quantize(nanobind::module_& m);   // quantize/bind.cpp: writing blocks, GPTQ's inner loop
void bind_executor(nanobind::module_& m);   // runtime/bind.cpp: program, KV memory, thread pool
void bind_quantized(nanobind::module_& m);  // quantized/bind.cpp: packed weights as blocks

}  // namespace octavo
