# SPDX-License-Identifier: Apache-2.0
"""The store of responses: its bounds, its owners, and what survives a restart."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tokenlight.base.errors import ConfigError, InvalidRequest, ResponseNotFound
from tokenlight.server import store as store_module
from tokenlight.server.store import ResponseStore, StoredResponse, owner_of
from tokenlight.text.conversation import Reasoning, Text, ToolCall, ToolResult, Turn

ME, YOU = owner_of("me"), owner_of("you")
JSON_1000 = b'{"x": "%b"}' % (b"x" * 991)


@pytest.fixture
def make_store(request):
    def make(path=None, *, max_bytes=1 << 20, max_age_s=3600.0):
        made = ResponseStore(path, max_bytes=max_bytes, max_age_s=max_age_s)
        request.addfinalizer(made.close)
        return made

    return make


def stored(id: str, *, previous_id=None, response=b"{}", say=None) -> StoredResponse:
    turns = [Turn("user", (Text(say or id),))]
    return StoredResponse(
        id=id, previous_id=previous_id, response=response, input=[{"id": id}], turns=turns
    )


async def test_what_is_saved_is_read(make_store):
    store = make_store()
    turn = Turn(
        "assistant", (Reasoning("hm"), Text("ü"), ToolCall("c", "ls", "{"), ToolResult("c", "x"))
    )
    await store.save(
        ME,
        StoredResponse(
            id="a", previous_id=None, response=b'{"x":1}', input=[{"k": [1]}], turns=[turn]
        ),
    )
    assert await store.get_response(ME, "a") == b'{"x":1}'
    assert await store.get_input(ME, "a") == [{"k": [1]}]
    assert await store.get_turns(ME, "a") == [turn]


async def test_items_are_found_by_their_writer_and_go_with_their_response(make_store):
    store = make_store()
    response = b'{"output": [{"id": "out", "x": 1}]}'
    await store.save(ME, stored("a", response=response))
    assert await store.get_item(ME, "out") == {"id": "out", "x": 1}
    assert await store.get_item(ME, "a") == {"id": "a"}
    with pytest.raises(InvalidRequest):
        await store.get_item(YOU, "out")
    await store.delete(ME, "a")
    with pytest.raises(InvalidRequest):
        await store.get_item(ME, "out")


async def test_a_chain_is_read_from_its_beginning(make_store):
    store = make_store()
    for i in range(50):
        await store.save(ME, stored(f"r{i}", previous_id=f"r{i - 1}" if i else None))
    assert [t.text for t in await store.get_turns(ME, "r49")] == [f"r{i}" for i in range(50)]
    assert [t.text for t in await store.get_turns(ME, "r1")] == ["r0", "r1"]


async def test_a_chain_with_a_hole_is_refused_not_shortened(make_store):
    store = make_store()
    for i in range(3):
        await store.save(ME, stored(f"r{i}", previous_id=f"r{i - 1}" if i else None))
    await store.delete(ME, "r1")
    with pytest.raises(InvalidRequest, match="r2"):
        await store.get_turns(ME, "r2")
    assert len(await store.get_turns(ME, "r0")) == 1


async def test_the_oldest_give_way_to_the_bound_on_bytes(make_store):
    store = make_store(max_bytes=5000)
    for i in range(20):
        await store.save(ME, stored(f"r{i}", response=JSON_1000))
        assert store.num_bytes <= 5000
    with pytest.raises(ResponseNotFound):
        await store.get_response(ME, "r0")
    assert await store.get_response(ME, "r19") == JSON_1000


async def test_one_that_is_larger_than_the_bound_is_not_kept_and_drives_nobody_out(make_store):
    store = make_store(max_bytes=5000)
    await store.save(ME, stored("small"))
    await store.save(ME, stored("huge", response=b'{"x": "%b"}' % (b"x" * 6000)))
    assert await store.get_response(ME, "small")
    with pytest.raises(ResponseNotFound):
        await store.get_response(ME, "huge")


async def test_what_is_too_old_is_neither_read_nor_kept(make_store, monkeypatch):
    store = make_store(max_age_s=100)
    await store.save(ME, stored("old"))
    now_s = store_module.unix_s()
    monkeypatch.setattr(store_module, "unix_s", lambda: now_s + 101)
    with pytest.raises(ResponseNotFound):
        await store.get_response(ME, "old")
    with pytest.raises(InvalidRequest):
        await store.get_turns(ME, "old")
    before = store.num_bytes
    await store.save(ME, stored("new"))
    assert store.num_bytes < 2 * before


async def test_another_owner_can_neither_read_nor_delete_nor_continue(make_store):
    store = make_store()
    await store.save(ME, stored("a"))
    for attempt in (store.get_response, store.get_input, store.delete):
        with pytest.raises(ResponseNotFound):
            await attempt(YOU, "a")
    with pytest.raises(InvalidRequest):
        await store.get_turns(YOU, "a")
    await store.save(YOU, stored("b", previous_id="a"))
    with pytest.raises(InvalidRequest):
        await store.get_turns(YOU, "b")


async def test_a_file_survives_a_restart_and_holds_no_key(make_store, tmp_path):
    path = tmp_path / "responses.sqlite"
    first = make_store(str(path))
    await first.save(owner_of("s3cret"), stored("a", say="kept"))
    num_bytes = first.num_bytes
    first.close()
    again = make_store(str(path))
    assert again.num_bytes == num_bytes
    assert [t.text for t in await again.get_turns(owner_of("s3cret"), "a")] == ["kept"]
    assert b"s3cret" not in path.read_bytes()


async def test_many_at_once_lose_nothing(make_store):
    store = make_store()
    await asyncio.gather(*(store.save(ME, stored(f"r{i}")) for i in range(100)))
    found = await asyncio.gather(*(store.get_input(ME, f"r{i}") for i in range(100)))
    assert found == [[{"id": f"r{i}"}] for i in range(100)]


async def test_nobody_else_may_read_the_file(make_store, tmp_path):
    await make_store(str(tmp_path / "responses.sqlite")).save(ME, stored("a"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_a_folder_that_is_not_there_is_told_at_start(tmp_path):
    with pytest.raises(ConfigError, match=r"--response-store \S+: No such file or directory; name"):
        ResponseStore(str(tmp_path / "none" / "x.sqlite"), max_bytes=1, max_age_s=1)


def test_a_file_that_is_no_database_is_told_at_start(tmp_path):
    path = tmp_path / "not.sqlite"
    path.write_bytes(b"no database at all " * 100)
    with pytest.raises(ConfigError, match="--response-store"):
        ResponseStore(str(path), max_bytes=1, max_age_s=1)


async def test_deleting_frees_the_bytes_that_saving_took(make_store, tmp_path):
    path = tmp_path / "responses.sqlite"
    store = make_store(str(path))
    await store.save(ME, stored("a", response=JSON_1000))
    await store.delete(ME, "a")
    assert store.num_bytes == 0
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM responses").fetchone() == (0,)
    db.close()


async def test_what_cannot_be_written_is_told_in_the_log_and_counted_nowhere(
    make_store, tmp_path, caplog
):
    store = make_store(str(tmp_path / "responses.db"))
    await store.save(ME, stored("resp_1"))
    num_bytes = store.num_bytes
    with closing(sqlite3.connect(tmp_path / "responses.db")) as other:
        other.execute("DROP TABLE items")
        other.commit()
    await store.save(ME, stored("resp_2"))
    assert "response_not_stored id=resp_2" in caplog.text
    assert store.num_bytes == num_bytes
    with pytest.raises(ResponseNotFound):
        await store.get_response(ME, "resp_2")
