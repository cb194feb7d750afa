extends Reference
# The payload of an RLX message: `u32 version`, then `(key, type, value)*`; little-endian throughout.
#
# | GDScript                                      | on the wire      | read as                          |
# |-----------------------------------------------|------------------|----------------------------------|
# | null, bool, float, String                     | NULL .. BOOLEAN  | the same                         |
# | int                                           | INT4, INT64      | int                              |
# | Array, Dictionary with String keys            | LIST, DICT       | the same                         |
# | PoolByteArray, PoolIntArray, PoolRealArray    | NDARRAY          | NDArray uint8, int32, float32    |
# | Vector2, Vector3, Quat, Color                 | NDARRAY float32  | NDArray float32                  |
# | NDArray                                       | NDARRAY          | NDArray                          |
# | Image (L8, RGB8, RGBA8), Picture              | IMAGE            | Picture                          |
#
# GDScript has no exceptions: a call that fails returns null, and `error` has the reason; otherwise `error` is "".

enum { NONE, NIL, INT4, STRING, DOUBLE, BOOLEAN, IMAGE, NDARRAY, LIST, UINT4, INT64, DICT }

const VERSION = 1
# Bounds on a message, checked before anything is allocated.
const MAX_BYTES = 16 << 20
const MAX_ITEMS = 1000000
const MAX_DEPTH = 32
const MAX_DIMENSIONS = 32
const ITEM_BYTES = {
	"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
	"float32": 4, "float64": 8,
}
const BANDS = {"L": 1, "P": 1, "RGB": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "RGBA": 4, "CMYK": 4, "I": 4, "F": 4}

var error = ""

var _buffer: StreamPeerBuffer
var _items: int


# An array of any shape, in C order. `dtype` is a key of ITEM_BYTES.
class NDArray:
	var dtype: String
	var shape: Array
	var bytes: PoolByteArray

	func _init(dtype_: String, shape_: Array, bytes_: PoolByteArray):
		dtype = dtype_
		shape = shape_
		bytes = bytes_

	# Nested arrays of numbers, or one number if there is no dimension.
	func to_list():
		var buffer = StreamPeerBuffer.new()
		buffer.data_array = bytes
		return _nested(buffer, 0)

	func _nested(buffer, depth):
		if depth == shape.size():
			return _item(buffer)
		var items = []
		for _i in range(shape[depth]):
			items.append(_nested(buffer, depth + 1))
		return items

	func _item(buffer):
		match dtype:
			"bool":
				return buffer.get_u8() == 1
			"int8":
				return buffer.get_8()
			"uint8":
				return buffer.get_u8()
			"int16":
				return buffer.get_16()
			"uint16":
				return buffer.get_u16()
			"int32":
				return buffer.get_32()
			"uint32":
				return buffer.get_u32()
			"int64":
				return buffer.get_64()
			"float32":
				return buffer.get_float()
			_:
				return buffer.get_double()


# An image as Pillow keeps it: rows from the top. `mode` is a key of BANDS, or "1" (eight pixels per byte).
class Picture:
	var mode: String
	var width: int
	var height: int
	var bytes: PoolByteArray

	func _init(mode_: String, width_: int, height_: int, bytes_: PoolByteArray):
		mode = mode_
		width = width_
		height = height_
		bytes = bytes_


# Encode a message. Returns a PoolByteArray.
func encode(message: Dictionary):
	_begin(PoolByteArray())
	_buffer.put_u32(VERSION)
	_write_entries(message, 0)
	if error == "" and _buffer.get_size() > MAX_BYTES:
		_fail("a message of %d bytes is larger than %d" % [_buffer.get_size(), MAX_BYTES])
	return null if error != "" else _buffer.data_array


# Decode a payload. Returns a Dictionary.
func decode(payload: PoolByteArray):
	_begin(payload)
	if payload.size() > MAX_BYTES:
		return _fail("a message of %d bytes is larger than %d" % [payload.size(), MAX_BYTES])
	if _has(4):
		_buffer.get_u32()  # every version is read
	var message = {}
	while error == "" and _left() > 0:
		var key = _read_text()
		message[key] = _read_value(_read_type(), 0)
	return null if error != "" else message


