"""Callbacks for the trainers of others: what a budget costs, beside the loss, in the trainer's own log.

| module | for |
|---|---|
| `lowtide.integrations.huggingface` | ``transformers.Trainer`` |
| `lowtide.integrations.lightning` | ``lightning.pytorch.Trainer`` |

Importing a module asks for its trainer; nothing else of lowtide imports them.
"""
