extends Node2D
# Balls on beams, each with an agent: `godot3 --path .` shows them, `godot3-server --path .` trains without a window.
#
# Options: --rlx-server ADDRESS, --exploit True|False (as `surreal run` gives them), and --goal STEPS, which ends the
# program when the last 20 episodes, of 40 or more, had that many steps on average.

const Ball = preload("ball.gd")
const BALLS = 8
const WINDOW = 20  # episodes

var _agents = []
var _balls = []
var _lengths = []
var _episodes = 0
var _goal = INF


func _ready():
	randomize()
	if OS.has_feature("Server"):
		OS.low_processor_usage_mode_sleep_usec = 200  # between two frames
	var options = _options()
	_goal = float(options.get("--goal", INF))
	for number in range(BALLS):
		var agent = $RlxAgent if number == 0 else $RlxAgent.duplicate()
		_agents.append(agent)
		_balls.append(Ball.new())
		if number > 0:
			add_child(agent)
		agent.address = options.get("--rlx-server", agent.address)
		agent.exploit = options.get("--exploit", "") == "True"
		agent.connect("session_ready", self, "_begin", [number])
		agent.connect("action", self, "_act", [number])
		agent.connect("error", self, "_report")
		agent.connect("disconnected", self, "_report")
		agent.connect_to_server()


func _options():
	var arguments = OS.get_cmdline_args()
	var found = {}
	for i in range(arguments.size() - 1):
		found[arguments[i]] = arguments[i + 1]
	return found


func _begin(number):
	_balls[number].reset()
	_agents[number].update(null, _balls[number].state())


func _act(action, number):
	var ball = _balls[number]
	if action == null:
		_agents[number].record_episode(ball.total)
		_note(ball.steps)
		_begin(number)
		return
	ball.step(action)
	_agents[number].update(ball.reward, ball.state(), ball.has_fallen(), ball.is_too_long())
	update()


func _note(length):
	_lengths.append(length)
	if _lengths.size() > WINDOW:
		_lengths.pop_front()
	_episodes += 1
	var mean = 0.0
	for each in _lengths:
		mean += each / float(_lengths.size())
	if _episodes % WINDOW == 0:
		print("episode %d: %d steps on the beam" % [_episodes, mean])
	if _episodes >= 2 * WINDOW and mean >= _goal:
		print("solved after %d episodes" % _episodes)
		get_tree().quit()


func _report(message):
	printerr(message)


func _draw():
	for number in range(BALLS):
		var middle = Vector2(512, 60 + 70 * number)
		var along = Vector2(400, 30 * _balls[number].tilt)
		draw_line(middle - along, middle + along, Color.white, 4)
		draw_circle(middle + along * _balls[number].position - Vector2(0, 12), 10, Color.orange)
