extends SceneTree
# The codec and the frames: `godot3-server --path clients/godot -s codec.gd --vectors FILE`.

var Codec = load("res://addons/surreal_rlx/rlx_codec.gd")
var Connection = load("res://addons/surreal_rlx/rlx_connection.gd")
var codec = Codec.new()
var failures = 0


func _init():
	var file = File.new()
	var arguments = OS.get_cmdline_args()
	file.open(arguments[Array(arguments).find("--vectors") + 1], File.READ)
	golden(parse_json(file.get_as_text()))
	values()
	refusals()
	frames()
	print("all is well" if failures == 0 else "%d failures" % failures)
	quit()


func check(is_true, name):
	if not is_true:
		failures += 1
		print("failed: ", name, " ", codec.error)


func unhex(text):
	var bytes = PoolByteArray()
	for i in range(0, text.length(), 2):
		bytes.append(("0x" + text.substr(i, 2)).hex_to_int())
	return bytes


func payload_of(hex):
	var connection = Connection.new()
	connection.feed(unhex(hex))
	var payloads = connection.take_payloads()
	return payloads[0] if payloads.size() == 1 else PoolByteArray()


func plain(value):
	if value is Codec.NDArray:
		return [value.dtype, value.shape, value.to_list()]
	if value is Codec.Picture:
		return [value.mode, value.width, value.height, Array(value.bytes)]
	if value is Dictionary:
		var entries = {}
		for key in value:
			entries[key] = plain(value[key])
		return entries
	return value


func is_same(left, right):
	return var2str(plain(left)) == var2str(plain(right))


func golden(vectors):
	var made = {
		"init": {"command": "init", "exploit": false},
		"ready": {"response": "ready"},
		"reset": {"command": "reset"},
		"done": {"response": "done"},
		"update_list": {"command": "update", "reward": null, "state": [1, -2.5], "terminal": false},
		"nd_u8": {"s": Codec.NDArray.new("uint8", [2, 3], PoolByteArray([0, 1, 2, 3, 4, 5]))},
		"nd_empty": {"s": Codec.NDArray.new("float64", [0], PoolByteArray())},
		"img_L": {"s": Codec.Picture.new("L", 3, 2, PoolByteArray([0, 1, 2, 3, 4, 5]))},
		"img_1": {"s": Codec.Picture.new("1", 8, 1, PoolByteArray([0xa5]))},
		"dict": {"s": {"a": 1, "b": [null, true, "x"]}},
		"i64": {"d": 1 << 40},
		"f64": {"d": 0.5},
		"error": {"response": "error", "message": "can't reset agent"},
		"action_i64": {"response": "action", "data": 2},  # read only: it is written as INT4
	}
	check(vectors.size() == made.size(), "every golden vector has its value here")
	for name in vectors:
		var payload = payload_of(vectors[name].frame_hex)
		check(payload.size() > 0, name + " as a frame")
		check(is_same(codec.decode(payload), made[name]), name + " is read")
		if name != "action_i64":
			check(codec.encode(made[name]) == payload, name + " is written")
		# A message that is cut is an error, or a shorter message; never a crash.
		for size in range(payload.size()):
			var part = payload.subarray(0, size - 1) if size > 0 else PoolByteArray()
			check((codec.decode(part) == null) == (codec.error != ""), name + " cut")


func values():
	for value in [0, -1, 2147483647, -2147483648, 2147483648, -(1 << 62), 0.1, 1e300, INF, "ü €", [], {}, [[1], {"a": [2.0]}]]:
		var payload = codec.encode({"value": value})
		check(payload != null and is_same(codec.decode(payload).value, value), var2str(value))
	var floats = codec.decode(codec.encode({"a": PoolRealArray([1.5, -2]), "b": Vector3(1, 2, 3), "c": PoolIntArray([-7])}))
	check(is_same(floats.a, Codec.NDArray.new("float32", [2], unhex("0000c03f000000c0"))), "floats")
	check(floats.b.to_list() == [1.0, 2.0, 3.0] and floats.c.dtype == "int32" and floats.c.to_list() == [-7], "vectors")
	var image = Image.new()
	image.create(2, 3, false, Image.FORMAT_RGB8)
	var picture = codec.decode(codec.encode({"a": image})).a
	check([picture.mode, picture.width, picture.height, picture.bytes.size()] == ["RGB", 2, 3, 18], "image")


func refusals():
	var endless = []
	endless.append(endless)
	for value in [
		endless, Codec.NDArray.new("float32", [3], PoolByteArray([1])), Codec.NDArray.new("O", [1], PoolByteArray([1])),
		Codec.Picture.new("X", 1, 1, PoolByteArray([1])), Codec.Picture.new("RGB", 1, 1, PoolByteArray([1])),
		{1: 2}, Reference.new(), Transform2D(),
	]:
		check(codec.encode({"a": value}) == null and codec.error != "", "a refused value")
	endless.clear()
	var head = "01000000" + "01000000" + "61"
	for hex in [
		"01", head + "0c", head + "08ffffff7f", head + "0bffffffff", head + "03ffffffff", head + "0302000000fffe",
		head + "0707000000" + "666c6f61743332" + "02000000" + "ffffffff" + "ffffffff" + "0400000000000000",
		head + "0701000000" + "4f" + "00000000" + "00000000", head + "07" + "01000000" + "4f" + "ffffffff",
		head + "0601000000" + "4c" + "ffffffff" + "ffffffff" + "00000000",
	]:
		check(codec.decode(unhex(hex)) == null and codec.error != "", hex)
	var deep = head
	for _i in range(100):
		deep += "0801000000"
	check(codec.decode(unhex(deep + "01")) == null, "a deep message")


func frames():
	var connection = Connection.new()
	var found = []
	for byte in "003:abc,2:de,".to_ascii():
		connection.feed(PoolByteArray([byte]))
		for payload in connection.take_payloads():
			found.append(payload.get_string_from_ascii())
	check(found == ["abc", "de"], "frames byte by byte")
	for text in ["x:", ":", "1234567890:", "99999999:", "3:abcd,", "-1:a,", "0:,"]:
		var other = Connection.new()
		other.state = Connection.OPEN
		other.feed(text.to_ascii())
		check(other.take_payloads().empty() and other.state == Connection.CLOSED and other.reason != "", text)
