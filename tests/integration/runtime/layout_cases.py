"""Tensors that are no plain strided memory: what is done with them, in plain PyTorch and within a budget alike.

Each case is a function of `evict`, which drops the bytes of all tensors given to it where that is possible; in plain
PyTorch it does nothing. It returns tensors to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from session_cases import source
from torch import Tensor, nn
from torch.utils._pytree import tree_map

Evict = Callable[..., None]
Case = Callable[[Evict], list[Tensor]]

SPARSE: dict[str, Case] = {}
NESTED: dict[str, Case] = {}
OTHERS: dict[str, Case] = {}


def _case(table: dict[str, Case]) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        table[function.__name__.strip("_").replace("_", " ")] = function
        return function

    return add


def _computed(seed: int = 0, *, size: int = 96) -> Tensor:
    """Something that can be computed again."""
    return source(seed, size=size) * 2 + 1


def _thin(seed: int = 0) -> Tensor:
    """Mostly zeros."""
    value = _computed(seed)
    return value * (value > 2.5)


# ---------------------------------------------------------------------------------------------------- sparse
@_case(SPARSE)
def _coo_there_and_back(evict: Evict) -> list[Tensor]:
    dense = _thin()
    evict(dense)
    sparse = dense.to_sparse()
    evict(dense, sparse.indices(), sparse.values())
    back = sparse.to_dense()
    doubled = (sparse * 2).to_dense()
    evict(back, doubled, sparse.indices(), sparse.values())
    return [sparse.indices(), sparse.values(), back, doubled]


@_case(SPARSE)
def _coo_from_computed_parts(evict: Evict) -> list[Tensor]:
    indices = torch.stack([torch.arange(96), torch.arange(96).flip(0)]) * 1
    values = _computed()[0] * 3
    sparse = torch.sparse_coo_tensor(indices, values, (96, 96), check_invariants=True)
    evict(indices, values)
    product = torch.sparse.mm(sparse, _computed(1))
    evict(indices, values, product)
    total = (sparse + sparse).coalesce()
    evict(indices, values, total.values(), total.indices())
    return [product, total.to_dense(), sparse.to_dense(), torch.sparse.sum(sparse)]


@_case(SPARSE)
def _coo_products(evict: Evict) -> list[Tensor]:
    sparse, other, bias = _thin().to_sparse(), _computed(1), _computed(2)
    results = []
    for operation in (
        lambda: sparse @ other,
        lambda: torch.sparse.addmm(bias, sparse, other, beta=0.5),
        lambda: torch.addmm(bias, sparse, other),
        lambda: bias + sparse,
        lambda: sparse.sparse_mask(_thin(3).to_sparse()).to_dense(),
        lambda: torch.sparse.softmax(sparse, 1).to_dense(),
        lambda: (sparse.t() * sparse.t()).to_dense(),
        lambda: torch.cat([sparse, sparse]).to_dense(),
        lambda: sparse.index_select(0, torch.tensor([3, 4])).to_dense(),
    ):
        evict(sparse.indices(), sparse.values(), other, bias)
        results.append(operation())
        evict(results[-1])
    return results


@_case(SPARSE)
def _coo_in_place(evict: Evict) -> list[Tensor]:
    dense, sparse = _computed(1), _thin().to_sparse()
    before = dense * 3
    evict(before, dense, sparse._values(), sparse._indices())
    dense.add_(sparse)
    evict(before, dense)
    old = sparse._values() * 2
    evict(old, sparse._values())
    sparse.mul_(3)
    evict(old, sparse._values(), sparse._indices())
    return [before, dense, dense * 2, old, sparse.to_dense()]


@_case(SPARSE)
def _coo_gradients(evict: Evict) -> list[Tensor]:
    weight = source(1).requires_grad_()
    values = source(2)[0].requires_grad_()
    indices = torch.stack([torch.arange(96), torch.arange(96).flip(0)])
    sparse = torch.sparse_coo_tensor(indices, values * 2, (96, 96))
    product = torch.sparse.mm(sparse, weight * 3)
    evict(product)
    hidden = product.tanh()
    evict(product, hidden)
    hidden.square().sum().backward()
    assert weight.grad is not None
    assert values.grad is not None
    return [hidden, weight.grad, values.grad]


def _embedding(make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> Case:
    def run(evict: Evict) -> list[Tensor]:
        torch.manual_seed(0)
        embedding, head = nn.Embedding(300, 64, sparse=True), nn.Linear(64, 8)
        dense = torch.optim.SGD(head.parameters(), lr=0.1)
        optimizer = make(list(embedding.parameters()))
        for step in range(4):
            words = torch.randint(300, (32, 16), generator=torch.Generator().manual_seed(step))
            hidden = embedding(words).tanh()
            evict(hidden)
            head(hidden.mean(1)).square().sum().backward()
            grad = embedding.weight.grad
            assert grad is not None
            evict(grad._values(), grad._indices())
            for one in (optimizer, dense):
                one.step()
                one.zero_grad()
        return [embedding.weight.detach(), head.weight.detach(), hidden]

    return run


SPARSE["embedding with sgd"] = _embedding(lambda parameters: torch.optim.SGD(parameters, lr=0.1))
SPARSE["embedding with adagrad"] = _embedding(lambda parameters: torch.optim.Adagrad(parameters, lr=0.1))
SPARSE["embedding with sparse adam"] = _embedding(lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1))


@_case(SPARSE)
def _csr(evict: Evict) -> list[Tensor]:
    dense, other = _thin(), _computed(1)
    sparse = dense.to_sparse_csr()
    results = []
    for operation in (
        lambda: sparse @ other,
        lambda: sparse @ other[:, 0],
        sparse.to_dense,
        lambda: (sparse * 2).to_dense(),
        lambda: sparse.to_sparse_coo().to_dense(),
        lambda: torch.addmm(other, sparse, other),
        lambda: sparse.values() * 2,
        lambda: sparse.transpose(0, 1).to_dense(),
    ):
        evict(sparse.crow_indices(), sparse.col_indices(), sparse.values(), other)
        results.append(operation())
        evict(results[-1])
    return results


@_case(SPARSE)
def _blocked(evict: Evict) -> list[Tensor]:
    sparse = _thin().to_sparse_bsr((8, 8))
    evict(sparse.crow_indices(), sparse.col_indices(), sparse.values())
    back, other = sparse.to_dense(), _computed(1)
    evict(back, other)
    return [back, sparse @ other, _thin().to_sparse_csc().to_dense()]


# ---------------------------------------------------------------------------------------------------- nested
@_case(NESTED)
def _nested_there_and_back(evict: Evict) -> list[Tensor]:
    parts = [_computed(0)[:50], _computed(1)[:80]]
    nested = torch.nested.nested_tensor(parts)
    evict(*parts, nested)
    padded = torch.nested.to_padded_tensor(nested, 0.5)
    doubled = nested * 2
    evict(padded, doubled, nested)
    one, other = doubled.unbind()
    evict(doubled, nested)
    return [padded, one * 1, other * 1, nested.unbind()[1] + 1]


@_case(NESTED)
def _nested_layers(evict: Evict) -> list[Tensor]:
    torch.manual_seed(0)
    layer, norm = nn.Linear(96, 32), nn.LayerNorm(32)
    parts = [_computed(0)[:50].requires_grad_(False), _computed(1)[:80]]
    nested = torch.nested.as_nested_tensor(parts)
    evict(*parts, nested)
    hidden = layer(nested)
    evict(hidden, nested)
    result = norm(torch.nn.functional.gelu(hidden))
    evict(result, hidden)
    padded = result.to_padded_tensor(0.0)
    evict(padded)
    padded.square().sum().backward()
    assert layer.weight.grad is not None
    return [padded.detach(), layer.weight.grad]


@_case(NESTED)
def _jagged(evict: Evict) -> list[Tensor]:
    torch.manual_seed(0)
    layer = nn.Linear(96, 32)
    parts = [_computed(0)[:50], _computed(1)[:80]]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    evict(*parts, nested.values())
    hidden = torch.nn.functional.gelu(layer(nested))
    evict(hidden.values(), nested.values(), nested.offsets())
    hidden.values().square().sum().backward()
    assert layer.weight.grad is not None
    return [hidden.values().detach(), layer.weight.grad, hidden.to_padded_tensor(0.0).detach()]


@_case(NESTED)
def _encoder_with_padding(evict: Evict) -> list[Tensor]:
    """Torch's fast path makes nested tensors by itself."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    value = _computed().view(4, 72, 32)
    mask = torch.arange(72) >= torch.tensor([72, 40, 20, 60]).unsqueeze(1)
    evict(value)
    with torch.no_grad():
        result = encoder(value, src_key_padding_mask=mask)
    evict(result, value)
    return [result, value * 2]


