"""Bytes that leave PyTorch's dispatcher while a budget is active: right values always, whatever was evicted before."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, churn, evictable, evicted, expected, nothing_left, session_of, source  # noqa: F401
from torch import Tensor


def _saved_and_loaded(value: Tensor, *, legacy: bool = False) -> Tensor:
    file = io.BytesIO()
    torch.save({"value": value}, file, _use_new_zipfile_serialization=not legacy)
    file.seek(0)
    loaded: Tensor = torch.load(file)["value"]
    return loaded


def _by_address(value: Tensor) -> Tensor:
    address = value.data_ptr()
    numbers = (ctypes.c_float * value.numel()).from_address(address)
    return torch.tensor(list(numbers)).view(value.shape)


def _by_storage(value: Tensor) -> Tensor:
    return torch.frombuffer(bytearray(bytes(value.untyped_storage())), dtype=value.dtype).view(value.shape)


READS: dict[str, Callable[[Tensor], object]] = {
    "numpy": lambda value: torch.from_numpy(value.numpy().copy()),
    "numpy of a view": lambda value: torch.from_numpy(value.T.numpy().copy()).T,
    "numpy.asarray": lambda value: torch.from_numpy(np.asarray(value).copy()),
    "numpy.array with a type": lambda value: torch.from_numpy(np.asarray(value, dtype=np.float64)),
    "a numpy function": lambda value: torch.tensor(float(np.sum(np.asarray(value)))),
    "numpy.from_dlpack": lambda value: torch.from_numpy(np.from_dlpack(value).copy()),
    "torch.from_dlpack": lambda value: torch.from_dlpack(value).clone(),
    "dlpack capsule": lambda value: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(value)).clone(),
    "torch.to_dlpack": lambda value: torch.from_dlpack(torch.to_dlpack(value)).clone(),
    "data_ptr": _by_address,
    "untyped_storage": _by_storage,
    "storage().tolist": lambda value: (
        torch.tensor(value.untyped_storage().tolist(), dtype=torch.uint8).view(torch.float32).view(value.shape)
    ),
    "tolist": lambda value: torch.tensor(value.tolist()),
    "item": lambda value: torch.tensor([[number.item() for number in row] for row in value]),
    "float": lambda value: torch.tensor([[float(number) for number in row] for row in value]),
    "iteration": lambda value: torch.stack(list(value)),
    "deepcopy": copy.deepcopy,
    "copy": lambda value: copy.copy(value).clone(),
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": _saved_and_loaded,
    "torch.save, legacy": lambda value: _saved_and_loaded(value, legacy=True),
    "a view, saved": lambda value: _saved_and_loaded(value.T).T,
    "clone": torch.clone,
    "repr": lambda value: (torch.set_printoptions(profile="full", precision=9), repr(value))[1],
    "format": lambda value: f"{value[0, 0]:.6f}",
    "bool": lambda value: bool((value > -1e9).all()),
    "index": lambda value: [10, 20, 30][(value > 1e9).sum()],
    "share_memory_": lambda value: value.share_memory_().clone(),
    "set_": lambda value: torch.empty(0).set_(value.untyped_storage(), 0, value.shape),
    "resize_ to more": lambda value: value.resize_(200, 96)[:96].clone(),
    "data": lambda value: value.data.clone(),
    "equal": lambda value: torch.equal(value, torch.zeros(1)) or value.clone(),
    "jit": lambda value: torch.jit.script(_scripted)(value),
    "is_shared": lambda value: (value.is_shared(), value.clone())[1],
}


def _scripted(value: Tensor) -> Tensor:
    return (value.relu() - (-value).relu()) * 1.0


@pytest.mark.parametrize("name", READS)
def test_an_evicted_value_is_read_right(shim: ModuleType, name: str) -> None:
    read = READS[name]
    plain = read(expected())
    with session_of():
        got = read(evicted(shim))
        same = torch.equal(got, plain) if isinstance(plain, Tensor) else got == plain
    torch.set_printoptions(profile="default")
    assert same


def _numpy_alias(value: Tensor) -> Callable[[], Tensor]:
    array = value.numpy()
    return lambda: torch.from_numpy(array.copy())


def _dlpack_alias(value: Tensor) -> Callable[[], Tensor]:
    other = torch.from_dlpack(value)
    return other.clone


def _address_alias(value: Tensor) -> Callable[[], Tensor]:
    numbers = (ctypes.c_float * value.numel()).from_address(value.data_ptr())
    return lambda: torch.tensor(list(numbers)).view(value.shape)


def _storage_alias(value: Tensor) -> Callable[[], Tensor]:
    storage = value.untyped_storage()
    return lambda: torch.tensor(storage.tolist(), dtype=torch.uint8).view(torch.float32).view(value.shape)


ALIASES = {"numpy": _numpy_alias, "dlpack": _dlpack_alias, "data_ptr": _address_alias, "storage": _storage_alias}


@pytest.mark.parametrize("name", ALIASES)
def test_an_address_stays_right_however_much_is_evicted(shim: ModuleType, name: str) -> None:
    with session_of(2 * MIB) as session:
        value = evictable()
        read = ALIASES[name](value)
        for _ in range(3):
            churn(6, size=256)
            kept = [source(step) * step for step in range(60)]
        assert session.stats.num_evictions > 0
        assert torch.equal(read(), value)
        del kept
    assert torch.equal(value, expected())


def test_what_is_written_through_numpy_does_not_change_what_was_computed_before(shim: ModuleType) -> None:
    with session_of():
        value = evictable()
        doubled = value * 2
        array = value.numpy()
        after = value * 3
        array[:] = 7.0
        later = value + 1
        assert not shim.evict(after)
        shim.evict(doubled)
        assert torch.equal(value, torch.full((96, 96), 7.0))
        assert torch.equal(later, torch.full((96, 96), 8.0))
    assert torch.equal(doubled, expected() * 2)
    assert torch.equal(after, expected() * 3)


def test_parameters_whose_address_is_taken_can_be_computed_with(shim: ModuleType) -> None:
    with session_of():
        layer = torch.nn.Linear(96, 96)
        layer(source()).sum().backward()
        for parameter in layer.parameters():
            parameter.data_ptr()
            parameter.detach().numpy().sum()
        hidden = layer(source())
        assert shim.evict(hidden)  # it can be computed again
        hidden.sum().backward()


@pytest.mark.parametrize("write", ["apply_", "map_"])
def test_what_python_functions_write_is_seen(shim: ModuleType, write: str) -> None:
    def run(value: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        before = value * 3
        if write == "apply_":
            value.apply_(lambda number: number + 1)
        else:
            value.map_(other, lambda one, two: one + two)
        return before, value * 5

    plain = run(expected(), expected(1))
    with session_of():
        value, other = evicted(shim), evicted(shim, 1)
        before, after = run(value, other)
        for one in (before, value, after):
            shim.evict(one)
        assert torch.equal(before, plain[0])
        assert torch.equal(after, plain[1])


def test_apply_on_a_leaf_that_wants_gradients_is_refused_as_ever(shim: ModuleType) -> None:
    with session_of(), pytest.raises((RuntimeError, TypeError), match="apply_"):
        torch.ones(3, requires_grad=True).apply_(lambda number: number)


@pytest.mark.parametrize("name", [*ALIASES, "pin"])
def test_what_was_kept_is_given_back_when_it_is_dropped(shim: ModuleType, name: str) -> None:
    with session_of(2 * MIB) as session:
        before = session.stats.resident_bytes
        for seed in range(80):
            value = evictable(seed)
            alias = session.pin(value) if name == "pin" else ALIASES[name](value)
            del value, alias
        assert session.stats.resident_bytes <= before + 64 * 1024


def test_deepcopy_and_save_leave_nothing_pinned(shim: ModuleType, tmp_path: Path) -> None:
    with session_of():
        value = evictable()
        copy.deepcopy(value)
        torch.save({"value": value}, tmp_path / "value.pt")
        str(value)
        assert shim.evict(value)
        assert torch.equal(torch.load(tmp_path / "value.pt")["value"], value)


def test_a_module_and_an_optimizer_are_saved_and_loaded(shim: ModuleType, tmp_path: Path) -> None:
    def run() -> list[Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96))
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(3):
            optimizer.zero_grad()
            model(source(step)).square().sum().backward()
            optimizer.step()
            torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
        saved = torch.load(tmp_path / "checkpoint.pt")
        copied = copy.deepcopy(model)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        model(source(9)).square().sum().backward()
        optimizer.step()
        return [value.detach().clone() for value in (*model.parameters(), *copied.parameters())]

    plain = run()
    with session_of(2 * MIB):
        inside = run()
    assert all(torch.equal(one, other) for one, other in zip(plain, inside, strict=True))


def test_mapped_files_are_read_where_they_lie(shim: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    source().numpy().tofile(path)
    torch.save({"value": source()}, tmp_path / "value.pt")
    with session_of(2 * MIB) as session:
        before = session.stats.resident_bytes
        mapped = torch.from_file(str(path), shared=False, size=96 * 96).view(96, 96)
        loaded = torch.load(tmp_path / "value.pt", mmap=True)["value"]
        assert session.stats.resident_bytes - before < 4096
        results = [mapped * 2, loaded * 2]
        for value in results:
            assert shim.evict(value)
        for value in results:
            assert torch.equal(value, source() * 2)


def test_outside_a_budget_torch_is_as_it_was(shim: ModuleType) -> None:
    names = ("numpy", "__array__", "data_ptr", "untyped_storage", "tolist", "apply_", "__deepcopy__", "share_memory_")
    before = {name: getattr(torch.Tensor, name) for name in names}
    owned = dict(vars(torch.Tensor))
    save = torch.save
    with session_of():
        assert torch.Tensor.numpy is not before["numpy"]
    assert {name: getattr(torch.Tensor, name) for name in names} == before
    assert dict(vars(torch.Tensor)) == owned
    assert torch.save is save


def test_a_read_that_nothing_guards_raises_instead_of_lying(shim: ModuleType) -> None:
    with session_of():
        value = evicted(shim)
        with pytest.raises(RuntimeError, match="lowtide has evicted this tensor's bytes"):
            torch._C.TensorBase.data_ptr(value)
        assert torch.equal(value, source() * 2 + 1)


@pytest.mark.parametrize("name", ["numpy", "to", "tolist", "torch.save", "numpy.from_dlpack", "copy"])
def test_values_are_read_right_in_inference_mode(shim: ModuleType, name: str) -> None:
    """There, views that may be copies come to the hook from kernels that choose the next kernel themselves."""
    read = {**READS, "to": lambda value: value.to("cpu").clone()}[name]
    plain = read(expected())
    with session_of():
        before = evicted(shim)
        with torch.inference_mode():
            for value in (before, evicted(shim)):
                got = read(value)
                assert torch.equal(got, plain) if isinstance(plain, Tensor) else got == plain


def test_other_devices_are_refused_in_one_line(shim: ModuleType) -> None:
    from lowtide.errors import InputError

    with session_of():
        value = evictable()
        with pytest.raises(
            InputError, match=r"aten::_to_copy was called for device cuda.* memory of the CPU only"
        ) as caught:
            torch.ops.aten._to_copy(value, device=torch.device("cuda"))
        assert "\n" not in str(caught.value)
        assert value.to("meta").device.type == "meta"
        assert torch.equal(value, source() * 2 + 1)
