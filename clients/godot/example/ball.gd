extends Reference
# A ball on a beam that tilts left, stays level, or tilts right. It should stay on the beam, near the middle.

const LONGEST = 100  # steps of an episode
const STEP_S = 0.05
const HALF = 1.0  # of the beam's length
const PULL = 2.0  # acceleration on a tilted beam

var position: float  # -1 to 1 on the beam
var velocity: float
var tilt: int  # -1, 0, 1
var steps: int
var reward: float
var total: float  # of the rewards of this episode


func reset():
	position = rand_range(-0.5, 0.5)
	velocity = rand_range(-0.5, 0.5)
	tilt = 0
	steps = 0
	total = 0.0


# 0: tilt left, 1: level, 2: tilt right.
func step(action: int):
	tilt = action - 1
	velocity += tilt * PULL * STEP_S
	position += velocity * STEP_S
	steps += 1
	reward = 0.0 if has_fallen() else 1.0 - abs(position)
	total += reward


func state() -> PoolRealArray:
	return PoolRealArray([position, velocity])


func has_fallen() -> bool:
	return abs(position) > HALF


func is_too_long() -> bool:
	return steps >= LONGEST and not has_fallen()
