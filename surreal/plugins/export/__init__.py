"""`surreal export`: a policy as a file that TorchScript or onnxruntime runs without Surreal.

`exporter.export_policy` wraps a policy into one module (`module.PolicyModule`: filters, network, greedy choice and the
mapping to the environment's actions), compares its file with the policy, and writes it. `surreal.agent.exported` reads
such files.
"""