# ---------------------------------------------------------------------------------------------------- others
@_case(OTHERS)
def _quantized_per_tensor(evict: Evict) -> list[Tensor]:
    value = _computed()
    quantized = torch.quantize_per_tensor(value, 0.05, 10, torch.qint8)
    evict(value, quantized)
    back = quantized.dequantize()
    evict(back, quantized)
    return [back, quantized.int_repr() * 1, torch.relu(quantized).dequantize(), quantized[3:5].dequantize()]


@_case(OTHERS)
def _quantized_per_channel(evict: Evict) -> list[Tensor]:
    value = _computed()
    scales = value.double().abs().amax(1) / 127
    points = torch.zeros(96, dtype=torch.long) + 3
    quantized = torch.quantize_per_channel(value, scales, points, 0, torch.qint8)
    evict(value, scales, points, quantized)
    back = quantized.dequantize()
    evict(value, scales, points, quantized, back)
    return [back, quantized.q_per_channel_scales() * 1, quantized.clone().dequantize(), quantized.int_repr() + 0]


@_case(OTHERS)
def _quantized_layers(evict: Evict) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    value = _computed()
    evict(value)
    with torch.no_grad():
        result = quantized(value)
    evict(result, value)
    return [result, value]


@_case(OTHERS)
def _fake_quantized(evict: Evict) -> list[Tensor]:
    value = source().requires_grad_()
    hidden = torch.fake_quantize_per_tensor_affine(value * 2, 0.1, 0, -128, 127)
    evict(hidden)
    hidden.square().sum().backward()
    assert value.grad is not None
    return [hidden.detach(), value.grad]


