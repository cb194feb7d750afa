"""How agents explore: random actions, noise on actions, noise on parameters, and a random start."""