func _begin(payload):
	error = ""
	_items = 0
	_buffer = StreamPeerBuffer.new()
	_buffer.data_array = payload


func _fail(reason):
	if error == "":
		error = reason
	return null


func _count(items, depth):
	_items += items
	if _items > MAX_ITEMS:
		_fail("a message has more than %d items" % MAX_ITEMS)
	elif depth >= MAX_DEPTH:
		_fail("a message is nested deeper than %d" % MAX_DEPTH)
	return error == ""


func _check_array(array):
	var items = 1
	for extent in array.shape:
		items = min(items * extent, MAX_BYTES + 1)  # no product overflows
	if not ITEM_BYTES.has(array.dtype):
		_fail("an array's dtype %s is none of %s" % [array.dtype, ITEM_BYTES.keys()])
	elif array.shape.size() > MAX_DIMENSIONS:
		_fail("an array has %d dimensions, more than %d" % [array.shape.size(), MAX_DIMENSIONS])
	elif items * ITEM_BYTES[array.dtype] != array.bytes.size():
		_fail("an array %s of %s cannot have %d bytes" % [array.shape, array.dtype, array.bytes.size()])
	return error == ""


func _check_picture(picture):
	var row = (picture.width + 7) / 8 if picture.mode == "1" else picture.width * BANDS.get(picture.mode, 0)
	if picture.mode != "1" and not BANDS.has(picture.mode):
		_fail("an image's mode %s is unknown" % picture.mode)
	elif min(row, MAX_BYTES + 1) * min(picture.height, MAX_BYTES + 1) != picture.bytes.size():
		_fail("an image of %d x %d has %d bytes" % [picture.width, picture.height, picture.bytes.size()])
	return error == ""


# -- writing --


func _write_entries(entries, depth):
	for key in entries:
		if not key is String:
			_fail("a key must be a String, not %s" % var2str(key))
		if error != "":
			return
		_write_text(key)
		_write_value(entries[key], depth)


func _write_value(value, depth):
	if not _count(1, depth):
		return
	match typeof(value):
		TYPE_NIL:
			_buffer.put_u8(NIL)
		TYPE_BOOL:
			_buffer.put_u8(BOOLEAN)
			_buffer.put_u8(int(value))
		TYPE_INT:
			var is_small = value >= -2147483648 and value <= 2147483647
			_buffer.put_u8(INT4 if is_small else INT64)
			if is_small:
				_buffer.put_32(value)
			else:
				_buffer.put_64(value)
		TYPE_REAL:
			_buffer.put_u8(DOUBLE)
			_buffer.put_double(value)
		TYPE_STRING:
			_buffer.put_u8(STRING)
			_write_text(value)
		TYPE_ARRAY:
			_buffer.put_u8(LIST)
			_buffer.put_u32(value.size())
			for item in value:
				_write_value(item, depth + 1)
		TYPE_DICTIONARY:
			_buffer.put_u8(DICT)
			_buffer.put_u32(value.size())
			_write_entries(value, depth + 1)
		TYPE_OBJECT:
			_write_object(value)
		_:
			_write_object(_array_of(value))


func _array_of(value):
	match typeof(value):
		TYPE_RAW_ARRAY:
			return NDArray.new("uint8", [value.size()], value)
		TYPE_INT_ARRAY:
			return _array("int32", value)
		TYPE_REAL_ARRAY:
			return _array("float32", value)
		TYPE_VECTOR2:
			return _array("float32", [value.x, value.y])
		TYPE_VECTOR3:
			return _array("float32", [value.x, value.y, value.z])
		TYPE_QUAT:
			return _array("float32", [value.x, value.y, value.z, value.w])
		TYPE_COLOR:
			return _array("float32", [value.r, value.g, value.b, value.a])
	return value


