"""One file per peer. A new peer is a new file here and a line in PEERS."""

from __future__ import annotations

from benchmarks.training.peers.activation_memory_budget import ActivationMemoryBudget
from benchmarks.training.peers.checkpoint_per_block import CheckpointPerBlock
from benchmarks.training.peers.eager import Eager
from benchmarks.training.peers.lowtide_compile import LowtideCompile
from benchmarks.training.peers.setting import Peer, Setting

__all__ = ["EAGER", "LOWTIDE", "PEERS", "Peer", "Setting"]

EAGER = Eager()
LOWTIDE = LowtideCompile()

PEERS: tuple[Peer, ...] = (EAGER, CheckpointPerBlock(), ActivationMemoryBudget(), LOWTIDE)
