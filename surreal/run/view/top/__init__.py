"""`surreal top`: the live view of any run, from anywhere that reaches its Redis.

following.py   how a run is, second by second
keyboard.py    keys as they are pressed
top.py         both together, until the run is over or the person has seen enough
"""
