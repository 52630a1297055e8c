from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamMetadata(_message.Message):
    __slots__ = ("stream_id", "last_miniblock_hash", "last_miniblock_num", "nodes", "replication_factor", "sealed")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_MINIBLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    LAST_MINIBLOCK_NUM_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    last_miniblock_hash: bytes
    last_miniblock_num: int
    nodes: _containers.RepeatedScalarFieldContainer[bytes]
    replication_factor: int
    sealed: bool
    def __init__(self, stream_id: _Optional[bytes] = ..., last_miniblock_hash: _Optional[bytes] = ..., last_miniblock_num: _Optional[int] = ..., nodes: _Optional[_Iterable[bytes]] = ..., replication_factor: _Optional[int] = ..., sealed: _Optional[bool] = ...) -> None: ...

class MetadataTx(_message.Message):
    __slots__ = ("create_stream", "set_stream_last_miniblock_batch", "update_stream_nodes_and_replication")
    CREATE_STREAM_FIELD_NUMBER: _ClassVar[int]
    SET_STREAM_LAST_MINIBLOCK_BATCH_FIELD_NUMBER: _ClassVar[int]
    UPDATE_STREAM_NODES_AND_REPLICATION_FIELD_NUMBER: _ClassVar[int]
    create_stream: CreateStreamTx
    set_stream_last_miniblock_batch: SetStreamLastMiniblockBatchTx
    update_stream_nodes_and_replication: UpdateStreamNodesAndReplicationTx
    def __init__(self, create_stream: _Optional[_Union[CreateStreamTx, _Mapping]] = ..., set_stream_last_miniblock_batch: _Optional[_Union[SetStreamLastMiniblockBatchTx, _Mapping]] = ..., update_stream_nodes_and_replication: _Optional[_Union[UpdateStreamNodesAndReplicationTx, _Mapping]] = ...) -> None: ...

class CreateStreamTx(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: StreamMetadata
    def __init__(self, stream: _Optional[_Union[StreamMetadata, _Mapping]] = ...) -> None: ...

class SetStreamLastMiniblockBatchTx(_message.Message):
    __slots__ = ("miniblocks",)
    MINIBLOCKS_FIELD_NUMBER: _ClassVar[int]
    miniblocks: _containers.RepeatedCompositeFieldContainer[MiniblockUpdate]
    def __init__(self, miniblocks: _Optional[_Iterable[_Union[MiniblockUpdate, _Mapping]]] = ...) -> None: ...

class MiniblockUpdate(_message.Message):
    __slots__ = ("stream_id", "prev_miniblock_hash", "last_miniblock_num", "last_miniblock_hash", "sealed")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    PREV_MINIBLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    LAST_MINIBLOCK_NUM_FIELD_NUMBER: _ClassVar[int]
    LAST_MINIBLOCK_HASH_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    prev_miniblock_hash: bytes
    last_miniblock_num: int
    last_miniblock_hash: bytes
    sealed: bool
    def __init__(self, stream_id: _Optional[bytes] = ..., prev_miniblock_hash: _Optional[bytes] = ..., last_miniblock_num: _Optional[int] = ..., last_miniblock_hash: _Optional[bytes] = ..., sealed: _Optional[bool] = ...) -> None: ...

class UpdateStreamNodesAndReplicationTx(_message.Message):
    __slots__ = ("stream_id", "nodes", "replication_factor")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    nodes: _containers.RepeatedScalarFieldContainer[bytes]
    replication_factor: int
    def __init__(self, stream_id: _Optional[bytes] = ..., nodes: _Optional[_Iterable[bytes]] = ..., replication_factor: _Optional[int] = ...) -> None: ...
