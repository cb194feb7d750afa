extends SceneTree
# Plays with a server, and prints one line for each event: `... -s play.gd --rlx-server ADDRESS --episodes N --hz RATE [--intervene] [--amend] [--pause] [--print] [--policy NAME]`.

const LENGTH = 9

var agent = load("res://addons/surreal_rlx/rlx_agent.gd").new()
var episodes = 0
var steps = 0
var wanted = 0
var intervenes = false
var amends = false
var pauses = false  # once, after the fourth step
var has_paused = false
var shows_steps = false  # each step that was answered


func _init():
	OS.low_processor_usage_mode_sleep_usec = 500
	var arguments = Array(OS.get_cmdline_args())
	wanted = int(arguments[arguments.find("--episodes") + 1])
	agent.address = arguments[arguments.find("--rlx-server") + 1]
	agent.rate_hz = float(arguments[arguments.find("--hz") + 1])
	agent.attempts = 20
	intervenes = "--intervene" in arguments
	amends = "--amend" in arguments
	pauses = "--pause" in arguments
	shows_steps = "--print" in arguments
	agent.connect("amended", self, "_on_amended")
	if "--policy" in arguments:
		agent.policy = arguments[arguments.find("--policy") + 1]
		agent.want = ["q_values", "probabilities"]
	get_root().add_child(agent)
	for event in ["session_ready", "action", "late", "resumed", "error", "disconnected"]:
		agent.connect(event, self, "_on_" + event)
	agent.connect_to_server()


func _on_session_ready():
	print("ready")
	if wanted < 0:
		agent.update(null, [0.0])  # a wrong shape
	else:
		_begin()


func _begin():
	steps = 0
	agent.update(null, _state())


func _state():
	return PoolRealArray([episodes, steps, 0, 0] if shows_steps else [0.5, steps if steps > 0 else episodes])


func _on_action(action):
	if has_paused:
		print("action")
	if shows_steps:
		print("%d %d %s" % [episodes, steps, "0" if intervenes and steps == 2 else "agent's"])
	if action == null:
		episodes += 1
		print("episode ", episodes)
		if amends:
			agent.amend(agent.step_id, 2.5)
			agent.amend(agent.step_id, 3)
		if not agent.outputs.empty():
			print("outputs at the end: ", agent.outputs)
		agent.scalar("episode", episodes)
		if episodes < wanted:
			_begin()
		else:
			agent.histogram("lengths", [1.0, 2.0], 3)
			agent.reset()
			agent.connect("reset_done", self, "_end")
		return
	steps += 1
	if action != 1:
		print("a wrong action: ", action)
	if agent.policy != "" and agent.outputs.hash() != {"q_values": [9.0, 1.0], "probabilities": null}.hash():
		print("wrong outputs: ", agent.outputs)
	var executed = 0 if intervenes and steps == 2 else null
	var amend_within_s = 30 if amends and steps == LENGTH else null
	agent.update(1.0, _state(), false, steps == LENGTH, executed, amend_within_s)
	if pauses and steps == 4:
		pauses = false
		has_paused = true
		print("pauses")
		agent.pause()


func _resume():
	print("resumes")
	agent.resume()


func _on_resumed():
	print("resumed")
	agent.update(7.0, _state())  # a reward that is not sent


func _on_amended(is_in_time):
	print("amended: ", is_in_time)


func _on_late():
	print("late")
	if agent.is_paused:
		print("sent: ", agent.update(1.0, _state()))
		create_timer(0.2).connect("timeout", self, "_resume")  # after ten periods


func _on_error(message):
	print("error: ", message)
	quit()


func _on_disconnected(reason):
	print("disconnected: ", reason)
	if not agent._is_wanted:
		quit()


func _end():
	agent.disconnect_from_server()
