// Logits of llama.cpp for given token ids: the candidate beside Octavo in the quality report.
//
// usage: llama_logits MODEL CONTEXT THREADS
// stdin:  for each window  int32 n, int32 first, int32 ids[n]
// stdout: int32 vocab once; then, for each window, float32 logits[n - first][vocab] after the ids
//         from number `first` on.
// Everything else is llama.cpp's default: f16 KV cache, flash attention where it has it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_logits: %s\n", what);
  std::exit(1);
}

bool read(void* to, size_t bytes) {
  return std::fread(to, 1, bytes, stdin) == bytes;
}

void write(const void* from, size_t bytes) {
  if (std::fwrite(from, 1, bytes, stdout) != bytes) fail("cannot write");
}

llama_context* open(const char* path, uint32_t context, int threads) {
  llama_model* model = llama_model_load_from_file(path, llama_model_default_params());
  if (model == nullptr) fail("cannot load the model");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context;
  params.n_batch = context;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  llama_context* opened = llama_init_from_model(model, params);
  if (opened == nullptr) fail("cannot make a context");
  return opened;
}

// Evaluates one window as a single batch and writes the wanted rows.
void evaluate(llama_context* context, std::vector<llama_token>& ids, int32_t first, int32_t vocab) {
  const auto n = static_cast<int32_t>(ids.size());
  llama_memory_clear(llama_get_memory(context), true);
  llama_batch batch = llama_batch_init(n, 0, 1);
  batch.n_tokens = n;
  for (int32_t i = 0; i < n; ++i) {
    batch.token[i] = ids[i];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i >= first;
  }
  if (llama_decode(context, batch) != 0) fail("cannot decode");
  for (int32_t i = first; i < n; ++i) {
    write(llama_get_logits_ith(context, i), sizeof(float) * vocab);
  }
  std::fflush(stdout);
  llama_batch_free(batch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: llama_logits MODEL CONTEXT THREADS");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_context* context = open(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
  write(&vocab, sizeof vocab);
  std::fflush(stdout);
  int32_t head[2];
  while (read(head, sizeof head)) {
    std::vector<llama_token> ids(head[0]);
    if (!read(ids.data(), sizeof(llama_token) * ids.size())) fail("cannot read the window");
    evaluate(context, ids, head[1], vocab);
  }
}
