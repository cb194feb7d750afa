extends Node
# A session with an RLX server: a node whose actions come from an agent that learns.
#
#     func _ready():
#         $RlxAgent.connect("session_ready", self, "_on_session_ready")
#         $RlxAgent.connect("action", self, "_on_action")
#         $RlxAgent.connect_to_server()
#
#     func _on_session_ready():                       # also after a lost connection: begin an episode
#         $RlxAgent.update(null, game.reset())        # the first update of an episode has no reward
#
#     func _on_action(action):
#         if action == null:                          # the episode is over: the next one
#             $RlxAgent.update(null, game.reset())
#             return
#         game.step(action)
#         $RlxAgent.update(game.reward, game.state, game.is_over)
#
# A lost connection is opened again, after jittered waits from 0.5 s to 8 s, and the session begins again. Records for
# the metrics that the server had not acknowledged are sent again. `rlx_codec.gd` has the types of states.

signal connected  # the connection is open
signal session_ready  # a session has begun
signal action(value)  # the answer to `update`: null at the end of an episode; arrays as nested Arrays
signal late  # with `rate_hz`: it is time for an action, and none has arrived, or a pause has begun; do something safe
signal resumed  # a pause is over: send an `update` with what is observed now
signal reset_done
signal amended(is_in_time)  # the answer to `amend`; false too if the step is not experience
signal error(message)  # the server refused a request, or it could not be sent
signal disconnected(reason)  # will be connected again, unless `attempts` failed in a row or the session was refused

const Codec = preload("rlx_codec.gd")
const Connection = preload("rlx_connection.gd")
const MOST_RECORDS = 500  # that wait for a connection; the oldest are dropped, as a server would

export var address = "localhost:7001"  # host:port, ws://host:port or wss://host:port
export var token = ""  # "": $SURREAL_RLX_TOKEN
export var exploit = false  # act greedily, and do not learn
export var policy = ""  # the one of the server's policies that acts; "": the run's, which learns
export(Array, String) var want = []  # what `outputs` has with each action: "q_values", "probabilities"
export var rate_hz = 0.0  # actions per second of real time; 0: as fast as they arrive
export var attempts = 10  # to connect, in a row
export var timeout_s = 60.0  # for one answer
export var connect_timeout_s = 10.0

var has_session = false
var is_paused = false  # see `pause`
var step_id = null  # number of the last step, if its reward may be amended
var outputs = {}  # what was wanted, of the last action; null where the policy has no such numbers

var _codec = Codec.new()
var _connection = Connection.new()
var _is_wanted = false
var _failed = 0  # attempts in a row
var _deadline_ms = 0  # of connecting, of the next answer, or of the wait before the next attempt
var _waiting = []  # requests without an answer, in order
var _records = []  # metrics that could not be sent
var _arrived = []  # with `rate_hz`: the action that waits for its time
var _is_resting = false  # the pause has begun, and `resumed` has not come
var _is_cut = false  # the next update follows a pause
var _next_usec = 0


# Connect, and begin a session. Up to `attempts` times in a row.
func connect_to_server():
	_is_wanted = true
	_failed = 0
	_open()


# End the session and the connection.
func disconnect_from_server():
	_is_wanted = false
	if _connection.state != Connection.CLOSED:
		_connection.close("disconnected")
		_lost()


# Tell the agent what its last action led to, and ask for the next one, which comes as the signal `action`.
#
# reward: null in the first update of an episode. truncated: a limit ended the episode, not the game's rules.
# executed_action: what the environment really did, if a person or a safety system replaced the agent's last action.
# amend_within_s: how long the reward may be amended: the step is held back until `amend` is called for `step_id`, or so long.
# Returns whether it was sent. Without a session it is not: begin an episode when `session_ready` comes. In a pause it is
# not either. The first one after a pause begins an episode for the agent, so its reward is not sent.
func update(
	reward, state, terminal = false, truncated = false, executed_action = null, amend_within_s = null
) -> bool:
	if _is_resting:
		return false
	if _is_cut:
		reward = null
		executed_action = null
		amend_within_s = null
	var message = {"command": "update", "reward": reward, "state": state, "terminal": terminal or truncated}
	if truncated:
		message.truncated = true
	if executed_action != null:
		message.executed_action = executed_action
	if amend_within_s != null:
		message.amend_within_s = amend_within_s
	var is_sent = has_session and _send(message)
	_is_cut = _is_cut and not is_sent
	return is_sent


# Replace the reward of a step that the server holds back, also in a later session. Returns whether it was sent.
func amend(id: int, reward) -> bool:
	return has_session and _send({"command": "amend", "step_id": id, "reward": reward})


# Abandon the current episode.
func reset() -> bool:
	return has_session and _send({"command": "reset"})


# Pause the actions of an agent with `rate_hz`: `late` comes at the time of the next one, and then none until `resume`.
func pause():
	if rate_hz <= 0:
		emit_signal("error", "only an agent with rate_hz can be paused; without it, pause your own loop")
		return
	is_paused = true


# End a pause; `resumed` follows, and the first action comes after the next `update`.
func resume():
	is_paused = false


