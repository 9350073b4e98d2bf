"""Every error Octavo raises on purpose, in one tree.

    OctavoError
    +-- ModelError               a model cannot be used
    |   +-- ModelNotFoundError   no such file, short name or hub id
    |   +-- DownloadError        a fetch failed or its checksum is wrong
    |   +-- FormatError          a file is malformed; the message names the field
    |   +-- UnsupportedError     well-formed, but not something this build can run
    +-- GraphError               a graph breaks an operator's rule (a bug in a model builder)
    +-- BackendError             a backend cannot compile or run a graph
    +-- MemoryPlanError          the model does not fit in this machine's limits
    +-- RequestError             one request is wrong; it hurts only itself
    |   +-- InvalidParameterError  a parameter has a bad value; `.param` names it
    |   +-- PromptTooLongError     prompt + output can never fit
    |   +-- TemplateError          the chat template refused or failed
    |   +-- QueueFullError         refused now, may be retried
    |   +-- DeadlineError          not done by the deadline the request came with
    |   +-- SlowReaderError        the answer is not read as fast as it is written
    |   +-- CrashingRequestError   the engine died of it again and again
    +-- EngineError              the engine cannot go on (dead, hung, shut down)

A message starts with the component, says what it got and what it expected, and ends with what to
do where that is not obvious.
"""


class OctavoError(Exception):
    """Root of the tree; catch this to catch everything Octavo raises on purpose."""


class ModelError(OctavoError):
    """A model cannot be used."""


class ModelNotFoundError(ModelError):
    """No such file, short name or hub id; the message lists what was tried."""


class DownloadError(ModelError):
    """A fetch failed, or what arrived has the wrong size or checksum."""


class FormatError(ModelError):
    """A file is malformed. The message names the file and the field."""


class UnsupportedError(ModelError):
    """The file is well-formed but holds something this build cannot run."""


class GraphError(OctavoError):
    """A graph breaks an operator's shape or type rule."""


class BackendError(OctavoError):
    """A backend cannot compile or run a graph."""


class MemoryPlanError(OctavoError):
    """Weights, KV blocks and arena do not fit in the machine's limits."""


class RequestError(OctavoError):
    """One request is wrong. The engine and every other request go on."""


class InvalidParameterError(RequestError):
    """A request parameter has a bad value; `param` is its name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


class PromptTooLongError(RequestError):
    """Prompt plus requested output can never fit in the context or the KV cache."""


class TemplateError(RequestError):
    """The chat template refused the messages, or failed."""


class QueueFullError(RequestError):
    """The queue is full; the request may be retried later, in `retry_after_s` if that is known."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineError(RequestError):
    """The request was not done, or had not begun to answer, by the deadline it came with.
    `queued`: nothing of it had been computed."""

    def __init__(self, message: str, queued: bool = False) -> None:
        super().__init__(message)
        self.queued = queued


class SlowReaderError(RequestError):
    """More of the answer waits for its reader than may be kept; the request was aborted."""


class CrashingRequestError(RequestError):
    """The engine crashed again and again while it ran this request, which is given up."""


class EngineError(OctavoError):
    """The engine cannot go on: dead, hung or shut down."""
