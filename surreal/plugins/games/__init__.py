"""Tic-tac-toe, and games whose packages' own environments do not suit networks: ViZDoom and DeepMind Lab.

Importing this module registers their ids; the entry point `surreal.environments` names it. A game's package is imported
only when an environment is made. ViZDoom comes with the extra `vizdoom`; DeepMind Lab has to be built.
"""

import gymnasium

if "surreal/ViZDoom-v0" not in gymnasium.registry:
    gymnasium.register("surreal/ViZDoom-v0", entry_point="surreal.plugins.games.vizdoom:VizDoom")
    gymnasium.register("surreal/DeepMindLab-v0", entry_point="surreal.plugins.games.deepmind_lab:DeepMindLab")
