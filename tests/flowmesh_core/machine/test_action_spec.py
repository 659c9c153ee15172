from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.machine.action_spec import work_of
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

AGENT = builtin_catalog().newest("llm.agent")
GENERATE = builtin_catalog().newest("llm.generate")
IMPORT = builtin_catalog().newest("model.import")


def generated(rows, engine=GENERATE, **params):
    """The size of a generation on so many rows."""
    inputs = {
        "model": Artifact("model", Digest("m"), Digest("m"), size_bytes=16_000_000_000),
        "rows": Artifact("dataset", Digest("r"), Digest("r"), size_bytes=rows * 400, rows=rows),
    }
    return work_of(engine, params, inputs, ("model",), ())


def test_the_rows_of_a_generation_decode_side_by_side():
    work = generated(24, maxTokens=100)
    assert (work.tokens_out, work.decode_steps, work.sequences) == (2400.0, 100.0, 24.0)
    samples = generated(24, maxTokens=100, samples=4)
    assert (samples.tokens_out, samples.decode_steps) == (9600.0, 100.0)


def test_sequences_beyond_an_engines_capacity_decode_in_consecutive_batches():
    work = generated(1024, maxTokens=100)
    assert (work.decode_steps, work.sequences) == (400.0, 256.0)


def test_an_agent_decodes_for_several_turns_but_no_more_than_it_may():
    once = generated(24, maxTokens=100)
    for most, turns in ((1, 1), (2, 2), (8, 3)):
        work = generated(24, AGENT, maxTokens=100, maxTurns=most)
        assert work.tokens_out == turns * once.tokens_out
        assert (work.decode_steps, work.sequences) == (turns * 100.0, 24.0)


def test_the_import_of_a_built_in_model_converts_all_its_bytes():
    def units(uri):
        return work_of(IMPORT, {"uri": uri}, {}, (), ()).units

    assert units("builtin:smollm2-135m-instruct") > 5e8
    assert units("hf://org/name") == 1.0, "not known before it is resolved"
