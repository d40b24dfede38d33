"""An .onnx model with row bands, planned, as the runtime executes it: figures are against the file without bands.

portable    ONNX Runtime's optimised model ──bands──▶ planned as it is
machine     the same bands, then ONNX Runtime gives each of them its layouts for this processor ──▶ planned
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowtide.emit.bands.onnx_net import onnx_net
from lowtide.emit.bands.onnx_rewrite import with_bands
from lowtide.emit.bands.search import BandChoice, BandOptions, choose_bands
from lowtide.emit.onnx import OnnxExport, export_onnx
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import OnnxFile
from lowtide.importers.onnx_ops import op_of
from lowtide.referee import VerifiedPlan, baseline

__all__ = ["BandedOnnx", "choose_onnx_bands", "export_onnx_bands", "import_onnx_bands", "onnx_ops_of"]

_LEVEL_AFTER_BANDS = {"portable": "none", "machine": "machine"}
"""How far ONNX Runtime optimises a model that has bands already, by the level of the original."""


@dataclass(frozen=True, slots=True)
class BandedOnnx:
    """A model with bands, ready to be planned.

    Attributes:
        original: The model without them.
        portable: The same at the level at which bands are chosen.
        choice: Which bands.
        source: The model with them, as a graph.
    """

    original: OnnxImport
    portable: OnnxImport
    choice: BandChoice
    source: OnnxImport


def choose_onnx_bands(source: OnnxImport, options: BandOptions | None = None) -> BandChoice:
    """Find the bands with which a model needs the least memory on ONNX Runtime, see ``choose_bands``.

    Args:
        source: The model at level ``"portable"``: layouts for a processor cannot be cut.
        options: What may be chosen.
    """
    return choose_bands(onnx_net(source).net, options)


def import_onnx_bands(portable: OnnxImport, choice: BandChoice, *, original: OnnxImport | None = None) -> BandedOnnx:
    """Compute stretches of a model in bands, and read the result as a graph.

    Args:
        portable: The model at level ``"portable"``.
        choice: Which bands.
        original: The model at the level that the new file shall have; ``portable`` by default.

    Raises:
        FormatError: ONNX Runtime refuses the result.
    """
    original = portable if original is None else original
    model = with_bands(portable, onnx_net(portable), choice.bands)
    file = OnnxFile(original.file.where, model, original.file.dims, original.file.size_bytes)
    source = import_onnx(file, level=_LEVEL_AFTER_BANDS[original.level], in_file_order=True)
    return BandedOnnx(original, portable, choice, source)


def export_onnx_bands(banded: BandedOnnx, verified: VerifiedPlan) -> OnnxExport:
    """Write a model with bands so that it runs as planned.

    Args:
        banded: The model.
        verified: A plan for its graph.

    Raises:
        FormatError: The new file would have more than 2 GiB, or onnx's checker refuses it.
    """
    export = export_onnx(replace(banded.source, file=banded.original.file), verified)
    num_added = len(banded.source.graph.nodes) + export.num_recomputes - len(banded.original.graph.nodes)
    return replace(export, before_bytes=baseline(banded.original.graph).peak_bytes, num_recomputes=num_added)


def onnx_ops_of(source: OnnxImport) -> frozenset[str]:
    """The operators that a model has once it is optimised."""
    return frozenset(op_of(node) for node in source.optimised.model.graph.node)
