"""One engine in a process of its own: `driver.py ENGINE FOLDER THREADS KIND`. Reads a JSON line per
run, {"length", "texts"}, and answers one, {"seconds", "cpu_seconds"}. Runs in the rival's
environment too, so it imports nothing of this repository but what ENGINE octavo needs."""

import json
import random
import sys
import time


def say(answer):
    print(json.dumps({"octavo_driver": answer}), flush=True)


def octavo_engine(folder, threads, kind):
    import octavo
    from octavo import LLM

    llm = LLM(folder, num_threads=threads, weights="int8" if kind == "int8" else "native")

    def run(texts):
        llm.embed(texts, use_tqdm=False)

    return octavo.__version__, llm.config.vocab_size, run


def torch_engine(folder, threads, kind):
    import torch
    import transformers

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()

    def run(texts):
        with torch.inference_mode():
            for start in range(0, len(texts), 32):  # as sentence-transformers batches
                ids = torch.tensor(texts[start : start + 32])
                states = model(input_ids=ids).last_hidden_state
                torch.nn.functional.normalize(states.float().mean(dim=1))

    version = f"{transformers.__version__}, torch {torch.__version__}"
    return version, model.config.vocab_size, run


def main():
    engine, folder, threads, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    make = {"octavo": octavo_engine, "torch": torch_engine}[engine]
    version, vocabulary, run = make(folder, threads, kind)
    say({"version": version})
    draw = random.Random(0)
    for line in sys.stdin:
        task = json.loads(line)
        texts = [
            [draw.randrange(1000, vocabulary) for _ in range(task["length"])]
            for _ in range(task["texts"])
        ]
        began, worked = time.perf_counter(), time.process_time()
        run(texts)
        took, work = time.perf_counter() - began, time.process_time() - worked
        say({"seconds": took, "cpu_seconds": work})


if __name__ == "__main__":
    main()
