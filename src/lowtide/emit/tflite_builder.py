"""Builds small .tflite models operator by operator: for tests, benchmarks, and bug reports without a real model.

builder = TfliteBuilder()
x = builder.tensor("x", (1, 8, 8, 4))
y = builder.tensor("y", (1, 8, 8, 4))
builder.operator("RELU", [x], [y])
data = builder.build(inputs=[x], outputs=[y])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.emit.tflite_writer import pack_model
from lowtide.importers.tflite_schema import CUSTOM, tflite_schema

__all__ = ["TfliteBuilder"]

_SCHEMA_VERSION = 3
_FIRST_CODE_WITHOUT_ROOM = 127  # codes from here on do not fit the old field of 8 bits
_SAME_PADDING = 0
_LARGEST_INT8 = 127
_INT8_CONV_VERSION = 3


class TfliteBuilder:
    """Collects tensors and operators; ``build`` packs them."""

    def __init__(self, *, description: str = "lowtide") -> None:
        """Begin a model; ``description`` is stored in it."""
        self._schema = tflite_schema()
        self._description = description
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: dict[tuple[str, int], int] = {}
        self._buffers: list[Any] = [self._schema.BufferT()]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        *,
        dtype: str = "FLOAT32",
        data: npt.NDArray[Any] | None = None,
        scale: float | Sequence[float] | None = None,
        zero_point: int = 0,
        is_variable: bool = False,
    ) -> int:
        """Add a tensor.

        Args:
            name: Its name.
            shape: Its shape.
            dtype: Name of its type in the schema, e.g. ``"INT8"``.
            data: Its elements, if it is constant.
            scale: Of its quantisation; several for one per channel of the first dimension.
            zero_point: Of its quantisation.
            is_variable: Whether it keeps its contents between inferences.

        Returns:
            Its index.
        """
        buffer = self._schema.BufferT()
        if data is not None:
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), dtype=np.uint8)
        self._buffers.append(buffer)
        quantization = None
        if scale is not None:
            scales = [scale] if isinstance(scale, int | float) else list(scale)
            quantization = self._schema.QuantizationParametersT(scale=scales, zeroPoint=[zero_point] * len(scales))
        self._tensors.append(
            self._schema.TensorT(
                shape=list(shape),
                type=getattr(self._schema.TensorType, dtype),
                buffer=len(self._buffers) - 1,
                name=name,
                quantization=quantization,
                isVariable=is_variable,
            )
        )
        return len(self._tensors) - 1

    def operator(
        self,
        op: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        options: str | None = None,
        version: int = 1,
        **fields: Any,
    ) -> None:
        """Add an operator; operators run in the order in which they are added.

        Args:
            op: Name in the schema, e.g. ``"CONV_2D"``; ``"CUSTOM:name"`` for a custom one.
            inputs: Tensors it reads; -1 leaves out an optional one.
            outputs: Tensors it writes.
            options: Kind of its options, e.g. ``"Conv2DOptions"``.
            version: Of the operator.
            fields: Fields of the options, as the schema's object API calls them.
        """
        operator = self._schema.OperatorT(
            opcodeIndex=self._codes.setdefault((op, version), len(self._codes)),
            inputs=list(inputs),
            outputs=list(outputs),
        )
        if options is not None:
            operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(self._schema, f"{options}T")(**fields)
        self._operators.append(operator)

    def conv(
        self, source: int, target: int, weights: npt.NDArray[Any], *, stride: int = 1, kind: str = "CONV_2D"
    ) -> None:
        """Add a CONV_2D or DEPTHWISE_CONV_2D with SAME padding and bias 0, of the type that its input has.

        Args:
            source: Its input, FLOAT32 or INT8.
            target: Its output.
            weights: (out, height, width, in) for CONV_2D, (1, height, width, channels) for DEPTHWISE_CONV_2D; for an
                INT8 input they are quantised, symmetrically, with one scale for all channels.
            stride: In both directions.
            kind: Which of the two.
        """
        is_depthwise = kind == "DEPTHWISE_CONV_2D"
        num_channels = weights.shape[3 if is_depthwise else 0]
        name = f"{self._tensors[target].name}/weights"
        quantization = self._tensors[source].quantization
        if quantization is None:
            kernel = self.tensor(name, weights.shape, data=weights.astype(np.float32))
            bias = self.tensor(f"{name}/bias", (num_channels,), data=np.zeros(num_channels, np.float32))
        else:
            scale = float(np.abs(weights).max()) / _LARGEST_INT8 or 1.0
            levels = np.round(weights / scale).astype(np.int8)
            kernel = self.tensor(name, weights.shape, dtype="INT8", data=levels, scale=scale)
            bias = self.tensor(
                f"{name}/bias",
                (num_channels,),
                dtype="INT32",
                data=np.zeros(num_channels, np.int32),
                scale=scale * quantization.scale[0],
            )
        extra: Mapping[str, Any] = {"depthMultiplier": 1} if is_depthwise else {}
        self.operator(
            kind,
            [source, kernel, bias],
            [target],
            options="DepthwiseConv2DOptions" if is_depthwise else "Conv2DOptions",
            version=1 if quantization is None else _INT8_CONV_VERSION,
            padding=_SAME_PADDING,
            strideW=stride,
            strideH=stride,
            **extra,
        )

    def build(
        self,
        *,
        inputs: Sequence[int],
        outputs: Sequence[int],
        signature: str | None = None,
        metadata: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """Pack the model.

        Args:
            inputs: Its input tensors.
            outputs: Its output tensors.
            signature: Key of a signature over all of them, or None.
            metadata: Contents by name.
        """
        schema = self._schema
        buffers = list(self._buffers)
        entries = []
        for name, content in (metadata or {}).items():
            entries.append(schema.MetadataT(name=name, buffer=len(buffers)))
            buffers.append(schema.BufferT(data=np.frombuffer(content, dtype=np.uint8)))
        subgraph = schema.SubGraphT(
            tensors=self._tensors, inputs=list(inputs), outputs=list(outputs), operators=self._operators, name="main"
        )
        model = schema.ModelT(
            version=_SCHEMA_VERSION,
            operatorCodes=[self._code(op, version) for op, version in self._codes],
            subgraphs=[subgraph],
            description=self._description,
            buffers=buffers,
            metadata=entries or None,
        )
        if signature is not None:
            model.signatureDefs = [
                schema.SignatureDefT(
                    inputs=[self._named(index) for index in inputs],
                    outputs=[self._named(index) for index in outputs],
                    signatureKey=signature,
                )
            ]
        return pack_model(model)

    def _named(self, index: int) -> Any:
        return self._schema.TensorMapT(name=self._tensors[index].name, tensorIndex=index)

    def _code(self, op: str, version: int) -> Any:
        builtin, _, custom = op.partition(":")
        number = getattr(self._schema.BuiltinOperator, builtin)
        return self._schema.OperatorCodeT(
            deprecatedBuiltinCode=min(number, _FIRST_CODE_WITHOUT_ROOM),
            builtinCode=number,
            customCode=custom if builtin == CUSTOM else None,
            version=version,
        )
