"""The forward pass of small networks in NumPy, on the memory of their parameters; on a CPU, for agents.

A call of torch takes microseconds, which is most of the time that a small network takes for a few rows. An agent
measures both passes and takes the faster one (`surreal.agent.forward`); learners use torch.

`forward.NumpyPass` is the pass of a model. `layers` and `heads` have the functions that compute each kind of module,
`policies` the distributions. Imports only `surreal.model`.
"""

from surreal.model.in_numpy.forward import NumpyPass
from surreal.model.in_numpy.policies import NumpyCategorical, NumpyNormal, NumpyPolicy, NumpySquashedNormal

__all__ = ["NumpyCategorical", "NumpyNormal", "NumpyPass", "NumpyPolicy", "NumpySquashedNormal"]
