"""The native protocol on the server's side. The codec is `holdfast.wire`; here is the mapping."""

from holdfast.gateways.native.connection import NativeConnection, NodeFacts
from holdfast.gateways.native.limits import ConnectionLimits

__all__ = ["ConnectionLimits", "NativeConnection", "NodeFacts"]
