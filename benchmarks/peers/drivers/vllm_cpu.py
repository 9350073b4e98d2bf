"""Runs in vLLM's environment: `vllm_cpu.py HF_FOLDER THREADS`. See driven.py for the protocol."""

import json
import random
import sys
import time


def say(answer):
    print(json.dumps({"octavo_driver": answer}), flush=True)


def main():
    folder, threads = sys.argv[1], int(sys.argv[2])
    import vllm
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=64,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    vocabulary = engine.llm_engine.model_config.get_vocab_size()
    say({"version": vllm.__version__, "threads": threads})
    draw = random.Random(0)  # goes on: no prompt comes twice, so no prefix cache can help
    for line in sys.stdin:
        task = json.loads(line)
        prompts = [
            {"prompt_token_ids": [draw.randrange(10, vocabulary) for _ in range(task["input_len"])]}
            for _ in range(task["streams"])
        ]
        params = SamplingParams(
            temperature=0, max_tokens=task["output_len"], ignore_eos=True, detokenize=False
        )
        began = time.perf_counter()
        outputs = engine.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - began
        made = {len(output.outputs[0].token_ids) for output in outputs}
        right = made == {task["output_len"]} and len(outputs) == task["streams"]
        say({"seconds": seconds} if right else {"error": f"made {made} tokens for {task}"})


if __name__ == "__main__":
    main()
