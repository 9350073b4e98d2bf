"""The Open Inference Protocol, version 2: health, metadata, and text in for text out."""

from __future__ import annotations

import struct
import time
from typing import Any

from octavo import __version__
from octavo.decoding import SamplingParams
from octavo.engine.types import Request
from octavo.rpc import open_inference_pb2 as pb
from octavo.rpc import open_inference_pb2_grpc
from octavo.serving.context import Serving, off_loop
from octavo.serving.errors import invalid
from octavo.serving.generation import Generation, collect, new_id
from octavo.serving.rpc.origin import Origin, origin_of
from octavo.serving.rpc.status import Context, told

INPUT, OUTPUT, REASON = "text_input", "text_output", "finish_reason"
VERSIONS = ("", "1")
MAX_TEXTS = 256
PARAMETERS = frozenset(
    {
        *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "ignore_eos"),
    }
)


class InferenceService(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers for the one model of the server."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: Context
    ) -> pb.ServerLiveResponse:
        """Always, as this answers."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: Context
    ) -> pb.ServerReadyResponse:
        """Whether requests are taken."""
        return pb.ServerReadyResponse(ready=self._serving.waiting_for is None)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: Context
    ) -> pb.ModelReadyResponse:
        """Whether a model is served and takes requests."""
        known = request.name in self._serving.all_names and request.version in VERSIONS
        return pb.ModelReadyResponse(ready=known and self._serving.waiting_for is None)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Context
    ) -> pb.ServerMetadataResponse:
        """Name and version."""
        return pb.ServerMetadataResponse(name="octavo", version=__version__)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Context
    ) -> pb.ModelMetadataResponse:
        """What the model takes and gives."""
        async with told(context):
            self._check_model(request.name, request.version)
            tensor = pb.ModelMetadataResponse.TensorMetadata
            names = (OUTPUT, REASON)
            return pb.ModelMetadataResponse(
                name=request.name,
                versions=["1"],
                platform="octavo",
                inputs=[tensor(name=INPUT, datatype="BYTES", shape=[-1])],
                outputs=[tensor(name=name, datatype="BYTES", shape=[-1]) for name in names],
            )
        raise AssertionError("unreachable: an abort raises")

    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: Context
    ) -> pb.ModelInferResponse:
        """Continue one or more texts."""
        async with told(context):
            self._check_model(request.model_name, request.model_version)
            self._serving.check_ready()
            generation = await self._generation(request, origin_of(self._serving, context))
            choices = await collect(generation)
            texts = [choice.text.encode() for choice in choices]
            reasons = [(choice.finish_reason or "").encode() for choice in choices]
            return _response(request, {OUTPUT: texts, REASON: reasons})
        raise AssertionError("unreachable: an abort raises")

    async def _generation(self, request: pb.ModelInferRequest, origin: Origin) -> Generation:
        params = SamplingParams(**_parameters(request))
        tokenizer = self._serving.need_tokenizer(INPUT)
        requests = []
        for text in _texts(request):
            ids = await off_loop(len(text), tokenizer.encode, text)
            requests.append(
                Request(
                    request_id=new_id("infer"),
                    prompt_ids=ids,
                    params=params,
                    prompt=text,
                    arrival_s=time.monotonic(),
                    tenant=origin.tenant,
                    deadline_s=origin.deadline_s,
                )
            )
        return Generation(self._serving, requests, INPUT)

    def _check_model(self, name: str, version: str) -> None:
        self._serving.check_model(name)
        if version not in VERSIONS:
            raise invalid("version", f"version: got {version[:80]!r}, the model has version 1 only")


def _texts(request: pb.ModelInferRequest) -> list[str]:
    if len(request.inputs) != 1 or request.inputs[0].name != INPUT:
        raise invalid("inputs", f"inputs: expected one tensor, {INPUT}")
    tensor = request.inputs[0]
    if tensor.datatype != "BYTES":
        raise invalid("inputs", f"{INPUT}.datatype: expected BYTES")
    raw = request.raw_input_contents
    texts = _unpacked(raw[0]) if len(raw) == 1 else list(tensor.contents.bytes_contents)
    if len(raw) > 1 or (raw and tensor.contents.bytes_contents):
        raise invalid("raw_input_contents", "raw_input_contents: expected one, without contents")
    if not 0 < len(texts) <= MAX_TEXTS:
        raise invalid("inputs", f"{INPUT}: expected 1 to {MAX_TEXTS} texts")
    if list(tensor.shape) not in ([len(texts)], [len(texts), 1], [1, len(texts)]):
        raise invalid("inputs", f"{INPUT}.shape: does not fit {len(texts)} texts")
    try:
        return [text.decode() for text in texts]
    except UnicodeDecodeError:
        raise invalid("inputs", f"{INPUT}: is not UTF-8") from None


def _unpacked(raw: bytes) -> list[bytes]:
    """Texts, each behind its length in four bytes."""
    texts: list[bytes] = []
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        text = raw[at + 4 : at + 4 + size]
        if len(raw) < at + 4 or len(text) != size or len(texts) > MAX_TEXTS:
            raise invalid("raw_input_contents", "raw_input_contents: its lengths are wrong")
        texts.append(text)
        at += 4 + size
    return texts


def _parameters(request: pb.ModelInferRequest) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, parameter in request.parameters.items():
        if name not in PARAMETERS:
            raise invalid(name[:80], f"{name[:80]}: there is no such parameter")
        kind = parameter.WhichOneof("parameter_choice")
        given[name] = None if kind is None else getattr(parameter, kind)
    return given


def _response(
    request: pb.ModelInferRequest, outputs: dict[str, list[bytes]]
) -> pb.ModelInferResponse:
    wanted = [output.name for output in request.outputs] or list(outputs)
    for name in wanted:
        if name not in outputs:
            known = f"{OUTPUT} and {REASON}"
            raise invalid("outputs", f"outputs: there is no {name[:80]}; there are {known}")
    response = pb.ModelInferResponse(
        model_name=request.model_name, model_version="1", id=request.id
    )
    is_raw = bool(request.raw_input_contents)
    for name in wanted:
        values = outputs[name]
        tensor = response.outputs.add(name=name, datatype="BYTES", shape=[len(values)])
        if is_raw:  # as the client speaks
            packed = b"".join(struct.pack("<I", len(value)) + value for value in values)
            response.raw_output_contents.append(packed)
        else:
            tensor.contents.bytes_contents.extend(values)
    return response
