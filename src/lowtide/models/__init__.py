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
| `densenet121_like` | concatenations that grow, memory far above the weights |
| `inception_v3_like` | parallel branches of different cost |
| `bilstm`, `bilstm_decomposed` | a recurrent layer as one opaque op, or as thousands of small ones |
| `gpt2` | deep residual stream, dropout, large logits; attention "sdpa" or "eager" |
| `bert` | dropout nearly everywhere, ignored labels |
| `swin` | views, rolls, drop path |

`gpt2`, `bert` and `swin` need the package transformers. The `*_tiny` variants are for unit tests.

Some networks are another one each step. These functions return a `TrainingProgram`, whose ``step(seed)`` trains once;
`training_program(name)` gives one for every model, for recording (``lowtide.importers.torch_record``):

| function | what changes each step |
|---|---|
| `tree_lstm` | the tree |
| `supernet` | the path through the layers |
| `mixture_of_experts` | which expert gets which tokens |
"""

from __future__ import annotations

from lowtide.models.batchnorm_densenet import densenet121_like, densenet121_like_tiny
from lowtide.models.batchnorm_inception import inception_v3_like, inception_v3_like_tiny
from lowtide.models.batchnorm_resnet import resnet50_like, resnet50_like_tiny
from lowtide.models.bert_transformer import bert, bert_tiny
from lowtide.models.bidirectional_lstm import bilstm, bilstm_decomposed, bilstm_decomposed_tiny, bilstm_tiny
from lowtide.models.common import DTYPES, ExampleModel, LossFunction, cast_example
from lowtide.models.expert_transformer import mixture_of_experts, mixture_of_experts_tiny
from lowtide.models.gpt2_transformer import gpt2, gpt2_eager_attention, gpt2_tiny
from lowtide.models.groupnorm_unet import unet, unet_tiny
from lowtide.models.programs import TrainingProgram, program_of_example, training_program
from lowtide.models.random_tree_lstm import tree_lstm, tree_lstm_tiny
from lowtide.models.single_path_supernet import supernet, supernet_tiny
from lowtide.models.swin_transformer import swin, swin_tiny

__all__ = [
    "DTYPES",
    "ExampleModel",
    "LossFunction",
    "TrainingProgram",
    "bert",
    "bert_tiny",
    "bilstm",
    "bilstm_decomposed",
    "bilstm_decomposed_tiny",
    "bilstm_tiny",
    "cast_example",
    "densenet121_like",
    "densenet121_like_tiny",
    "gpt2",
    "gpt2_eager_attention",
    "gpt2_tiny",
    "inception_v3_like",
    "inception_v3_like_tiny",
    "mixture_of_experts",
    "mixture_of_experts_tiny",
    "program_of_example",
    "resnet50_like",
    "resnet50_like_tiny",
    "supernet",
    "supernet_tiny",
    "swin",
    "swin_tiny",
    "training_program",
    "tree_lstm",
    "tree_lstm_tiny",
    "unet",
    "unet_tiny",
]
