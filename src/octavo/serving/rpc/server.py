"""The gRPC server, beside the HTTP server in its event loop."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from octavo.errors import EngineError
from octavo.rpc import (
    generation_pb2,
    generation_pb2_grpc,
    open_inference_pb2,
    open_inference_pb2_grpc,
)
from octavo.serving.context import Serving
from octavo.serving.rpc.access import ApiKeyInterceptor
from octavo.serving.rpc.generation import GenerationService
from octavo.serving.rpc.health import Health
from octavo.serving.rpc.inference import InferenceService
from octavo.serving.rpc.observe import RecordInterceptor

MAX_METADATA_BYTES = 16 << 10

_log = logging.getLogger("octavo.serving")


class RpcServer:
    """Generation, the Open Inference Protocol, health and reflection on one port."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self.port = 0
        options = serving.options
        self._server = grpc.aio.server(
            interceptors=[
                RecordInterceptor(),
                *([ApiKeyInterceptor(serving.keyring)] if serving.keyring else []),
            ],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", options.max_body_bytes),
                ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            ],
        )
        self._add_services()

    def _add_services(self) -> None:
        services = (
            generation_pb2.DESCRIPTOR.services_by_name["Generation"].full_name,
            open_inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name,
        )
        serving, server = self._serving, self._server
        generation_pb2_grpc.add_GenerationServicer_to_server(GenerationService(serving), server)
        open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            InferenceService(serving), server
        )
        health_pb2_grpc.add_HealthServicer_to_server(Health(serving, services), server)
        health = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*services, health, reflection.SERVICE_NAME), server)

    async def start(self) -> None:
        """Listen. Raises EngineError if the port is taken."""
        options = self._serving.options
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{host}:{options.grpc_port}"
        try:
            self.port = self._listen(address)
        except RuntimeError as error:
            raise EngineError(f"serve: gRPC cannot listen on {address}: {error}") from error
        await self._server.start()
        _log.info("gRPC is served on port %d", self.port)

    def _listen(self, address: str) -> int:
        """The port that is had; with HTTPS the same certificate serves here."""
        tls = self._serving.options.tls
        if tls is None:
            return int(self._server.add_insecure_port(address))
        authority = tls.client_ca_file and Path(tls.client_ca_file).read_bytes()
        pair = (Path(tls.key_file).read_bytes(), Path(tls.certificate_file).read_bytes())
        credentials = grpc.ssl_server_credentials([pair], authority, authority is not None)
        return int(self._server.add_secure_port(address, credentials))

    async def stop(self) -> None:
        """Take no more calls. Those that run have had their time if the server was drained before,
        and get it now if not."""
        drained = self._serving.is_draining
        await self._server.stop(0 if drained else self._serving.options.shutdown_timeout_s)
