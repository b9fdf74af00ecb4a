"""Model servers, as both a job's process and an agent put them to sleep and wake them."""

from slicelock.servers.address import Address
from slicelock.servers.http import NoAnswer, Refused, ServerError, Wire
from slicelock.servers.plan import Kind, Mode, Plan
from slicelock.servers.server import ModelServer, Record
from slicelock.servers.sglang import Sglang
from slicelock.servers.vllm import Vllm, VllmControl
from slicelock.servers.vllm_http import VllmHttp

__all__ = [
    "Address",
    "Kind",
    "Mode",
    "ModelServer",
    "NoAnswer",
    "Plan",
    "Record",
    "Refused",
    "ServerError",
    "Sglang",
    "Vllm",
    "VllmControl",
    "VllmHttp",
    "Wire",
]
