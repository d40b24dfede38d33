import json
import threading
from pathlib import Path

import pytest

from lowtide.importers import torch_cost_cache
from lowtide.importers.torch_cost_cache import CostCache, default_cost_cache, machine_name


def cache_in(folder: Path, machine: str = "m") -> CostCache:
    return CostCache(machine=machine, folder=folder)


def saved_path(folder: Path) -> Path:
    cache = cache_in(folder)
    cache.put("mm", duration_ns=5, workspace_bytes=64)
    cache.save()
    assert cache.path is not None
    return cache.path


def test_what_is_saved_is_found_again_on_the_same_machine(tmp_path: Path) -> None:
    saved_path(tmp_path / "new" / "folder")
    assert cache_in(tmp_path / "new" / "folder").get("mm") == (5, 64)
    assert cache_in(tmp_path / "new" / "folder").get("bmm") is None
    assert cache_in(tmp_path / "new" / "folder", "other").get("mm") is None


def test_two_processes_do_not_lose_each_others_entries(tmp_path: Path) -> None:
    first, second = cache_in(tmp_path), cache_in(tmp_path)
    first.put("mm", duration_ns=1, workspace_bytes=0)
    second.put("bmm", duration_ns=2, workspace_bytes=0)
    first.save()
    second.save()
    assert [cache_in(tmp_path).get(name) for name in ("mm", "bmm")] == [(1, 0), (2, 0)]


def test_many_writers_leave_a_whole_file(tmp_path: Path) -> None:
    def write(index: int) -> None:
        cache = cache_in(tmp_path)
        cache.put(f"op{index}", duration_ns=index, workspace_bytes=0)
        cache.save()

    threads = [threading.Thread(target=write, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = cache_in(tmp_path).path
    assert path is not None
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == "lowtide.costs"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '{"format": "lowtide.costs", "version": 1, "machine": "m", "costs": []}',
        '{"format": "lowtide.costs", "version": 2, "machine": "m", "costs": {"a": [1, 2]}}',
        '{"format": "lowtide.costs", "version": 2, "machine": "m", "costs": [["a", [1]]]}',
        '{"format": "lowtide.costs", "version": 2, "machine": "m", "costs": [["a", [-1, 2]]]}',
        '{"format": "lowtide.costs", "version": 2, "machine": "m", "costs": [["a", [true, 2]]]}',
        '{"format": "lowtide.costs", "version": 2, "machine": "m", "costs": [["a", [1e9, 2]]]}',
    ],
)
def test_a_broken_file_is_no_cache_and_is_replaced(tmp_path: Path, text: str) -> None:
    path = saved_path(tmp_path)
    path.write_text(text, encoding="utf-8")
    assert cache_in(tmp_path).get("mm") is None
    saved_path(tmp_path)
    assert cache_in(tmp_path).get("mm") == (5, 64)


def test_a_folder_that_cannot_be_made_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache = cache_in(tmp_path / "file" / "below")  # also root cannot make a folder below a file
    cache.put("mm", duration_ns=5, workspace_bytes=64)
    cache.save()
    assert cache.get("mm") == (5, 64)
    assert cache_in(tmp_path / "file" / "below").get("mm") is None


def test_size_is_bounded_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_cost_cache, "_MOST_ENTRIES", 3)
    monkeypatch.setattr(torch_cost_cache, "_MOST_FILES", 2)
    cache = cache_in(tmp_path)
    for index in range(5):
        cache.put(f"op{index}", duration_ns=index, workspace_bytes=0)
    cache.save()
    reread = cache_in(tmp_path)
    assert [reread.get(f"op{index}") for index in range(5)] == [None, None, (2, 0), (3, 0), (4, 0)]
    for index in range(4):
        other = cache_in(tmp_path, f"machine{index}")
        other.put("mm", duration_ns=1, workspace_bytes=0)
        other.save()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_file_is_read_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    load = torch_cost_cache.load_document
    monkeypatch.setattr(torch_cost_cache, "load_document", lambda path: reads.append(path) or load(path))
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "first"))
    saved_path(tmp_path / "first")
    reads.clear()
    assert {id(default_cost_cache()) for _ in range(3)} == {id(default_cost_cache())}
    assert default_cost_cache().path is not None
    assert reads == []  # the file of this machine is not there yet
    default_cost_cache().put("mm", duration_ns=7, workspace_bytes=0)
    default_cost_cache().save()
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "second"))
    assert default_cost_cache().get("mm") is None, "another folder has other costs"
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "first"))
    torch_cost_cache._opened.cache_clear()  # what a new process is
    assert [default_cost_cache().get("mm") for _ in range(3)] == [(7, 0)] * 3
    assert reads == [default_cost_cache().path]


def test_what_could_not_be_saved_is_saved_later(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("in the way", encoding="utf-8")
    cache = cache_in(tmp_path / "folder")
    cache.put("mm", duration_ns=5, workspace_bytes=64)
    cache.save()
    (tmp_path / "folder").unlink()
    cache.put("bmm", duration_ns=6, workspace_bytes=0)
    cache.save()
    assert [cache_in(tmp_path / "folder").get(name) for name in ("mm", "bmm")] == [(5, 64), (6, 0)]


def test_machine_names_threads_and_torch() -> None:
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert "; 1 threads; torch " + torch.__version__ in machine_name()
        torch.set_num_threads(2)
        assert "; 2 threads; " in machine_name()
    finally:
        torch.set_num_threads(threads)