@_case(OTHERS)
def _complex(evict: Evict) -> list[Tensor]:
    value = source().requires_grad_()
    spectrum = torch.fft.fft2(value * 2)
    evict(spectrum)
    conjugate = spectrum.conj()
    product = conjugate * spectrum.mT
    negative = spectrum.imag * 3 + torch.view_as_real(conjugate.resolve_conj())[..., 0]
    evict(spectrum, product, negative, conjugate)
    imaginary = conjugate.imag  # lazily negated
    (product.abs().sum() + negative.sum() + imaginary.square().sum()).backward()
    evict(spectrum, product, negative)
    assert value.grad is not None
    return [product.detach(), negative.detach(), imaginary.detach() + 0, value.grad, spectrum.detach().conj() + 1]


@_case(OTHERS)
def _complex_in_place(evict: Evict) -> list[Tensor]:
    value = torch.complex(_computed(0), _computed(1))
    before = value.conj() * 2
    evict(before, value)
    value.conj().mul_(torch.complex(_computed(2), _computed(3)))
    value.imag.add_(1)
    evict(before, value)
    return [before, value * 1, value.conj() + 0]


@_case(OTHERS)
def _meta(evict: Evict) -> list[Tensor]:
    value = _computed()
    shape = torch.mm(value.to("meta"), torch.empty(96, 5, device="meta"))
    with torch.device("meta"):
        layer = nn.Linear(96, 7)
    evict(value)
    made = layer.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(0.25)
    evict(value)
    result = made(value).detach()
    evict(result)
    return [result, torch.tensor(shape.shape), value]


@_case(OTHERS)
def _bfloat16_and_others(evict: Evict) -> list[Tensor]:
    results = []
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int8, torch.bool, torch.complex64):
        value = _computed().to(dtype)
        evict(value)
        copied = value.clone()
        evict(value, copied)
        results += [value.view(torch.uint8).clone() if dtype.itemsize == 1 else value * 2, copied.to(torch.complex64)]
    return results


