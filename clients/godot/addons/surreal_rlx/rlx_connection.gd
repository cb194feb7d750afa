extends Reference
# One connection to a server. `poll` in every frame receives; nothing here waits.

const Codec = preload("rlx_codec.gd")

enum { CLOSED, CONNECTING, OPEN }

const KILOBYTES = 1024  # of a WebSocket's buffers: the largest message there

var state = CLOSED
var reason = ""  # of the last loss

var _tcp: StreamPeerTCP
var _web: WebSocketClient
var _buffer = PoolByteArray()


# Begin to connect to `host:port`, `rlx://host:port`, `ws://...` or `wss://...`.
func open(address: String):
	_tcp = null
	_web = null
	_buffer = PoolByteArray()
	state = CONNECTING
	if address.begins_with("ws://") or address.begins_with("wss://"):
		_web = WebSocketClient.new()
		_web.set_buffers(KILOBYTES, 64, KILOBYTES, 64)
		if _web.connect_to_url(address) != OK:
			close("%s cannot be connected to" % address)
		return
	var place = address.trim_prefix("rlx://").rstrip("/")
	var colon = place.find_last(":")
	var port = place.substr(colon + 1)
	if "://" in place or colon < 1 or not port.is_valid_integer():
		close("%s is not an address; write host:port, ws://host:port or wss://host:port" % address)
		return
	_tcp = StreamPeerTCP.new()
	if _tcp.connect_to_host(place.substr(0, colon).lstrip("[").rstrip("]"), int(port)) != OK:
		close("%s cannot be connected to" % address)


func close(why: String):
	state = CLOSED
	reason = why
	if _tcp != null:
		_tcp.disconnect_from_host()
	if _web != null:
		_web.disconnect_from_host()
	_tcp = null
	_web = null


func send(payload: PoolByteArray):
	if _web != null:
		if payload.size() >= KILOBYTES << 10:
			close("a message of %d bytes is too large for a WebSocket here; use TCP" % payload.size())
		elif _web.get_peer(1).put_packet(payload) != OK:
			close("the connection is lost")
		else:
			_web.poll()
		return
	var data = ("%d:" % payload.size()).to_ascii()
	data.append_array(payload)
	data.append(44)
	if _tcp.put_data(data) != OK:
		close("the connection is lost")


# The payloads that have arrived. After it, `state` may be another.
func poll() -> Array:
	if _tcp != null:
		return _poll_tcp()
	if _web != null:
		return _poll_web()
	return []


func _poll_tcp():
	var status = _tcp.get_status()
	if status == StreamPeerTCP.STATUS_CONNECTED and state == CONNECTING:
		_tcp.set_no_delay(true)
		state = OPEN
	if status == StreamPeerTCP.STATUS_CONNECTED and _tcp.get_available_bytes() > 0:
		_buffer.append_array(_tcp.get_partial_data(_tcp.get_available_bytes())[1])
	var payloads = take_payloads()
	if status == StreamPeerTCP.STATUS_NONE or status == StreamPeerTCP.STATUS_ERROR:
		close("there is no server" if state == CONNECTING else "the server closed the connection")
	return payloads


func _poll_web():
	_web.poll()
	var payloads = []
	if _web.get_connection_status() == NetworkedMultiplayerPeer.CONNECTION_CONNECTED:
		var peer = _web.get_peer(1)
		if state == CONNECTING:
			peer.set_write_mode(WebSocketPeer.WRITE_MODE_BINARY)
			state = OPEN
		while peer.get_available_packet_count() > 0:
			payloads.append(peer.get_packet())
	elif _web.get_connection_status() == NetworkedMultiplayerPeer.CONNECTION_DISCONNECTED:
		close("there is no server" if state == CONNECTING else "the server closed the connection")
	return payloads


# Add bytes of a TCP stream, in whatever pieces they arrive.
func feed(bytes: PoolByteArray):
	_buffer.append_array(bytes)


# The payloads of the whole frames in the buffer; a frame is `LENGTH:PAYLOAD,`.
func take_payloads() -> Array:
	var payloads = []
	while true:
		var head = ""
		while head.length() < _buffer.size() and _buffer[head.length()] != 58:
			var letter = _buffer[head.length()]
			if letter < 48 or letter > 57 or head.length() == 9:
				close("the server sends something that is not a frame")
				return payloads
			head += char(letter)
		var length = int(head)
		var start = head.length() + 1
		if start > _buffer.size():
			return payloads
		if head == "" or length == 0 or length > Codec.MAX_BYTES:
			close("the server sends a frame of %s bytes" % head)
			return payloads
		if start + length >= _buffer.size():
			return payloads
		if _buffer[start + length] != 44:
			close("the server sends a frame without its comma")
			return payloads
		payloads.append(_buffer.subarray(start, start + length - 1))
		var next = start + length + 1
		_buffer = _buffer.subarray(next, _buffer.size() - 1) if next < _buffer.size() else PoolByteArray()
	return payloads
