"""What quantizing costs, by Octavo and by llama.cpp: `python -m benchmarks.quantizing`."""
