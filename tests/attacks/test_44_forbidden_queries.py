"""Attacker: T1, a tenant who may submit workflows; T5, a question that a model turns into SQL.
Action: queries that read files, the network, settings or the clock, write, or are no SELECT.
Must not happen: one of them runs, or leaves the database open to the next query.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.flowmesh_worker.test_sql import ask, rows

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.data.sql import Sql

FORBIDDEN = (
    "select random()",
    "select now()",
    "select current_timestamp",
    "select current_date",
    "select today()",
    "select uuid()",
    "select gen_random_uuid()",
    "select nextval('s')",
    "select current_setting('threads')",
    "select getenv('HOME')",
    "select list_transform([1], lambda x: x + random())",
    "with t as (select random() as r) select * from t",
    "select (select max(random()) from rows)",
    "select * from rows order by random()",
    "select age(timestamp '2020-01-01')",
    "select * from rows using sample 1",
    "select * from rows tablesample 10%",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from parquet_metadata('/etc/passwd')",
    "select * from '/etc/passwd'",
    'select * from "/etc/passwd"',
    "select * from 's3://bucket/x.parquet'",
    "select * from glob('/*')",
    "select * from query('select random()')",
    "select * from query_table('/etc/passwd')",
    "select * from duckdb_settings()",
    "select * from duckdb_settings",
    "select * from duckdb_secrets()",
    "select * from pragma_version()",
    "select * from information_schema.tables",
    "select * from sqlite_master",
    "select * from read_parquet('https://example.com/x')",
    "select 1; select 2",
    "select 1; attach '/tmp/x.db'",
    "set threads = 4",
    "reset lock_configuration",
    "pragma database_list",
    "copy rows to '/tmp/x'",
    "copy (select 1) to '/tmp/x'",
    "export database '/tmp/x'",
    "attach '/tmp/x.db'",
    "install httpfs",
    "load httpfs",
    "create table t (a int)",
    "create macro f() as 1",
    "insert into rows values (1)",
    "delete from rows",
    "drop table rows",
    "call pragma_version()",
    "explain analyze select 1",
    "prepare p as select 1",
    "checkpoint",
)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Sql]:
    one = Sql()
    await one.load({}, HostSettings((), 512, 1, {}, tmp_path))
    yield one
    await one.close()


@pytest.mark.parametrize("query", FORBIDDEN)
async def test_what_the_inputs_alone_do_not_give_is_refused(engine: Sql, query: str) -> None:
    with pytest.raises(AttemptError) as caught:
        await ask(engine, query)
    assert caught.value.failure.kind == FailureKind.BAD_INPUT
    assert "root:" not in str(caught.value)
    assert (await rows(engine, "select max(a) as m from rows")) == [{"m": 2}]
