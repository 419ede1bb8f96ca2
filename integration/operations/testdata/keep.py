"""Keeps every descriptor that it is sent on the unix socket argv[1] until the sender closes."""

import array
import socket
import sys

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listening", flush=True)
while True:
    conn, _ = listener.accept()
    _, control, _, _ = conn.recvmsg(1, socket.CMSG_SPACE(4))
    kept = array.array("i", control[0][2])
    conn.sendall(b"k")
    conn.recv(1)
    socket.socket(fileno=kept[0]).close()
    conn.close()
