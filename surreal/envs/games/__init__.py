"""Games whose own packages are no gymnasium environments as networks like them: ViZDoom, DeepMind Lab.

Their packages are imported when an environment is made. It knows `atari`, for the shrinking of images.
"""
