"""The parameter server: rules that combine gradients of many agents, and the server that steps down them."""
