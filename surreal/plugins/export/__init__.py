"""Policies that travel: from a checkpoint to a file that TorchScript or onnxruntime runs without Surreal.

`exporter.export_policy` wraps a policy into one module (`module.PolicyModule`: filters, network, greedy choice and the
way to the environment's own actions), writes it, and plays the file against the policy before it counts.
`surreal.agent.exported` reads such files.
"""
