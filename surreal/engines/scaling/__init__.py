"""How many agents and servers learning needs: a run's figures for Prometheus, and what follows from them."""
