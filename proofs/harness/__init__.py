"""The one proof harness: crash matrix, simulation, ablations.

A subject (`proofs.harness.subject`) is what a capability brings: scenarios, invariants, workload
profiles, faults, ablations, and its part in the proof of each promise.  The harness brings the
rest.  How the parts fit:

    Cluster (cluster)        one world, one disk, processes with whole planes that can be killed
      ├─ Matrix (crash)      builds one for each Case: scenario × fault × crossing × side
      └─ Simulation          is one: plays the Schedule that a profile draws from a seed
           ├─ schedule       who asks when, what fails when: a value, readable before it is run
           ├─ recorder       sees each commit, claim and provider call while it runs
           └─ slow_disk      the disk: commits take time, fail on demand, keep what they should

Both end alike: wait until nothing can move (rest), read the committed rows (snapshot), hand them to
the subject's `check`, and hash everything that happened into a trace.  The same case or seed gives
the same trace.  `ablation` runs a simulation while one safeguard is patched away, and expects that
some seed notices.
"""
