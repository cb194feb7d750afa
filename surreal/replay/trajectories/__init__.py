"""The order of steps across chunks: lanes, trajectories, the ledger of consumed steps. It imports `store`."""
