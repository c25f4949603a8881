# SPDX-License-Identifier: Apache-2.0
"""The part of Triton's model_config.proto that a config.pbtxt of ours may use, as a protobuf
message: names, numbers and types as documented there."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint64": _FIELD.TYPE_UINT64,
    "bool": _FIELD.TYPE_BOOL,
}

# Message -> field -> number, type, whether repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "ModelTensorReshape": {"shape": (1, "int64", True)},
    "ModelInput": {
        "name": (1, "string", False),
        "data_type": (2, "DataType", False),
        "dims": (4, "int64", True),
        "reshape": (5, "ModelTensorReshape", False),
        "optional": (8, "bool", False),
    },
    "ModelOutput": {
        "name": (1, "string", False),
        "data_type": (2, "DataType", False),
        "dims": (3, "int64", True),
        "label_filename": (4, "string", False),
        "reshape": (5, "ModelTensorReshape", False),
    },
    "ModelDynamicBatching": {
        "preferred_batch_size": (1, "int32", True),
        "max_queue_delay_microseconds": (2, "uint64", False),
    },
    "ModelOperations": {"op_library_filename": (1, "string", True)},
    "ModelConfig": {
        "name": (1, "string", False),
        "platform": (2, "string", False),
        "max_batch_size": (4, "int32", False),
        "input": (5, "ModelInput", True),
        "output": (6, "ModelOutput", True),
        "default_model_filename": (8, "string", False),
        "dynamic_batching": (11, "ModelDynamicBatching", False),
        "backend": (17, "string", False),
        "model_operations": (18, "ModelOperations", False),
    },
}

_DATA_TYPES = (
    *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING", "BF16"),
)


def _config_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="model_config_subset.proto", package="inference", syntax="proto3"
    )
    enum = file.enum_type.add(name="DataType")
    for number, name in enumerate(_DATA_TYPES):
        enum.value.add(name=f"TYPE_{name}", number=number)
    for message, fields in _MESSAGES.items():
        entry = file.message_type.add(name=message)
        for name, (number, kind, repeated) in fields.items():
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            field = entry.field.add(name=name, number=number, label=label)
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type = _FIELD.TYPE_ENUM if kind == "DataType" else _FIELD.TYPE_MESSAGE
                field.type_name = f".inference.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


_CONFIG = _config_class()


def parse(text: str) -> Any:
    """Reads a config.pbtxt as Triton does: an unknown field, type or name is an error."""
    return text_format.Parse(text, _CONFIG())