class Logged(Tensor):
    """Goes through `__torch_function__`."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Counts."""
        cls.calls += 1
        return super().__torch_function__(function, types, arguments, named or {})


class Scaled(Tensor):
    """A wrapper around two tensors, in the manner of quantized weights: its bytes are theirs."""

    @staticmethod
    def __new__(cls: type[Scaled], data: Tensor, scale: Tensor) -> Scaled:
        """Without memory of its own."""
        return Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype, device=data.device)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, data: Tensor, scale: Tensor) -> None:
        self.inner, self.scale = data, scale

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Computes with what the two stand for."""

        def unwrapped(value: Any) -> Any:
            return value.inner.to(value.scale.dtype) * value.scale if isinstance(value, cls) else value

        return function(*tree_map(unwrapped, arguments), **tree_map(unwrapped, named or {}))


@_case(OTHERS)
def _subclasses(evict: Evict) -> list[Tensor]:
    logged = _computed().as_subclass(Logged)
    evict(logged)
    product = logged @ logged
    evict(logged, product)
    scaled = Scaled((_computed(1) * 10).to(torch.int8), _computed(2)[0])
    evict(scaled.inner, scaled.scale)
    dense = source(3).requires_grad_()
    result = torch.nn.functional.linear(dense * 2, scaled).tanh()
    evict(scaled.inner, scaled.scale, result)
    result.sum().backward()
    assert dense.grad is not None
    return [product.as_subclass(Tensor) + 0, result.detach(), dense.grad]


@_case(OTHERS)
def _attention_biases(evict: Evict) -> list[Tensor]:
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    results = []
    for bias in (causal_upper_left(24, 96), causal_lower_right(24, 96), causal_upper_left(96, 96)):
        length = bias.seq_len_q
        query = _computed(0).view(2, 2, 96, 24)[:, :, :length].detach().requires_grad_()
        key, value = _computed(1).view(2, 2, 96, 24), _computed(2).view(2, 2, 96, 24)
        result = torch.nn.functional.scaled_dot_product_attention(query * 1, key, value, attn_mask=bias)
        evict(result, key, value)
        result.square().sum().backward()
        assert query.grad is not None
        results += [result.detach(), query.grad]
    return results


@_case(OTHERS)
def _masked(evict: Evict) -> list[Tensor]:
    value, mask = _computed(), _computed(1) > 0
    masked = torch.masked.masked_tensor(value, mask)
    evict(value, mask)
    total = (masked * 2).sum(0)
    evict(value, mask)
    return [total.get_data() * 1, total.get_mask().clone(), masked.to_tensor(0.0)]


@_case(OTHERS)
def _vectorized(evict: Evict) -> list[Tensor]:
    value, weight = _computed(), _computed(1)
    evict(value, weight)
    rows = torch.vmap(lambda row: (weight @ row).tanh())(value)
    slopes = torch.func.vmap(torch.func.grad(lambda row: (weight @ row).tanh().sum()))(value[:8])
    forward, tangent = torch.func.jvp(lambda one: (one @ weight).sin(), (value,), (weight,))
    evict(rows, slopes, forward, tangent)
    return [rows, slopes, forward, tangent]


@_case(OTHERS)
def _onednn_layout(evict: Evict) -> list[Tensor]:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 8, 3).eval()
    value = _computed().view(1, 1, 96, 96).expand(2, 3, 96, 96).contiguous()
    evict(value)
    with torch.no_grad():
        result = layer(value.to_mkldnn()).relu_().to_dense()
    evict(result, value)
    return [result, value * 2]


@_case(OTHERS)
def _expanded_and_overlapping(evict: Evict) -> list[Tensor]:
    value = _computed()
    wide = value[:1].expand(96, 96) + 0
    windows = value.view(-1).as_strided((100, 96), (32, 1)) * 2
    evict(value, wide, windows)
    zero = torch._efficientzerotensor((96, 96)) + value
    evict(value, wide, windows, zero)
    return [wide, windows, zero]
