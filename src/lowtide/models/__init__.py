"""Models with random weights for demo, tests and benchmarks, each as a function that needs no argument.

``lowtide capture lowtide.models:unet`` and every other place that takes ``pkg.module:function`` can use
them: the function returns ``(model, example_inputs, loss_function)``, the model in training mode, such that
``loss_function(model(*example_inputs)).backward()`` is one training step's forward and backward. The same
options and the same seed give the same bits. Every model can be compiled as a whole graph
(``torch.compile(backend="aot_eager", fullgraph=True, dynamic=False)``).

| function | what it stresses |
|---|---|
| `unet` | long skip connections, GroupNorm |
| `resnet50_like` | BatchNorm statistics, in-place ReLU |
| `gpt2` | deep residual stream, dropout, large logits; attention "sdpa" or "eager" |
| `bert` | dropout nearly everywhere, ignored labels |
| `swin` | views, rolls, drop path |

`gpt2`, `bert` and `swin` need the package transformers. The `*_tiny` variants are for unit tests.
"""

from __future__ import annotations

from lowtide.models.batchnorm_resnet import resnet50_like, resnet50_like_tiny
from lowtide.models.bert_transformer import bert, bert_tiny
from lowtide.models.common import DTYPES, ExampleModel, LossFunction, cast_example
from lowtide.models.gpt2_transformer import gpt2, gpt2_eager_attention, gpt2_tiny
from lowtide.models.groupnorm_unet import unet, unet_tiny
from lowtide.models.swin_transformer import swin, swin_tiny

__all__ = [
    "DTYPES",
    "ExampleModel",
    "LossFunction",
    "bert",
    "bert_tiny",
    "cast_example",
    "gpt2",
    "gpt2_eager_attention",
    "gpt2_tiny",
    "resnet50_like",
    "resnet50_like_tiny",
    "swin",
    "swin_tiny",
    "unet",
    "unet_tiny",
]
