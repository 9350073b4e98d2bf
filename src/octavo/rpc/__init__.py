"""What scripts/protos.py makes of proto/: messages, stubs and servicers for gRPC.

`octavo.rpc.generation_pb2` and `..._pb2_grpc` are Octavo's own service, `open_inference_pb2` and
`..._pb2_grpc` the Open Inference Protocol. Needs the "grpc" extra.
"""
