"""Octavo and llama.cpp against float32: same file, same token ids, same measure."""
