"""The paper's group A: five agentic inference workflows, as far as §5.1 describes them.

Reasoning chains, retrieval-augmented generation and multi-agent collaboration over GSM8K, MMLU and
TruthfulQA, with the three Llama models. The graphs are our interpretation (ASSUMED): the paper has
none.
"""

from flowmesh_sim.workloads.workflow_shapes import PlanBuilder, out, shape

HINTED_BESIDES_MIB = 4096
"""Memory that a user requests in addition to the model's weights."""
LARGE, MIDDLE, SMALL = "llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b"


@shape("a-chain")
def chain(m: PlanBuilder) -> None:
    """Reasoning chain: solve, check the solution, revise it, grade."""
    rows = m.data("gsm8k")
    first = m.step(
        "solve",
        "llm.generate",
        {"model": m.model(LARGE), "rows": rows},
        maxTokens=512,
        prompt="solve",
    )
    check = m.step(
        "check",
        "llm.generate",
        {"model": m.model(MIDDLE), "rows": out(first)},
        maxTokens=256,
        prompt="check",
    )
    last = m.step(
        "revise",
        "llm.generate",
        {"model": m.model(LARGE), "rows": out(check)},
        maxTokens=512,
        prompt="revise",
    )
    m.step("grade", "eval.exact-match", {"rows": out(last)}, prediction="answer", target="gold")


@shape("a-rag")
def rag(m: PlanBuilder) -> None:
    """Retrieval-augmented generation: embed, find, answer, score."""
    rows = m.data("truthfulqa")
    corpus = m.data("mmlu", 512, split="corpus")
    queries = m.step("embed", "llm.embed", {"model": m.model(SMALL), "rows": rows}, column="text")
    documents = m.step(
        "index", "llm.embed", {"model": m.model(SMALL), "rows": corpus}, column="text"
    )
    found = m.step("find", "retrieve.topk", {"rows": out(queries), "corpus": out(documents)}, k=5)
    answer = m.step(
        "answer",
        "llm.generate",
        {"model": m.model(LARGE), "rows": out(found)},
        maxTokens=256,
        prompt="rag",
    )
    m.step(
        "score",
        "llm.score",
        {"model": m.model(MIDDLE), "rows": out(answer)},
        method="logprob",
        text="completion",
    )


@shape("a-debate")
def debate(m: PlanBuilder) -> None:
    """Multi-agent collaboration: three models answer, one judges."""
    rows = m.data("mmlu")
    models = (LARGE, MIDDLE, MIDDLE)
    answers = [
        m.step(
            f"agent{n}",
            "llm.generate",
            {"model": m.model(name), "rows": rows},
            maxTokens=384,
            prompt=f"agent {n}",
        )
        for n, name in enumerate(models)
    ]
    both = m.step(
        "join", "data.sql", {f"a{n}": out(s) for n, s in enumerate(answers)}, query="join"
    )
    verdict = m.step(
        "judge",
        "llm.generate",
        {"model": m.model(LARGE), "rows": out(both)},
        maxTokens=256,
        prompt="judge",
    )
    m.step("grade", "eval.exact-match", {"rows": out(verdict)}, prediction="answer", target="gold")


@shape("a-vote")
def vote(m: PlanBuilder) -> None:
    """Self-consistency: eight samples for each question, the vote, the grade."""
    rows = m.data("gsm8k")
    samples = m.step(
        "sample",
        "llm.generate",
        {"model": m.model(MIDDLE), "rows": rows},
        samples=8,
        maxTokens=384,
        prompt="solve",
    )
    voted = m.step("vote", "data.sql", {"votes": out(samples)}, query="vote")
    m.step("grade", "eval.exact-match", {"rows": out(voted)}, prediction="answer", target="gold")


@shape("a-agents")
def agents(m: PlanBuilder) -> None:
    """Plan, work with tools, write: small models plan and write, the large one uses tools."""
    rows = m.data("mmlu")
    planned = m.step(
        "plan",
        "llm.generate",
        {"model": m.model(SMALL), "rows": rows},
        maxTokens=256,
        prompt="plan",
    )
    worked = m.step(
        "work",
        "llm.agent",
        {"model": m.model(LARGE), "rows": out(planned)},
        maxTokens=256,
        tools=["search"],
    )
    m.step(
        "write",
        "llm.generate",
        {"model": m.model(MIDDLE), "rows": out(worked)},
        maxTokens=384,
        prompt="write",
    )


def _hinted(m: PlanBuilder, share: float) -> None:
    """Builds a chain whose first step requests a share of the memory that it needs."""
    rows = m.data("gsm8k")
    needed = m.hardware.models[LARGE].weights_mib + HINTED_BESIDES_MIB
    first = m.step(
        "solve",
        "llm.generate",
        {"model": m.model(LARGE), "rows": rows},
        maxTokens=512,
        prompt="solve",
        memory_mib=int(share * needed),
    )
    last = m.step(
        "check",
        "llm.generate",
        {"model": m.model(MIDDLE), "rows": out(first)},
        maxTokens=256,
        prompt="check",
    )
    m.step("grade", "eval.exact-match", {"rows": out(last)}, prediction="answer", target="gold")


@shape("a-right")
def right(m: PlanBuilder) -> None:
    """A chain that requests the memory that it needs."""
    _hinted(m, 1.0)


@shape("a-tight")
def tight(m: PlanBuilder) -> None:
    """The same chain with half the memory: it runs out of memory and is placed again."""
    _hinted(m, 0.5)


GROUP_A = ("a-chain", "a-rag", "a-debate", "a-vote", "a-agents")
