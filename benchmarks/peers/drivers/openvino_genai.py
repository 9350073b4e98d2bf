"""Runs in OpenVINO GenAI's environment: `openvino_genai.py GGUF THREADS`. See driven.py."""

import json
import random
import sys
import time


def say(answer):
    print(json.dumps({"octavo_driver": answer}), flush=True)


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    sys.path.pop(0)  # this file has the library's name
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    pipeline = genai.LLMPipeline(path, "CPU", **options)
    say({"version": genai.__version__})
    draw = random.Random(0)  # goes on: no prompt comes twice, so no prefix cache can help
    for line in sys.stdin:
        task = json.loads(line)
        shape = (task["streams"], task["input_len"])
        ids = np.array(
            [[draw.randrange(10, 40000) for _ in range(shape[1])] for _ in range(shape[0])]
        )
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        config = genai.GenerationConfig()
        config.max_new_tokens, config.do_sample = task["output_len"], False
        config.ignore_eos = True
        try:
            began = time.perf_counter()
            result = pipeline.generate(inputs, config)
            seconds = time.perf_counter() - began
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"[:300]})
            continue
        made = {len(tokens) for tokens in result.tokens}
        right = made == {task["output_len"]} and len(result.tokens) == task["streams"]
        say({"seconds": seconds} if right else {"error": f"made {made} tokens for {task}"})


if __name__ == "__main__":
    main()