# Report a number for the run's metrics, as client/NAME; at x, null: the run's global step.
func scalar(name: String, y, x = null):
	_report([{"method": "scalar", "name": name, "y": y, "x": x}])


# Report the distribution of an Array of numbers.
func histogram(name: String, y, x = null):
	_report([{"method": "histogram", "name": name, "y": y, "x": x}])


# Report the sum of an episode's rewards, under the names that other clients use.
func record_episode(reward):
	scalar("episode_reward", reward)
	scalar("game_score", reward)


func _process(_delta):
	var now = OS.get_ticks_msec()
	if _connection.state == Connection.CLOSED:
		if _is_wanted and now >= _deadline_ms:
			_open()
		return
	var was_connecting = _connection.state == Connection.CONNECTING
	var payloads = _connection.poll()
	if was_connecting and _connection.state == Connection.OPEN:
		emit_signal("connected")
		_begin_session()
	for payload in payloads:
		_receive(payload)
	if (was_connecting or not _waiting.empty()) and now >= _deadline_ms and payloads.empty():
		_connection.close("%s does not answer" % address)
	if _connection.state == Connection.CLOSED and (was_connecting or _is_wanted):
		_lost()
	elif rate_hz > 0:
		_keep_rate()


func _open():
	_deadline_ms = OS.get_ticks_msec() + int(1000 * connect_timeout_s)
	_connection.open(address)
	if _connection.state == Connection.CLOSED:
		_lost()


func _begin_session():
	var message = {"command": "init", "exploit": exploit}
	var secret = token if token != "" else OS.get_environment("SURREAL_RLX_TOKEN")
	if secret != "":
		message.token = secret
	if policy != "":
		message.policy = policy
	if not want.empty():
		message.want = want
	_send(message)


func _send(message) -> bool:
	var payload = _codec.encode(message)
	if payload == null:
		emit_signal("error", "%s cannot be sent: %s" % [message.command, _codec.error])
		return false
	if _waiting.empty():
		_deadline_ms = OS.get_ticks_msec() + int(1000 * timeout_s)
	_waiting.append(message)
	_connection.send(payload)  # if it fails, `_process` reports the lost connection
	return _connection.state == Connection.OPEN


func _report(records):
	if has_session:
		_send({"command": "update_metrics", "data": records})
	else:
		_keep(records)


func _keep(records):
	_records += records
	while _records.size() > MOST_RECORDS:
		_records.pop_front()


func _receive(payload):
	var reply = _codec.decode(payload)
	if reply == null or not reply.get("response") is String or _waiting.empty():
		_connection.close("the server's answer cannot be read: %s" % _codec.error)
		return
	var request = _waiting.pop_front()
	_deadline_ms = OS.get_ticks_msec() + int(1000 * timeout_s)
	if reply.response == "error":
		if request.command == "init":  # a wrong token stays wrong
			_is_wanted = false
			_connection.close(str(reply.get("message")))
			_lost()
		emit_signal("error", str(reply.get("message")))
	elif request.command == "init":
		_failed = 0
		has_session = true
		_is_resting = is_paused and _is_resting
		_next_usec = OS.get_ticks_usec()
		if not _records.empty():
			_send({"command": "update_metrics", "data": _records})
			_records = []
		emit_signal("session_ready")
	elif request.has("is_dropped"):
		return
	elif request.command == "update":
		for name in reply:
			if reply[name] is Codec.NDArray:
				reply[name] = reply[name].to_list()
		if rate_hz > 0:
			_arrived = [reply]
		else:
			_act(reply)
	elif request.command == "reset":
		emit_signal("reset_done")
	elif request.command == "amend":
		emit_signal("amended", reply.get("is_amended") == true)


func _keep_rate():
	var now = OS.get_ticks_usec()
	if now < _next_usec:
		return
	_next_usec = max(_next_usec + int(1e6 / rate_hz), now)  # a frame that took too long is not made up for
	if is_paused:
		_rest()
		return
	if _is_resting:
		if has_session:  # else `session_ready` will come
			_is_resting = false
			emit_signal("resumed")
		return
	if not _arrived.empty():
		_act(_arrived.pop_front())
		return
	for request in _waiting:
		if request.command == "update" and not request.has("is_dropped"):
			emit_signal("late")
			return


# Begin a pause, unless it has begun: actions on their way are of old observations.
func _rest():
	if _is_resting:
		return
	_is_resting = true
	_is_cut = true
	_arrived = []
	for request in _waiting:
		if request.command == "update":
			request.is_dropped = true
	emit_signal("late")


func _act(reply):
	step_id = reply.get("step_id")
	outputs = {}
	for name in want:
		if name in reply:  # not at the end of an episode
			outputs[name] = reply[name]
	emit_signal("action", reply.get("data"))


func _lost():
	var kept = []
	for request in _waiting:
		if request.command == "update_metrics":
			kept += request.data
	_waiting = []
	_arrived = []
	has_session = false
	_keep(kept)
	_failed += 1
	_is_wanted = _is_wanted and _failed < attempts
	var longest_ms = min(8000, 500 * pow(2, _failed - 1))
	_deadline_ms = OS.get_ticks_msec() + int(rand_range(longest_ms / 2, longest_ms))
	emit_signal("disconnected", _connection.reason)
