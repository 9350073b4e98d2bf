"""The gRPC protocols, as thin translations to engine requests. Needs the "grpc" extra."""

from octavo.serving.rpc.server import RpcServer

__all__ = ["RpcServer"]
