"""Model servers, as both a job's process and an agent put them to sleep and wake them.

`plan` is what the owner of a server says of it, `url` where it is, `http` one question to it. `server` has
what all kinds have in common (what is to be undone, and in which order), `vllm` and `sglang` what each kind
needs, `vllm_http` vLLM's endpoints. `fleet` does it for several servers together, `life` tells one start of a
server from the next.
"""

from slicelock.servers.http import HttpClient, NoAnswer, Refused, ServerError
from slicelock.servers.plan import Kind, Plan, SleepMode
from slicelock.servers.server import ModelServer, SleepRecord
from slicelock.servers.sglang import Sglang
from slicelock.servers.url import ServerUrl
from slicelock.servers.vllm import Vllm, VllmControl
from slicelock.servers.vllm_http import VllmHttp

__all__ = [
    "HttpClient",
    "Kind",
    "ModelServer",
    "NoAnswer",
    "Plan",
    "Refused",
    "ServerError",
    "ServerUrl",
    "Sglang",
    "SleepMode",
    "SleepRecord",
    "Vllm",
    "VllmControl",
    "VllmHttp",
]
