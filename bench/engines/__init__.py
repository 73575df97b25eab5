"""The engines that bench/operations.py measures, one program each, and what they owe it.

Every engine runs as `python -m engines.NAME` with bench/ as its working directory and understands
the same command line (bench/meter.py makes it, drives the work and prints the result):

    --operations N   perform N operations under load ...
    --in-flight K    ... with at most K of them open at any moment
    --alone M        before that, M operations one at a time; their median is p50_alone_ms
    --warm W         before that, W operations that are not measured
    --fail           step 3 of every operation is refused
    --residue        ... and may have left something: it is undone as well (tenure and floor only)
    --form NAME      one of the engine's forms, where it has several
    --dir DIR        an empty directory on the disk under test; the caller removes it
    --sink FILE      the file that every step appends to
    --tuned          with what Tenure has found to be faster (floor only)

The work: an operation has four steps, each durable before the next one starts, at full durability
(a power cut loses nothing acknowledged). Steps 1 and 2 have an undo, 3 and 4 have none, but for 3
with --residue. With --fail step 3 is refused when it is called; what has an undo is then undone,
newest first, each undo durable before the next. Where an engine lets one, a step commits its record
together with a state row and an outbox row; the peers are used in their lightest form, journal
alone, which is to their advantage.

The sink: each step, and each undo, appends one line `<operation> <step>` from inside its function
(meter.Sink); an operation may go by any unique word. Warm and alone ones count too: for each of the
N + M + W operations the file must hold exactly these lines in this order, or the benchmark fails:

    without --fail   1, 2, 3, 4
    with --fail      1, 2, 3, undo-2, undo-1
    and --residue    1, 2, 3, undo-3, undo-2, undo-1

The result: the last line of standard output is one JSON object (meter.summary). Read by the driver
are operations, operations_per_second, p50_alone_ms (null when M is 0), cpu_ms_per_operation (this
process and its servers), flushes_per_operation (null where the devices do not count), fdatasync_us,
records (words: what a step makes durable) and versions (name to version). Any other exit than 0
fails the benchmark. Servers are started by the engine itself on free ports of the loopback
interface, in process groups of their own, and are gone when it ends (engines/servers.py).

engines.tenure has three measurements more. Each is asked for by its name as first argument, takes
--dir and prints one JSON object with at least these keys:

    recovery --dir DIR --open 10000
        {"recovery_seconds": 0.21, "open_operations": 10000}
        from opening the store of a process killed with that many operations open, until each of
        them is claimed again, read back and being asked about
    memory --dir DIR --live 10000
        {"bytes_per_operation": 2900, "live_operations": 10000}
        growth of the resident memory by that many operations in the midst of a step, for each
    scaling --dir DIR --sizes 1000,10000,100000,1000000
        {"scaling": [{"finished": 1000, "ms_per_operation": 0.17, "cpu_ms_per_operation": 0.15,
                      "runs": [0.17, 0.16, 0.18]}, ...]}
        one row for each size in that order: the cost of an operation, measured over so many
        operations under load while the store holds that many finished ones or a few more; the
        last row's ms_per_operation divided by the first one's is cost_1m_vs_1k
"""
