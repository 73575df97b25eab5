"""LangGraph: a graph of four nodes on its SQLite saver, a checkpoint durable before the next node.

Durability "sync" is the only one of its settings that equals the other engines'. It has no notion
of undo, and an exception in a node is not checkpointed, so a refusal is a value that a conditional
edge sends to the nodes that undo. The checkpoint holds the whole state: journal and state in one.
"""

import asyncio
import itertools
import sqlite3
from importlib import metadata
from typing import TypedDict

import meter
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    operation: str
    results: dict[str, object]
    outcome: str


def after_third(state: State) -> str:
    return f"undo-{meter.UNDONE_STEPS[0]}" if state["outcome"] == "refused" else "do-4"


def build(sink: meter.Sink, *, fail: bool) -> StateGraph:
    def step(number: int):
        async def do(state: State) -> State:
            sink.append(state["operation"], str(number))
            if fail and number == meter.REFUSED_STEP:
                return {"outcome": "refused"}
            results = {**state.get("results", {}), str(number): {"step": number, "ok": True}}
            return {"results": results, "outcome": "succeeded"}

        return do

    def undo(number: int):
        async def remove(state: State) -> State:
            sink.append(state["operation"], f"undo-{number}")
            results = {**state["results"], f"undo-{number}": {"undone": number, "ok": True}}
            return {"results": results, "outcome": "compensated"}

        return remove

    graph = StateGraph(State)
    for number in (1, 2, 3, 4):
        graph.add_node(f"do-{number}", step(number))
    for number in meter.UNDONE_STEPS:
        graph.add_node(f"undo-{number}", undo(number))
    undos = [f"undo-{number}" for number in meter.UNDONE_STEPS]
    for chain in ([START, "do-1", "do-2", "do-3"], ["do-4", END], [*undos, END]):
        for before, after in itertools.pairwise(chain):
            graph.add_edge(before, after)
    graph.add_conditional_edges("do-3", after_third, [undos[0], "do-4"])
    return graph


async def main() -> None:
    parser = meter.parser("LangGraph with AsyncSqliteSaver, durability sync")
    options = meter.options(parser.parse_args())
    wanted = "compensated" if options.fail else "succeeded"
    async with AsyncSqliteSaver.from_conn_string(str(options.directory / "langgraph.db")) as saver:
        await saver.setup()
        graph = build(meter.Sink(options.sink), fail=options.fail).compile(checkpointer=saver)

        async def perform(name: str) -> None:
            config = {"configurable": {"thread_id": name}}
            state = await graph.ainvoke({"operation": name}, config, durability="sync")
            if state["outcome"] != wanted:
                raise RuntimeError(f"{name} ended as {state['outcome']}")

        measured = await meter.drive(perform, options)
    versions = {
        "langgraph": metadata.version("langgraph"),
        "langgraph-checkpoint-sqlite": metadata.version("langgraph-checkpoint-sqlite"),
        "sqlite": sqlite3.sqlite_version,
    }
    records = "checkpoint of the state"
    meter.emit(
        meter.summary("langgraph_sqlite", options, measured, versions=versions, records=records)
    )


if __name__ == "__main__":
    asyncio.run(main())