func _array(dtype, numbers):
	var items = StreamPeerBuffer.new()
	for number in numbers:
		if dtype == "int32":
			items.put_32(number)
		else:
			items.put_float(number)
	return NDArray.new(dtype, [numbers.size()], items.data_array)


func _write_object(value):
	if value is Image:
		var modes = {Image.FORMAT_L8: "L", Image.FORMAT_RGB8: "RGB", Image.FORMAT_RGBA8: "RGBA"}
		if not modes.has(value.get_format()) or value.has_mipmaps():
			_fail("an image must be L8, RGB8 or RGBA8 without mipmaps; see Image.convert")
			return
		value = Picture.new(modes[value.get_format()], value.get_width(), value.get_height(), value.get_data())
	if value is Picture and _check_picture(value):
		_buffer.put_u8(IMAGE)
		_write_text(value.mode)
		_buffer.put_u32(value.width)
		_buffer.put_u32(value.height)
		_write_bytes(value.bytes)
	elif value is NDArray and _check_array(value):
		_buffer.put_u8(NDARRAY)
		_write_text(value.dtype)
		_buffer.put_u32(value.shape.size())
		for extent in value.shape:
			_buffer.put_u32(extent)
		_write_bytes(value.bytes)
	else:
		_fail("%s cannot be sent" % var2str(value))


func _write_text(text):
	_write_bytes(text.to_utf8())


func _write_bytes(bytes):
	_buffer.put_u32(bytes.size())
	if bytes.size() > 0:
		_buffer.put_data(bytes)


# -- reading: after a failure, every read returns null or 0 --


func _left():
	return _buffer.get_size() - _buffer.get_position()


func _has(count):
	if error == "" and count > _left():
		_fail("a message ends too early")
	return error == ""


func _read_type():
	return _buffer.get_u8() if _has(1) else NONE


func _read_size():
	return _buffer.get_u32() if _has(4) else 0


func _read_bytes():
	var size = _read_size()
	if size == 0 or not _has(size):
		return PoolByteArray()
	return _buffer.get_data(size)[1]


func _read_text():
	var bytes = _read_bytes()
	var text = bytes.get_string_from_utf8()
	if text.to_utf8() != bytes:
		_fail("a text is not UTF-8")
	return text


func _read_value(type, depth):
	if not _count(1, depth):
		return null
	match type:
		NONE, NIL:
			return null
		INT4:
			return _buffer.get_32() if _has(4) else null
		UINT4:
			return _buffer.get_u32() if _has(4) else null
		INT64:
			return _buffer.get_64() if _has(8) else null
		DOUBLE:
			return _buffer.get_double() if _has(8) else null
		BOOLEAN:
			return _buffer.get_u8() == 1 if _has(1) else null
		STRING:
			return _read_text()
		LIST:
			var items = []
			for _i in range(_read_length(1)):
				items.append(_read_value(_read_type(), depth + 1))
			return items
		DICT:
			var entries = {}
			for _i in range(_read_length(5)):
				var key = _read_text()
				entries[key] = _read_value(_read_type(), depth + 1)
			return entries
		NDARRAY:
			return _read_array()
		IMAGE:
			var mode = _read_text()
			var width = _read_size()
			var picture = Picture.new(mode, width, _read_size(), _read_bytes())
			return picture if error == "" and _check_picture(picture) else null
	return _fail("type %d is unknown" % type)


# The number of items that follow, each of at least `least_bytes`.
func _read_length(least_bytes):
	var length = _read_size()
	return length if _has(length * least_bytes) and _items + length <= MAX_ITEMS else _fail_items(length)


func _fail_items(length):
	_fail("a list of %d items is too long" % length)
	return 0


func _read_array():
	var dtype = _read_text()
	var dimensions = _read_size()
	if dimensions > MAX_DIMENSIONS:
		return _fail("an array has %d dimensions, more than %d" % [dimensions, MAX_DIMENSIONS])
	var shape = []
	for _i in range(dimensions):
		shape.append(_read_size())
	var array = NDArray.new(dtype, shape, _read_bytes())
	return array if error == "" and _check_array(array) else null
