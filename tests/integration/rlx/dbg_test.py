def test_x(harness, wire):
    served = harness(timeout_s=0.001)
    client = wire(served)
    client.init()
    client.update([1, 0])
    conn = next(iter(served.server._hub.connections))
    print(type(conn), conn.opened_s, served.server._hub.is_due(conn), conn._session.has_ended)
    assert client.update([1, 0], 1.0, terminal=True) is None
    import time; time.sleep(.5)
    print(conn._is_closing, conn._session.has_ended, conn.transport)
    assert client.is_closed()
